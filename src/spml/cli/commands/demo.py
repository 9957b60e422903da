"""`spml demo`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Demo:
    """Train assume-negative, GR and the full-label upper bound on the embedded digits, and compare them on one page.

    Example: spml demo --out demo
    """

    out: Path = Path("demo")
    """Folder of the runs and the report; runs that are finished there are not repeated."""
    methods: tuple[str, ...] = ("an", "gr", "full")
    """Methods to compare."""
    seeds: int = 3
    """Runs of each method."""
    data: str = "digits"
    """digits or digits-many."""
    epochs: int | None = None
    """Default: that of the data."""
    jobs: int | None = None
    """Runs at a time. Default: one per core."""

    def run(self) -> None:
        """Train all, then print the table and where the report is."""
        from spml.cli.compare import compare

        compare(self.data, self.methods, self.seeds, self.out, self.epochs, self.jobs)
