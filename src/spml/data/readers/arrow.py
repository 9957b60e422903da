"""What every reader of Arrow and Parquet files needs: errors that name the file, and which columns hold text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from spml.errors import DataError
from spml.files import opening


@contextmanager
def sound(path: Path, problem: str = "not a sound Parquet file") -> Iterator[None]:
    """Turn what pyarrow and the operating system say of a file into a DataError that names it."""
    import pyarrow as pa

    try:
        with opening(path):
            yield
    except (pa.ArrowException, UnicodeDecodeError, MemoryError, OverflowError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{path}: {problem} ({reason}); write it again") from None


def is_text(kind: Any) -> bool:
    """Whether a column of this type holds strings, or nothing at all."""
    from pyarrow import types

    plain = kind.value_type if types.is_dictionary(kind) else kind
    return any(
        test(plain)
        for test in (types.is_string, types.is_large_string, types.is_string_view, types.is_null)
    )


def inner_type(kind: Any) -> Any:
    """The type of a column's values, those in its lists where it holds lists."""
    from pyarrow import types

    kind = kind.value_type if types.is_list(kind) or types.is_large_list(kind) else kind
    return kind.value_type if types.is_dictionary(kind) else kind
