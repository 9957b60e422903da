"""Files of predictions, written as they come: CSV, JSON lines, Parquet, or standard output."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple, TextIO

import numpy as np
import numpy.typing as npt

from spml.data.names import OF_PREDICTIONS
from spml.errors import UserError
from spml.files import replacing

Format = Literal["csv", "jsonl", "parquet"]
FORMATS: tuple[Format, ...] = ("csv", "jsonl", "parquet")
STANDARD = Path("-")  # standard output
GROUP = 1 << 22  # numbers of a Parquet file's row group: 16 MB


class Predicted(NamedTuple):
    """Rows of predictions: names, the tags of each, and probabilities (rows, classes) or none."""

    names: Sequence[str]
    tags: Sequence[Sequence[str]]
    probabilities: npt.NDArray[np.float32] | None


Write = Callable[[Predicted], None]


def format_of(out: Path, given: str | None = None) -> Format:
    """The format that is asked for, or else that of the file's name; CSV on standard output."""
    named = given or ("csv" if out == STANDARD else out.suffix.lower().removeprefix("."))
    for known in FORMATS:
        if named == known:
            if known == "parquet" and out == STANDARD:
                raise UserError(
                    "Parquet cannot go to standard output; give --format csv or jsonl, or a file"
                )
            return known
    kinds = ", ".join(f".{known}" for known in FORMATS)
    raise UserError(f"{out}: predictions are written as {kinds}; give such a name or --format")


def columns(classes: Sequence[str]) -> list[str]:
    """Column names of the classes: their own, or class:NAME where that is the name of another column."""
    taken, found = {*OF_PREDICTIONS, *classes}, []
    for name in classes:
        column = name
        while column in OF_PREDICTIONS or (column != name and column in taken):
            column = f"class:{column}"
        taken.add(column)
        found.append(column)
    return found


@contextmanager
def writing(
    out: Path, kind: Format, classes: Sequence[str], *, probabilities: bool = True
) -> Iterator[Write]:
    """What takes rows as they come; a file is there when the block has ended well, and only then.

    Args:
        out: the file, or "-".
        kind: of the file.
        classes: of the model.
        probabilities: whether rows have them.
    """
    names = columns(classes) if probabilities else []
    if kind == "parquet":
        with _parquet(out, names) as write:
            yield write
    elif out == STANDARD:
        yield _lines(sys.stdout, kind, names, classes)
        sys.stdout.flush()
    else:
        with replacing(out) as beside, beside.open("w", newline="", encoding="utf-8") as file:
            yield _lines(file, kind, names, classes)


def _lines(file: TextIO, kind: Format, names: Sequence[str], classes: Sequence[str]) -> Write:
    if kind == "jsonl":
        return lambda rows: file.writelines(_json_lines(rows, classes))
    end = "\n" if file is sys.stdout else "\r\n"
    csv.writer(file, lineterminator=end).writerow([*OF_PREDICTIONS, *names])
    numbers = ",%.6f" * len(names) + end
    return lambda rows: file.writelines(_csv_lines(rows, numbers))


def _csv_lines(rows: Predicted, numbers: str) -> Iterator[str]:
    """One format for all numbers of a line takes half the time of a cell each, in which no picture can be decoded."""
    begun: list[str] = []
    writer = csv.writer(_Lines(begun))
    writer.writerows(
        [_text(name), "|".join(tags)] for name, tags in zip(rows.names, rows.tags, strict=True)
    )
    values = (
        [()] * len(begun) if rows.probabilities is None else map(tuple, rows.probabilities.tolist())
    )
    for line, value in zip(begun, values, strict=True):
        yield line.removesuffix("\r\n") + numbers % value


class _Lines(NamedTuple):
    """What csv writes to, where its lines are wanted as a list."""

    lines: list[str]

    def write(self, line: str) -> None:
        self.lines.append(line)


def _json_lines(rows: Predicted, classes: Sequence[str]) -> Iterator[str]:
    found = (
        None
        if rows.probabilities is None
        else rows.probabilities.astype(np.float64).round(6).tolist()
    )
    for i, (name, tags) in enumerate(zip(rows.names, rows.tags, strict=True)):
        line: dict[str, object] = {"image": _text(name), "tags": list(tags)}
        if found is not None:
            line["probabilities"] = dict(zip(classes, found[i], strict=True))
        yield json.dumps(line, ensure_ascii=False) + "\n"


@contextmanager
def _parquet(out: Path, names: Sequence[str]) -> Iterator[Write]:
    """Rows are collected to groups, as a group for each batch would make a large and slow file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema(
        [(n, pa.string()) for n in OF_PREDICTIONS] + [(n, pa.float32()) for n in names]
    )
    most = max(1, GROUP // (len(names) + len(OF_PREDICTIONS)))
    waiting: list[pa.Table] = []
    with replacing(out) as beside, pq.ParquetWriter(beside, schema) as file:

        def flush() -> None:
            if waiting:
                file.write_table(pa.concat_tables(waiting).combine_chunks())
                waiting.clear()

        def write(rows: Predicted) -> None:
            values = (
                [] if rows.probabilities is None else list(rows.probabilities.T.astype(np.float32))
            )
            tags = ["|".join(one) for one in rows.tags]
            waiting.append(pa.table([list(map(_text, rows.names)), tags, *values], schema=schema))
            if sum(len(table) for table in waiting) >= most:
                flush()

        yield write
        flush()


def _text(name: str) -> str:
    """A file's name as text; bytes of it that are no UTF-8 are written out."""
    return name.encode("utf-8", "backslashreplace").decode()
