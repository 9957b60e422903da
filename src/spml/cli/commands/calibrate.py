"""`spml calibrate`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import tyro


@dataclass(frozen=True)
class Calibrate:
    """Calibrate probabilities, and set a threshold for each class.

    It needs no complete labels.

    Example: spml calibrate runs/photos --aim precision=0.9
    """

    order: ClassVar[int] = 70

    run_folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A finished run."""
    aim: str = "f1"
    """f1, precision=NUMBER or recall=NUMBER. A number is the minimum for each class."""
    labels: Literal["observed", "complete"] | None = None
    """Labels of the validation items. Default: those that chose the epoch. observed reads no other
    label."""
    method: Literal["temperature", "isotonic", "none"] = "temperature"
    """How to calibrate. With temperature each class's logits are scaled and shifted, with isotonic
    also bent; none only sets thresholds."""
    positives_per_item: float | None = None
    """Mean number of classes of an item, for observed labels. Default: an estimate."""
    seed: int = 0
    """Seed of the resampled items that give the ranges."""
    undo: bool = False
    """Restore the thresholds and probabilities from before."""
    root: Path | None = None
    """Folder of the data's files, if scores are not stored. Default: their location at training."""
    batch_size: int = 64
    """Items per batch, if scores must be computed."""

    def run(self) -> None:
        """Fit the calibration, store it and print it."""
        from rich.console import Console
        from rich.progress import Progress

        from spml.cli.output.calibrate import print_calibration
        from spml.runs.run import Run
        from spml.use.calibrate.calibrate import calibrate, undo

        if self.undo:
            undo(self.run_folder)
            print(f"{self.run_folder}: thresholds and probabilities from before are restored")
            return
        with Progress(transient=True, disable=not Console().is_terminal) as progress:
            task = progress.add_task("resampling", total=None)
            record = calibrate(
                self.run_folder,
                aim=self.aim,
                labels=self.labels,
                method=self.method,
                positives_per_item=self.positives_per_item,
                seed=self.seed,
                root=self.root,
                batch_size=self.batch_size,
                advance=lambda done, total: progress.update(task, completed=done, total=total),
            )
        print_calibration(Console(), record)
        run = Run(self.run_folder)
        print(f"written to {run.model_info} and {run.calibration_file}")
