"""`spml train`."""

from __future__ import annotations

import shlex
from contextlib import nullcontext
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import tyro

from spml.cli import DataOptions, log, notes_on
from spml.cli.set_options import parse_options, print_options
from spml.runs.settings import Settings

# options that do not belong to the command that repeats a run
OF_THIS_CALL = ("data", "resume", "overwrite", "accept_changed_data", "decode_memory", "quiet")


@dataclass(frozen=True, kw_only=True)
class Train(DataOptions, Settings):
    """Train a classifier from one label per item.

    Example: spml train photos.csv --method gr --backbone resnet50 --out runs/photos
    """

    order: ClassVar[int] = 50

    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
    """digits, digits-many, voc, coco, nuswide, cub, or a path:
    a table (CSV, TSV, Parquet), a folder, .npz or .npy."""
    set: Annotated[list[str], tyro.conf.UseAppendAction] = field(default_factory=list)
    """Option of the method as NAME=VALUE, e.g. q3=1.5 or w=0,10; `--set help` lists them."""
    out: Path | None = None
    """The run folder. Default: runs/DATA-METHOD-SEED."""
    resume: bool = False
    """Resume the run in --out from its last checkpoint."""
    overwrite: bool = False
    """Replace the run in --out."""
    accept_changed_data: bool = False
    """Resume although pictures or features have changed since; the run records it."""
    logger: Literal["tensorboard", "csv", "wandb", "mlflow"] | None = None
    """Also send curves and figures to a tracker.
    tensorboard and csv write to the run folder; wandb and mlflow also store report and model."""
    tensorboard: bool = False
    """Another name of --logger tensorboard."""
    quiet: bool = False
    """Print only errors."""

    def run(self) -> None:
        """Load the data, train, and write the report."""
        from spml.errors import Interruption, UserError
        from spml.runs.settings import AUTO
        from spml.train.resolve import default_method, resolve

        method = self.method or default_method(self.data)
        if "help" in self.set:
            print_options("gr" if method == AUTO else method)
            return
        if self.set and method == AUTO:
            raise UserError("--set needs --method: a race sets the options of its candidates")
        from spml.cli.output.resources import resource_lines, work_of
        from spml.machine import started_first
        from spml.report.run_page import write_report
        from spml.runs.run import Run
        from spml.train.fitting import fit
        from spml.train.loggers import RunLogger

        if self.tensorboard and self.logger not in (None, "tensorboard"):
            raise UserError("--tensorboard is --logger tensorboard; give one of them")
        if self.resume and self.overwrite:
            raise UserError(
                "--resume continues a run and --overwrite replaces it; give one of them"
            )
        experiment = self.load(self.data, self.observe_seed, self.split_seed)
        settings = Settings(**{item.name: getattr(self, item.name) for item in fields(Settings)})
        if not self.quiet and started_first():
            for text in notes_on(experiment, own_names=self.classes is None):
                log(text)
            if not self.resume and (work := work_of(experiment, resolve(settings, experiment))):
                for text in resource_lines(work):
                    log(text)
        out = (
            self.out
            or Path("runs") / f"{Path(self.data).stem}-{method.replace(':', '.')}-{self.seed}"
        )
        named = "tensorboard" if self.tensorboard else self.logger
        with nullcontext() if named is None else RunLogger(named) as logger:
            try:
                fit(
                    experiment,
                    settings,
                    out,
                    options=parse_options(method, self.set) if self.set else {},
                    resume=self.resume,
                    overwrite=self.overwrite,
                    accept_changed_data=self.accept_changed_data,
                    quiet=self.quiet,
                    logger=logger,
                    extra_config={**self.sources(), "command": self.command()},
                )
            except Interruption:
                raise KeyboardInterrupt(f"resume with: {self.command()} --resume") from None
            if started_first():
                write_report([out], Run(out).report, data=experiment)
                if logger is not None:
                    logger.attach()

    def command(self) -> str:
        """Return the command line that repeats this run."""
        words = ["spml", "train", self.data]
        for item in fields(self):
            value = getattr(self, item.name)
            default = item.default_factory() if callable(item.default_factory) else item.default
            if item.name in OF_THIS_CALL or value == default:
                continue
            flag = "--" + item.name.replace("_", "-")
            if isinstance(value, bool) and default is not None:
                words.append(flag if value else flag.replace("--", "--no-", 1))
            else:
                for one in value if isinstance(value, list) else [value]:
                    words += [flag, str(one)]
        return shlex.join(words)
