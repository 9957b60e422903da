"""`spml calibrate`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro


@dataclass(frozen=True)
class Calibrate:
    """Make a run's probabilities mean what they say, and set one threshold per class; no complete label is needed.

    Example: spml calibrate runs/photos --aim precision=0.9
    """

    run_folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A finished run."""
    aim: str = "f1"
    """What thresholds are for: f1, or what each class is to have at least, such as precision=0.9 or recall=0.9."""
    labels: Literal["observed", "complete"] | None = None
    """Of the validation items; default: those that chose the epoch. observed reads no label that was not seen."""
    method: Literal["temperature", "isotonic", "none"] = "temperature"
    """temperature scales and shifts each class's logits, isotonic also bends, none sets thresholds alone."""
    positives_per_item: float | None = None
    """How many classes an item has on average, where you know it; else it is estimated. For observed labels."""
    seed: int = 0
    """Of the resampled items that ranges come from."""
    undo: bool = False
    """Give the model its former thresholds and probabilities back."""
    root: Path | None = None
    """Folder of the data's files, needed only where the run has no scores; default: where they were at training."""
    batch_size: int = 64
    """Items at a time, where scores must be computed."""

    def run(self) -> None:
        """Fit, write, and show what was found."""
        from rich.console import Console
        from rich.progress import Progress

        from spml.cli.output.calibrate import print_calibration
        from spml.runs.run import Run
        from spml.use.calibrate.calibrate import calibrate, undo

        if self.undo:
            undo(self.run_folder)
            print(f"{self.run_folder}: thresholds and probabilities are as they were before")
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
