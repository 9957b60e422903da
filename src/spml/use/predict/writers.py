"""Write predictions as they come: CSV, JSON lines, Parquet, or standard output."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, TextIO

import numpy as np
import numpy.typing as npt

from spml.data.names import OF_PREDICTIONS, text_cell
from spml.errors import UserError
from spml.files import replacing

Format = Literal["csv", "jsonl", "parquet"]
FORMATS: tuple[Format, ...] = ("csv", "jsonl", "parquet")
STANDARD = Path("-")  # standard output
ITEM, TAGS = OF_PREDICTIONS
GROUP = 1 << 22  # numbers per row group of a Parquet file: 16 MB


class Predicted(NamedTuple):
    """Rows of predictions: names, the tags of each, and probabilities (rows, classes) or none."""

    names: Sequence[str]
    tags: Sequence[Sequence[str]]
    probabilities: npt.NDArray[np.float32] | None


Write = Callable[[Predicted], None]


def format_of(out: Path, requested: str | None = None) -> Format:
    """Return the requested format, or that of the file's name; CSV on standard output."""
    by_name = "csv" if out == STANDARD else out.suffix.lower().removeprefix(".")
    kind = requested or by_name
    if kind not in FORMATS:
        kinds = ", ".join(f".{known}" for known in FORMATS)
        raise UserError(f"{out}: predictions are written as {kinds}; give such a name or --format")
    if kind == "parquet" and out == STANDARD:
        raise UserError(
            "Parquet cannot go to standard output; give --format csv or jsonl, or a file"
        )
    return kind


def columns(classes: Sequence[str], item: str = ITEM) -> list[str]:
    """Return the column names of classes: the class, or class:NAME if another column has it."""
    others = (item, *OF_PREDICTIONS)
    used, names = {*others, *classes}, []
    for name in classes:
        column = name
        while column in others or (column != name and column in used):
            column = f"class:{column}"
        used.add(column)
        names.append(column)
    return names


@contextmanager
def writing(
    out: Path,
    kind: Format,
    classes: Sequence[str],
    *,
    probabilities: bool = True,
    item: str = ITEM,
    unescaped: bool = False,
) -> Iterator[Write]:
    """Yield a function that writes rows; the file appears once the block ends without error.

    In CSV, an apostrophe precedes a cell that a spreadsheet would compute, unless `unescaped`.
    """
    names = columns(classes, item) if probabilities else []
    lines = partial(_lines, kind=kind, item=item, names=names, classes=classes, cell=text_cell)
    if unescaped:
        lines = partial(lines, cell=str)
    if kind == "parquet":
        with _parquet(out, item, names) as write:
            yield write
    elif out == STANDARD:
        yield lines(sys.stdout)
        sys.stdout.flush()
    else:
        with replacing(out) as beside, beside.open("w", newline="", encoding="utf-8") as file:
            yield lines(file)


def _lines(
    file: TextIO,
    kind: Format,
    item: str,
    names: Sequence[str],
    classes: Sequence[str],
    cell: Callable[[str], str],
) -> Write:
    if kind == "jsonl":
        return lambda rows: file.writelines(_json_lines(rows, item, classes))
    end = "\n" if file is sys.stdout else "\r\n"
    header = _Lines()  # with the line ends of csv, so that it quotes cells with a carriage return
    csv.writer(header).writerow([item, TAGS, *map(cell, names)])
    file.write(header[0].removesuffix("\r\n") + end)
    numbers = ",%.6f" * len(names) + end
    return lambda rows: file.writelines(_csv_lines(rows, numbers, cell))


def _csv_lines(rows: Predicted, numbers: str, cell: Callable[[str], str]) -> Iterator[str]:
    """Format all numbers of a line at once: half the GIL time of one cell at a time."""
    lines = _Lines()
    csv.writer(lines).writerows(
        [cell(_text(name)), cell("|".join(tags))]
        for name, tags in zip(rows.names, rows.tags, strict=True)
    )
    values: Iterable[tuple[float, ...]] = [()] * len(lines)
    if rows.probabilities is not None:
        values = map(tuple, rows.probabilities.tolist())
    for line, value in zip(lines, values, strict=True):
        yield line.removesuffix("\r\n") + numbers % value


class _Lines(list[str]):
    """A file for `csv` that collects its lines."""

    write = list.append


def _json_lines(rows: Predicted, item: str, classes: Sequence[str]) -> Iterator[str]:
    values = None
    if rows.probabilities is not None:
        values = rows.probabilities.astype(np.float64).round(6).tolist()
    for i, (name, tags) in enumerate(zip(rows.names, rows.tags, strict=True)):
        line: dict[str, object] = {item: _text(name), TAGS: list(tags)}
        if values is not None:
            line["probabilities"] = dict(zip(classes, values[i], strict=True))
        yield json.dumps(line, ensure_ascii=False) + "\n"


@contextmanager
def _parquet(out: Path, item: str, names: Sequence[str]) -> Iterator[Write]:
    """Collect rows into groups: one group per batch would make a large and slow file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    fields = [(name, pa.string()) for name in (item, TAGS)]
    fields += [(name, pa.float32()) for name in names]
    schema = pa.schema(fields)
    most = max(1, GROUP // (len(names) + len(OF_PREDICTIONS)))
    waiting: list[pa.Table] = []
    with replacing(out) as beside, pq.ParquetWriter(beside, schema) as file:

        def flush() -> None:
            if waiting:
                file.write_table(pa.concat_tables(waiting).combine_chunks())
                waiting.clear()

        def write(rows: Predicted) -> None:
            values: list[npt.NDArray[np.float32]] = []
            if rows.probabilities is not None:
                values = list(rows.probabilities.T.astype(np.float32))
            tags = ["|".join(one) for one in rows.tags]
            waiting.append(pa.table([list(map(_text, rows.names)), tags, *values], schema=schema))
            if sum(len(table) for table in waiting) >= most:
                flush()

        yield write
        flush()


def _text(name: str) -> str:
    """Return a file's name as text, with bytes that are not UTF-8 escaped."""
    return name.encode("utf-8", "backslashreplace").decode()
