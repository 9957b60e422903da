"""`spml stats`."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import tyro

from spml.cli import DataOptions
from spml.errors import UserError
from spml.files import refuse_existing, write_json

FIGURES = (".svg", ".png", ".pdf")


@dataclass(frozen=True, kw_only=True)
class Stats(DataOptions):
    """Print statistics of data: images, labels, classes and their pairs.

    Example: spml stats voc --root VOCdevkit --out voc.svg
    """

    order: ClassVar[int] = 40

    data: Annotated[str, tyro.conf.Positional]
    """digits, digits-many, a benchmark (see `spml prepare --help`), or a path."""
    observe_seed: int = 1200
    """Seed of the draw of single positives."""
    split_seed: int = 1200
    """Seed of the validation split."""
    out: Path | None = None
    """Figure of the classes (.svg, .png, .pdf); the pairs are drawn in NAME-pairs."""
    json: Path | None = None
    """File to write the same numbers to."""
    overwrite: bool = False
    """Replace existing files at --out and --json."""

    def run(self) -> None:
        """Count, print, draw."""
        from rich.console import Console

        from spml.cli.output.stats import print_statistics
        from spml.data.statistics import statistics

        self._refuse_early()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            experiment = self.load(self.data, self.observe_seed, self.split_seed)
        console = Console(highlight=False)
        for one in caught:
            console.print(f"warning: {one.message}", markup=False, soft_wrap=True)
        result = statistics(experiment)
        print_statistics(console, result)
        if self.json is not None:
            write_json(self.json, result.to_json())
            console.print(f"{self.json}: the same numbers", markup=False, soft_wrap=True)
        if self.out is not None:
            from spml.analysis.plots_classes import draw_classes, draw_pairs

            draw_classes(result, self.out)
            console.print(f"{self.out}: the classes", markup=False, soft_wrap=True)
            if result.cooccurrence is not None:
                pairs = _pairs(self.out)
                draw_pairs(result, pairs)
                console.print(f"{pairs}: the pairs of classes", markup=False, soft_wrap=True)

    def _refuse_early(self) -> None:
        """Raise UserError for output files with a wrong name or that exist, before any work."""
        if self.out is not None and self.out.suffix.lower() not in FIGURES:
            raise UserError(f"--out {self.out}: give a name that ends in {', '.join(FIGURES)}")
        figures = [] if self.out is None else [self.out, _pairs(self.out)]
        for flag, file in [("--out", figure) for figure in figures] + [("--json", self.json)]:
            if file is not None and not self.overwrite:
                refuse_existing(file, f"give --overwrite or another {flag}")


def _pairs(out: Path) -> Path:
    """Return the path of the figure of the pairs."""
    return out.with_name(f"{out.stem}-pairs{out.suffix}")
