"""`spml train`."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Literal

import tyro

from spml.cli.options import parse_options, print_options
from spml.train.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Train(Settings):
    """Train a classifier from one label per item.

    Example: spml train photos.csv --method gr --backbone resnet50 --out runs/photos
    """

    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
    """digits, digits-many, voc, coco, nuswide, cub, or the path of a CSV or .npz file."""
    set: Annotated[list[str], tyro.conf.UseAppendAction] = field(default_factory=list)
    """An option of the method as NAME=VALUE, e.g. q3=1.5 or w=0,10; `--set help` lists them."""
    root: Path | None = None
    """Folder of the data set's files, or of the images that a CSV names."""
    labels: Literal["observed", "complete"] | None = None
    """What an absent label means: unknown, or negative. Default: complete for the benchmarks, else observed."""
    val: Path | None = None
    """File of the validation rows, beside DATA. Default: those marked val in DATA, else a fifth of its rows."""
    test: Path | None = None
    """File of the test rows, beside DATA. Default: those marked test in DATA."""
    observe: str = "uniform"
    """How single positives are drawn from complete labels: uniform (as the protocol), frequency, size, file:PATH."""
    classes: Path | None = None
    """File with one class name a line: fixes the classes and their order."""
    out: Path | None = None
    """The run folder. Default: runs/DATA-METHOD-SEED."""
    resume: bool = False
    """Go on with the run in --out from its last checkpoint."""
    overwrite: bool = False
    """Replace the run in --out."""
    quiet: bool = False
    """Print nothing but errors."""

    def run(self) -> None:
        """Load, train, report."""
        if "help" in self.set:
            print_options(self.method)
            return
        from spml.data import load
        from spml.errors import Interruption, UserError
        from spml.launch import started_first
        from spml.report import write_report
        from spml.train import Settings, fit

        if self.resume and self.overwrite:
            raise UserError("--resume goes on with a run and --overwrite replaces it; give one of them")
        experiment = load(
            self.data,
            self.root,
            self.labels,
            self.observe_seed,
            self.split_seed,
            classes=self.classes,
            observe=self.observe,
            val=self.val,
            test=self.test,
        )
        settings = Settings(**{item.name: getattr(self, item.name) for item in fields(Settings)})
        out = self.out or Path("runs") / f"{Path(self.data).stem}-{self.method.replace(':', '.')}-{self.seed}"
        try:
            fit(
                experiment,
                settings,
                out,
                options=parse_options(self.method, self.set),
                resume=self.resume,
                overwrite=self.overwrite,
                quiet=self.quiet,
                extra_config={**self._sources(), "command": self.command()},
            )
        except Interruption:
            raise KeyboardInterrupt(f"go on with: {self.command()} --resume") from None
        if started_first():
            write_report([out], out / "report.html")

    def _sources(self) -> dict[str, str | None]:
        """Where the data come from, as `spml eval` finds them again."""
        paths = {"root": self.root, "val": self.val, "test": self.test}
        return {**{name: None if path is None else str(path) for name, path in paths.items()}, "observe": self.observe}

    def command(self) -> str:
        """The command line that repeats this run."""
        words = ["spml", "train", self.data]
        for item in fields(self):
            value = getattr(self, item.name)
            default = item.default_factory() if callable(item.default_factory) else item.default
            if item.name in ("data", "resume", "overwrite", "quiet") or value == default:
                continue
            flag = "--" + item.name.replace("_", "-")
            if isinstance(value, bool) and default is not None:
                words.append(flag if value else flag.replace("--", "--no-", 1))
            else:
                for one in value if isinstance(value, list) else [value]:
                    words += [flag, str(one)]
        return shlex.join(words)
