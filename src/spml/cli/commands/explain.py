"""`spml explain`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import tyro

from spml.cli import DecodeOptions, LeftOut, ModelOptions, log
from spml.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Explain(ModelOptions, DecodeOptions):
    """Show the regions of pictures that speak for each class.

    Example: spml explain runs/photos holiday.jpg --out maps
    """

    order: ClassVar[int] = 100

    inputs: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="PICTURE...")
    ] = ()
    """Pictures, folders, or other inputs of `spml predict`."""
    out: Path = Path("explained")
    """Folder for the overlays and index.html."""
    classes: str | None = None
    """Classes to show. A file with one name a line, or names joined by commas. Default: the most
    probable."""
    top: int = 3
    """Number of classes to show without --classes."""
    worst: int | None = None
    """The N worst mistakes on the run's data."""
    split: Literal["val", "test"] = "test"
    """The split to look for mistakes in."""
    root: Path | None = None
    """Folder of the data's files. Default: their location at training."""
    accept_changed_data: bool = False
    """With --worst: use changed pictures."""
    overwrite: bool = False
    """Replace the folder, if this command wrote it."""

    def run(self) -> None:
        """Draw the overlays and report unreadable pictures."""
        from spml.cli.output.progress import bar
        from spml.use.explain.explain import explain, explain_worst
        from spml.use.predict.predict import named_classes

        if (self.worst is None) == (not self.inputs):
            raise UserError(
                "give pictures, or --worst N for the worst mistakes on the run's own data"
            )
        run = self.model()
        left_out = LeftOut()
        out = self.out
        with bar("explaining") as advance:
            usual: dict[str, Any] = {"on_error": left_out, "note": log, "advance": advance}
            usual["overwrite"] = self.overwrite
            if self.worst is not None:
                place: dict[str, Any] = {"split": self.split, "root": self.root}
                place["accept_changed_data"] = self.accept_changed_data
                written = explain_worst(run, out, count=self.worst, **place, **usual)
            else:
                classes = named_classes(self.classes, run)
                written = explain(run, self.inputs, out, classes=classes, top=self.top, **usual)
        print(f"{written:,} written to {self.out / 'index.html'}")
        left_out.check()
