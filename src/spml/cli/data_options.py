"""Options that say where data come from, common to the commands that train."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from spml.data import Experiment


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """Where the data are, and how their labels are taken."""

    root: Path | None = None
    """Folder of the data set's files, or of the images that a CSV names."""
    labels: Literal["observed", "complete"] | None = None
    """What an absent label means: unknown, or negative. Default: complete for benchmarks and digits, else observed."""
    val: Path | None = None
    """File of the validation rows, beside DATA. Default: those marked val in DATA, else a fifth of its rows."""
    test: Path | None = None
    """File of the test rows, beside DATA. Default: those marked test in DATA."""
    observe: str = "uniform"
    """How single positives are drawn from complete labels: uniform (as the protocol), frequency, size, file:PATH."""
    classes: str | None = None
    """File with one class name a line, or names joined by commas: fixes the classes and their order."""

    def arguments(self, data: str, observe_seed: int, split_seed: int) -> dict[str, Any]:
        """What `spml.data.load` is given."""
        return {
            "source": data,
            "root": self.root,
            "labels": self.labels,
            "observe_seed": observe_seed,
            "split_seed": split_seed,
            "classes": self.classes,
            "observe": self.observe,
            "val": self.val,
            "test": self.test,
        }

    def load(self, data: str, observe_seed: int, split_seed: int) -> Experiment:
        """The data, ready for training."""
        from spml.data import load

        return load(**self.arguments(data, observe_seed, split_seed))

    def sources(self) -> dict[str, str | None]:
        """Where the data come from, as `spml eval` finds them again."""
        paths = {"root": self.root, "val": self.val, "test": self.test}
        return {
            **{name: None if path is None else str(path) for name, path in paths.items()},
            "observe": self.observe,
        }
