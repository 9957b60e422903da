"""`spml report`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

PAGES = (".html", ".htm")
MOST_PICTURES = 100


@dataclass(frozen=True)
class Report:
    """Make one HTML page of a run, or of several side by side.

    Example: spml report runs/voc-an-0 runs/voc-gr-0 --out comparison.html
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN...")]
    """Run folders."""
    out: Path | None = None
    """The page. Default: report.html in the run folder, or here for several."""
    title: str | None = None
    """Its heading."""
    against: str | None = None
    """Of several runs, the method that the others are compared with. Default: an, or else that of the first run."""
    pictures: int = 8
    """Of one run, how many pictures to show; 0 for none, the page then needs no data."""
    root: Path | None = None
    """Folder of the data's files, for the pictures; default: where they were at training."""
    overwrite: bool = False
    """Replace what is at --out; the run's own report.html is replaced without it."""

    def run(self) -> None:
        """Write the page."""
        from rich.console import Console
        from rich.progress import Progress

        from spml.errors import UserError
        from spml.report import write_report
        from spml.runs.names import REPORT
        from spml.runs.run import Run

        if not self.runs:
            raise UserError("no run folder given; name one or several")
        if not 0 <= self.pictures <= MOST_PICTURES:
            raise UserError(f"--pictures must be from 0 to {MOST_PICTURES}, not {self.pictures}")
        if self.against is not None and len(self.runs) == 1:
            raise UserError("--against is for several runs; give another run, or leave it out")
        out = self.out or (Run(self.runs[0]).report if len(self.runs) == 1 else Path(REPORT))
        self._refuse(out)
        with Progress(transient=True, disable=not Console().is_terminal) as progress:
            task = progress.add_task("comparing", total=None, visible=len(self.runs) > 1)
            page = write_report(
                list(self.runs),
                out,
                title=self.title,
                root=self.root,
                pictures=self.pictures,
                against=self.against,
                advance=lambda done, total: progress.update(task, completed=done, total=total),
            )
        print(page)

    def _refuse(self, out: Path) -> None:
        """Raise UserError where the page's name is no page's, or something else would be replaced unasked."""
        from spml.errors import UserError
        from spml.files import refuse_existing
        from spml.runs.names import REPORT

        if out.suffix.lower() not in PAGES:
            raise UserError(f"--out {out}: give a name that ends in {' or '.join(PAGES)}")
        inside = os.path.realpath(out.parent) == os.path.realpath(self.runs[0])
        own = len(self.runs) == 1 and out.name == REPORT and inside
        if not own and not self.overwrite:
            refuse_existing(out, "give --overwrite or another --out")
