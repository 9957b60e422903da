"""`spml predict`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Predict:
    """Write probabilities and tags for pictures, folders, or the images of a table.

    Example: spml predict runs/photos new-photos/ --out tags.csv
    """

    run_folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A finished run, or a folder with model.safetensors and model.json."""
    inputs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="INPUT...")]
    """Pictures, folders of pictures, CSV or Parquet files with an image column, or .npz files with x."""
    out: Path = Path("predictions.csv")
    """Where to write: .csv or .parquet."""
    overwrite: bool = False
    """Replace the output file if it is there."""
    batch_size: int = 32
    """Items at a time."""

    def run(self) -> None:
        """Predict and say what could not be read."""
        from rich.console import Console
        from rich.progress import Progress

        from spml.cli import say
        from spml.errors import DataError, UserError
        from spml.use.predict import predict

        if self.out.exists() and not self.overwrite:
            raise UserError(f"{self.out} is already there; give --overwrite or another --out")
        bad: list[DataError] = []

        def on_error(row: int, error: DataError) -> None:
            bad.append(error)
            say(f"left out: {error}")

        with Progress(transient=True, disable=not Console().is_terminal) as progress:
            task = progress.add_task("predicting", total=None)
            written = predict(
                self.run_folder,
                self.inputs,
                self.out,
                batch_size=self.batch_size,
                on_error=on_error,
                advance=lambda done, total: progress.update(task, completed=done, total=total),
            )
        print(f"{written:,} written to {self.out}")
        if bad:
            raise DataError(f"{len(bad)} of {written + len(bad)} pictures could not be read, named above")
