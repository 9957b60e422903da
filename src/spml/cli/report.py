"""`spml report`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


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

    def run(self) -> None:
        """Write the page."""
        from spml.errors import UserError
        from spml.report import write_report

        if not self.runs:
            raise UserError("no run folder given; name one or several")
        out = self.out or (self.runs[0] / "report.html" if len(self.runs) == 1 else Path("report.html"))
        print(write_report(list(self.runs), out, title=self.title))
