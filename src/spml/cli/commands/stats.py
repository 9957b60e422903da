"""`spml stats`."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import tyro

FIGURES = (".svg", ".png", ".pdf")


@dataclass(frozen=True)
class Stats:
    """Print what data look like: images, labels per image, positives per class, classes that go together.

    Example: spml stats voc --root VOCdevkit --out voc.svg
    """

    order: ClassVar[int] = 40

    data: Annotated[str, tyro.conf.Positional]
    """digits, digits-many, voc, coco, nuswide, cub, or a path: a table, a folder or arrays."""
    root: Path | None = None
    """Folder of the data set's files, or of the images that a table names."""
    labels: Literal["observed", "complete"] | None = None
    """What an absent label means: unknown, or negative. Default: complete for benchmarks and digits, else observed."""
    classes: str | None = None
    """File with one class name a line, or names joined by commas: fixes the classes and their order."""
    observe: str = "uniform"
    """How training's labels are drawn from complete ones: uniform, frequency, size or file:PATH, with options as in
    uniform:positives=2."""
    observe_seed: int = 1200
    """Seed of that draw."""
    split_seed: int = 1200
    """Seed of the validation split."""
    out: Path | None = None
    """Figure of the classes to write, .svg, .png or .pdf; that of the pairs of classes goes beside it, as
    NAME-pairs."""
    json: Path | None = None
    """File to write the same numbers to."""
    overwrite: bool = False
    """Replace what is at --out and --json."""

    def run(self) -> None:
        """Count, print, draw."""
        from rich.console import Console

        from spml.atomic import write_json
        from spml.cli.output.stats import print_statistics
        from spml.data import load
        from spml.data.statistics import statistics

        self._refuse_early()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            experiment = load(
                *(self.data, self.root, self.labels, self.observe_seed, self.split_seed),
                classes=self.classes,
                observe=self.observe,
            )
        console = Console(highlight=False)
        for one in said:
            console.print(f"warning: {one.message}", markup=False, soft_wrap=True)
        found = statistics(experiment)
        print_statistics(console, found)
        if self.json is not None:
            write_json(self.json, found.to_json())
            console.print(f"{self.json}: the same numbers", markup=False, soft_wrap=True)
        if self.out is not None:
            from spml.analysis.plots_classes import draw_classes, draw_pairs

            draw_classes(found, self.out)
            console.print(f"{self.out}: the classes", markup=False, soft_wrap=True)
            if found.together is not None:
                pairs = _pairs(self.out)
                draw_pairs(found, pairs)
                console.print(f"{pairs}: the pairs of classes", markup=False, soft_wrap=True)

    def _refuse_early(self) -> None:
        """Raise UserError for files that cannot be written or would be replaced unasked, before any work."""
        from spml.data.check.fix import refuse_existing
        from spml.errors import UserError

        if self.out is not None and self.out.suffix.lower() not in FIGURES:
            raise UserError(f"--out {self.out}: give a name that ends in {', '.join(FIGURES)}")
        figures = [] if self.out is None else [self.out, _pairs(self.out)]
        for flag, file in [("--out", figure) for figure in figures] + [("--json", self.json)]:
            if file is not None and not self.overwrite:
                refuse_existing(file, f"give --overwrite or another {flag}")


def _pairs(out: Path) -> Path:
    """Where the figure of the pairs goes."""
    return out.with_name(f"{out.stem}-pairs{out.suffix}")
