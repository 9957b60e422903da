"""`spml predict`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import tyro

from spml.cli import DecodeOptions, LeftOut, ModelOptions, log
from spml.errors import UserError
from spml.files import refuse_existing


@dataclass(frozen=True, kw_only=True)
class Predict(ModelOptions, DecodeOptions):
    """Write probabilities and tags of pictures, folders or tables.

    Example: spml predict runs/photos new-photos/ --out tags.csv --threshold dog=0.3
    """

    order: ClassVar[int] = 90

    inputs: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="INPUT...")]
    """Pictures, folders, CSV or Parquet files with an image column or features, arrays, or - for
    paths on standard input."""
    out: Path = Path("predictions.csv")
    """File to write: .csv, .jsonl or .parquet; - is standard output."""
    format: Literal["csv", "jsonl", "parquet"] | None = None
    """Format of the output. Default: by the name of --out; csv on standard output."""
    overwrite: bool = False
    """Replace the output file if it exists."""
    threshold: Annotated[list[str], tyro.conf.UseAppendAction] = field(default_factory=list)
    """Least probability of a tag: 0.3, NAME=0.3 or FILE.json. Default: the model's thresholds."""
    top_k: int | None = None
    """Tag the N most probable classes, instead of thresholds."""
    at_least: int = 0
    """Tag at least the N most probable classes. They count even below their thresholds."""
    probabilities: bool = True
    """Write the probability of every class."""
    raw: bool = False
    """Write the model's own probabilities, without calibration."""
    unescaped: bool = False
    """Put no apostrophe before CSV cells. By default before those that begin with = + - @, so that
    spreadsheets do not compute them."""
    classes: str | None = None
    """Classes that the model must have, in order. A file with one name a line, or names joined by
    commas."""
    image_column: str | None = None
    """Column of a table's paths, or names of rows. Default: image."""
    features: str | None = None
    """Columns of features in a CSV. Default: those of training."""
    null: Annotated[bool, tyro.conf.arg(aliases=["-0"])] = False
    """Paths on standard input end in NUL, as of find -print0."""
    batch_size: int | None = None
    """Items per batch. Default: 64 on a GPU, 32 on a CPU."""
    threads: int | None = None
    """Decoding threads. Default: the number of cores (on a GPU two less), at most eight."""

    def run(self) -> None:
        """Write predictions and report unreadable inputs."""
        from spml.cli.output.progress import bar
        from spml.data.readers.columns import Columns
        from spml.use.predict.predict import Options, predict
        from spml.use.predict.writers import STANDARD

        if self.out != STANDARD and not self.overwrite:
            refuse_existing(self.out, "give --overwrite or another --out")
        if self.out != STANDARD and any(_same_file(self.out, one) for one in self.inputs):
            raise UserError(
                f"--out {self.out} is one of the inputs and would be replaced; give another --out"
            )
        run = self.model()
        options = Options(
            self.batch_size,
            self.threads,
            self.threshold,
            self.top_k,
            self.at_least,
            self.probabilities,
            self.raw,
            self.format,
            self.classes,
            self.null,
            Columns(image=self.image_column, features=self.features),
            self.unescaped,
        )
        left_out = LeftOut()
        with bar("predicting") as advance:
            written = predict(
                run,
                self.inputs,
                self.out,
                options,
                on_error=left_out,
                note=log,
                advance=advance,
            )
        if self.out != STANDARD:
            print(f"{written:,} written to {self.out}")
        left_out.check(f"of {written + left_out.count:,} inputs ")


def _same_file(out: Path, one: str) -> bool:
    try:
        return out.samefile(one)
    except (OSError, ValueError):  # one of them does not exist
        return False
