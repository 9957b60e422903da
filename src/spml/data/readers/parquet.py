"""Rows of Parquet files, and helpers for all Arrow files."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from spml.errors import DataError
from spml.files import sound

BATCH = 8192  # rows that are decoded at once
SUFFIXES = (".parquet", ".pq")


def arrow_errors(
    path: Path, problem: str = "not a sound Parquet file"
) -> AbstractContextManager[None]:
    """Turn errors of pyarrow and of the system about a file into a DataError that names it."""
    import pyarrow as pa

    errors = (pa.ArrowException, UnicodeDecodeError, MemoryError, OverflowError)
    return sound(path, errors, problem, "; write it again")


def is_text(kind: Any) -> bool:
    """Whether a column of this type holds strings, or only nulls."""
    from pyarrow import types

    plain = kind.value_type if types.is_dictionary(kind) else kind
    tests = (types.is_string, types.is_large_string, types.is_string_view, types.is_null)
    return any(test(plain) for test in tests)


def require_text(path: Path, name: str, kind: Any) -> None:
    """Raise DataError if the type of a column is not that of strings."""
    if not is_text(kind):
        raise DataError(f"{path}: column {name!r} holds {kind}; it must hold strings")


def parquet_header(path: Path) -> list[str]:
    """Return the names of a Parquet file's columns."""
    import pyarrow.parquet as pq

    with arrow_errors(path), path.open("rb") as stream:
        names: list[str] = pq.read_schema(stream).names
        return names


def parquet_rows(
    path: Path, columns: Collection[int], texts: Collection[int] = ()
) -> Iterator[tuple[int, list[Any]]]:
    """Yield number and cells of each row; nulls, NaN and the other columns are empty strings.

    `texts` are the columns that must hold strings.
    """
    import pyarrow.parquet as pq

    number = 0
    with arrow_errors(path), path.open("rb") as stream, pq.ParquetFile(stream) as file:
        header = file.schema_arrow.names
        for i in texts:
            require_text(path, header[i], file.schema_arrow.field(i).type)
        cells: list[Any] = [""] * len(header)
        for batch in file.iter_batches(BATCH, columns=[header[i] for i in columns]):
            values = [batch.column(header[i]).to_pylist() for i in columns]
            for row in zip(*values, strict=True):
                number += 1
                for i, value in zip(columns, row, strict=True):
                    cells[i] = "" if value is None or value != value else value
                yield number, cells
