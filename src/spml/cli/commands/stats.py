"""`spml stats`."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

FIGURES = (".svg", ".png", ".pdf")


@dataclass(frozen=True)
class Stats:
    """Print statistics: images, labels per image, positives per class, co-occurring classes.

    Example: spml stats voc --root VOCdevkit --out voc.svg
    """

    data: Annotated[str, tyro.conf.Positional]
    """digits, digits-many, a benchmark (voc, coco, ...; `spml prepare --help` lists them), or a
    path: a table, a folder or arrays."""
    root: Path | None = None
    """Folder of the data set's files, or of the images in a table."""
    labels: Literal["observed", "complete"] | None = None
    """Meaning of an absent label: unknown, or negative. Default: complete for benchmarks and
    digits, else observed."""
    classes: str | None = None
    """File with one class name a line, or names joined by commas: fixes the classes and their
    order."""
    observe: str = "uniform"
    """Observation model that draws training labels from complete ones: uniform, frequency, size or
    file:PATH, with options as in uniform:positives=2."""
    observe_seed: int = 1200
    """Seed of that draw."""
    split_seed: int = 1200
    """Seed of the validation split."""
    out: Path | None = None
    """Figure of the classes to write, .svg, .png or .pdf; the figure of the pairs of classes is
    written beside it as NAME-pairs."""
    json: Path | None = None
    """File to write the same numbers to."""
    overwrite: bool = False
    """Replace existing files at --out and --json."""

    def run(self) -> None:
        """Count, print, draw."""
        from rich.console import Console

        from spml.cli.output.stats import print_statistics
        from spml.data import load
        from spml.data.statistics import statistics
        from spml.files import write_json

        self._refuse_early()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            experiment = load(
                *(self.data, self.root, self.labels, self.observe_seed, self.split_seed),
                classes=self.classes,
                observe=self.observe,
            )
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
            if result.together is not None:
                pairs = _pairs(self.out)
                draw_pairs(result, pairs)
                console.print(f"{pairs}: the pairs of classes", markup=False, soft_wrap=True)

    def _refuse_early(self) -> None:
        """Raise UserError for output files with a wrong name or that exist, before any work."""
        from spml.errors import UserError
        from spml.files import refuse_existing

        if self.out is not None and self.out.suffix.lower() not in FIGURES:
            raise UserError(f"--out {self.out}: give a name that ends in {', '.join(FIGURES)}")
        figures = [] if self.out is None else [self.out, _pairs(self.out)]
        for flag, file in [("--out", figure) for figure in figures] + [("--json", self.json)]:
            if file is not None and not self.overwrite:
                refuse_existing(file, f"give --overwrite or another {flag}")


def _pairs(out: Path) -> Path:
    """Return the path of the figure of the pairs."""
    return out.with_name(f"{out.stem}-pairs{out.suffix}")
