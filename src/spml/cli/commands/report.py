"""`spml report`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import tyro

from spml.cli import DecodeOptions
from spml.errors import UserError
from spml.files import refuse_existing

PAGES = (".html", ".htm")
MOST_PICTURES = 100


@dataclass(frozen=True)
class Report(DecodeOptions):
    """Write one HTML page for a run, or for a comparison of several.

    Example: spml report runs/voc-an-0 runs/voc-gr-0 --out comparison.html
    """

    order: ClassVar[int] = 80

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN...")]
    """Run folders."""
    out: Path | None = None
    """File of the page. Default: report.html in the run folder; for several runs, in the current
    folder."""
    title: str | None = None
    """Heading of the page."""
    against: str | None = None
    """For several runs, the method to compare with. Default: an, else the first run's."""
    pictures: int = 8
    """For one run, the number of pictures to show. With 0 the page needs no data."""
    root: Path | None = None
    """Folder of the data's files, for the pictures. Default: their location at training."""
    overwrite: bool = False
    """Replace the file at --out. The run's own report.html is always replaced."""

    def run(self) -> None:
        """Write the page."""
        from spml.cli.output.progress import bar
        from spml.report import write_report
        from spml.runs.names import REPORT
        from spml.runs.run import Run

        if not self.runs:
            raise UserError("no run folder; give one or several")
        if not 0 <= self.pictures <= MOST_PICTURES:
            raise UserError(f"--pictures must be from 0 to {MOST_PICTURES}, not {self.pictures}")
        if self.against is not None and len(self.runs) == 1:
            raise UserError("--against needs several runs; give another run, or leave it out")
        out = self.out or (Run(self.runs[0]).report if len(self.runs) == 1 else Path(REPORT))
        if out.suffix.lower() not in PAGES:
            raise UserError(f"--out {out}: give a name that ends in {' or '.join(PAGES)}")
        inside = os.path.realpath(out.parent) == os.path.realpath(self.runs[0])
        own = len(self.runs) == 1 and out.name == REPORT and inside
        if not own and not self.overwrite:
            refuse_existing(out, "give --overwrite or another --out")
        with bar("comparing") as advance:
            page = write_report(
                list(self.runs),
                out,
                title=self.title,
                root=self.root,
                pictures=self.pictures,
                against=self.against,
                advance=advance,
            )
        print(page)
