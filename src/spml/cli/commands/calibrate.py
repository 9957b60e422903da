"""`spml calibrate`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from spml.cli import RunOptions


@dataclass(frozen=True, kw_only=True)
class Calibrate(RunOptions):
    """Calibrate probabilities, and set a threshold for each class.

    It needs no complete labels.

    Example: spml calibrate runs/photos --aim precision=0.9
    """

    order: ClassVar[int] = 70

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

    def run(self) -> None:
        """Fit the calibration, store it and print it."""
        from rich.console import Console

        from spml.cli.output.calibrate import print_calibration
        from spml.cli.output.progress import bar
        from spml.runs.run import Run
        from spml.use.calibrate.calibrate import calibrate, undo

        if self.undo:
            undo(self.run_folder)
            print(f"{self.run_folder}: thresholds and probabilities from before are restored")
            return
        with bar("resampling") as advance:
            record = calibrate(
                self.run_folder,
                aim=self.aim,
                labels=self.labels,
                method=self.method,
                positives_per_item=self.positives_per_item,
                seed=self.seed,
                root=self.root,
                batch_size=self.batch_size,
                accept_changed_data=self.accept_changed_data,
                advance=advance,
            )
        print_calibration(Console(), record)
        run = Run(self.run_folder)
        print(f"written to {run.model_info} and {run.calibration_file}")
