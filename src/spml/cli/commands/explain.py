"""`spml explain`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import tyro


@dataclass(frozen=True)
class Explain:
    """Show the regions that speak for each class, for chosen pictures or the worst mistakes.

    Example: spml explain runs/photos holiday.jpg --out maps
    """

    order: ClassVar[int] = 100

    run_folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A finished run, or a folder with model.safetensors and model.json."""
    inputs: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="PICTURE...")
    ] = ()
    """Pictures, folders, or other inputs of `spml predict`."""
    out: Path = Path("explained")
    """Folder for the overlays and index.html."""
    classes: str | None = None
    """Classes to show: a file with one name a line, or names joined by commas. Default: the most
    probable."""
    top: int = 3
    """Number of classes to show without --classes."""
    worst: int | None = None
    """Show this number of the worst mistakes on the run's own data, instead of pictures."""
    split: Literal["val", "test"] = "test"
    """The split to look for mistakes in."""
    root: Path | None = None
    """Folder of the data's files. Default: their location at training."""
    overwrite: bool = False
    """Replace the folder, if this command wrote it."""

    def run(self) -> None:
        """Draw the overlays and report unreadable pictures."""
        from rich.console import Console
        from rich.progress import Progress

        from spml.cli import LeftOut, log, note_unfinished
        from spml.errors import DataError, UserError
        from spml.use.explain.explain import explain, explain_worst
        from spml.use.predict.tagging import named_classes

        if (self.worst is None) == (not self.inputs):
            raise UserError(
                "give pictures, or --worst N for the worst mistakes on the run's own data"
            )
        note_unfinished(self.run_folder)
        left_out = LeftOut()
        with Progress(transient=True, disable=not Console().is_terminal) as progress:
            task = progress.add_task("explaining", total=None)
            if self.worst is not None:
                written = explain_worst(
                    self.run_folder,
                    self.out,
                    count=self.worst,
                    split=self.split,
                    root=self.root,
                    overwrite=self.overwrite,
                    on_error=left_out,
                    note=log,
                    advance=lambda done: progress.update(task, completed=done),
                )
            else:
                written = explain(
                    self.run_folder,
                    self.inputs,
                    self.out,
                    classes=named_classes(self.classes, self.run_folder),
                    top=self.top,
                    overwrite=self.overwrite,
                    on_error=left_out,
                    note=log,
                    advance=lambda done: progress.update(task, completed=done),
                )
        print(f"{written:,} written to {self.out / 'index.html'}")
        if left_out.count:
            raise DataError(f"{left_out.count:,} could not be read, named above")
