"""Hugging Face dataset folders, read without the library `datasets`.

A folder is saved to disk, downloaded from the hub, or holds pictures with a metadata file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spml.data.readers.builder import Builder, Reading
from spml.data.readers.parquet import arrow_errors, is_text, require_text
from spml.data.readers.tabular import item_of, split_of
from spml.data.table import SPLITS, LabelTable
from spml.errors import DataError
from spml.files import read_json

BATCH = 512  # rows that are decoded at once: they may hold pictures
IMAGES, LABELS, SPLIT = ("image", "file_name"), ("label", "labels"), "split"  # columns
INFO = "dataset_info.json"
AGAIN = "save the dataset again"  # remedy for damaged files
METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
SPLIT_NAMES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
}
SHARD = re.compile(r"(?P<split>.*?)(-\d+-of-\d+.*)?\.parquet")

Store = Callable[[str, int, bytes, str], str]  # split, row, bytes and path of a picture -> its item


@dataclass(frozen=True)
class Part:
    """A file of one split."""

    split: str
    file: Path
    prefix: str = ""  # makes the file's paths relative to the dataset's folder
    named: bool = True  # a file or folder name gives the split; if not, a column `split` does


def read_hub_folder(path: Path, root: Path | None, reading: Reading) -> dict[str, LabelTable]:
    """Read a dataset's folder: paths of pictures, and names, lists of names, or class labels.

    Without a class list, classes are in the dataset's order if it lists them, else sorted. Rows are
    counted over all files.
    """
    builder = Builder(path, reading, root or path, "row")
    listed = fill(builder)
    return builder.tables(sort_classes=not listed)


def fill(builder: Builder, store: Store | None = None) -> bool:
    """Add the rows of a dataset's folder; return whether it lists its classes.

    `store` saves a picture whose bytes are in the files. If None, such a picture is a DataError.
    """
    from pyarrow import types

    number, listed = 0, False
    for part in sorted(_parts(builder.source), key=lambda part: SPLITS.index(part.split)):
        with arrow_errors(part.file, "cannot be read"):
            for batch in _batches(part.file):
                batch.validate(full=True)  # pyarrow does not check a damaged Arrow file otherwise
                image = _column(part, batch, IMAGES, "pictures")
                if not types.is_struct(kind := batch.column(image).type):
                    require_text(part.file, image, kind)
                pictures = batch.column(image).to_pylist()
                label = _column(part, batch, LABELS, "labels")
                names = _label_names(part, batch.schema, label)
                if names is not None and not listed and builder.classes is None:
                    listed = True
                    for name in filter(None, map(str.strip, names)):
                        builder.column(name, 0)
                if store is None:
                    _refuse_stored(builder.source, pictures)
                cells, splits = batch.column(label).to_pylist(), _splits(part, batch)
                for picture, cell, written in zip(pictures, cells, splits, strict=True):
                    number += 1
                    with builder.record():
                        split = split_of(builder, number, written)
                        item = item_of(builder, number, _item(part, split, number, picture, store))
                        row = builder.row(item, number, split)
                        builder.names(row, _names(builder, number, cell, names), 1, number)
    return listed


def is_hub_folder(path: Path) -> bool:
    """Whether the library `datasets` writes or reads such a folder."""
    return path.is_dir() and next(_parts(path), None) is not None


def _parts(path: Path) -> Iterator[Part]:
    """Yield Arrow files, or else Parquet files, or else metadata files of pictures."""
    if (path / "dataset_dict.json").is_file():
        for file in _files(path, "*/*.arrow"):
            yield Part(_split(path, file.parent.name), file)
        return
    if arrow := _files(path, "*.arrow"):
        yield from (Part("train", file, named=False) for file in arrow)
        return
    files = _files(path, "*.parquet") + _files(path, "data/*.parquet")
    shards = [file for file in files if file.name not in METADATA]
    for file in shards:
        name = SHARD.fullmatch(file.name)["split"]  # type: ignore[index]  # any name matches
        if len(shards) > 1 or name.lower() in SPLIT_NAMES:
            yield Part(_split(path, name), file)
        else:  # a single file may have any name
            yield Part("train", file, named=False)
    if shards:
        return
    for name in METADATA:
        yield from (Part("train", file, named=False) for file in _files(path, name))
        for split in SPLIT_NAMES:
            for file in _files(path / split, name):
                yield Part(SPLIT_NAMES[split], file, f"{split}/")


def _split(path: Path, name: str) -> str:
    if name.lower() not in SPLIT_NAMES:
        known = ", ".join(SPLIT_NAMES)
        raise DataError(
            f"{path}: split {name!r} is not known ({known}); rename it or remove its files"
        )
    return SPLIT_NAMES[name.lower()]


def _files(folder: Path, pattern: str) -> list[Path]:
    return sorted(file for file in folder.glob(pattern) if file.is_file())


def _batches(file: Path) -> Iterator[Any]:
    """Yield the record batches of a file; the caller wraps it in `arrow_errors`."""
    import pyarrow as pa
    from pyarrow import csv, ipc
    from pyarrow import json as json_lines
    from pyarrow import parquet as pq

    if file.suffix == ".arrow":
        with pa.memory_map(str(file)) as source:
            yield from ipc.open_stream(source)
    elif file.suffix == ".parquet":
        with file.open("rb") as stream, pq.ParquetFile(stream) as table:
            yield from table.iter_batches(BATCH)
    elif file.suffix == ".csv":
        # Text, so that 01 is not 1, unless the labels are numbers of listed classes.
        texts = () if (file.parent / INFO).is_file() else (*IMAGES, *LABELS)
        options = csv.ConvertOptions(column_types=dict.fromkeys(texts, pa.string()))
        yield from csv.read_csv(file, convert_options=options).to_batches(BATCH)
    else:
        yield from json_lines.read_json(file).to_batches(BATCH)


def _label_names(part: Part, schema: Any, column: str) -> list[str] | None:
    """Return the names of a ClassLabel column, or of a list of them; None for other columns."""
    try:
        stored = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        features = stored.get("info", {}).get("features")
    except (ValueError, AttributeError, RecursionError):
        features = None
    info = part.file.parent / INFO
    if not isinstance(features, dict) and info.is_file():
        features = read_json(info, AGAIN).get("features")
    feature = features.get(column) if isinstance(features, dict) else None
    for _ in range(2):  # a list is [feature] or {"feature": feature}
        if isinstance(feature, list) and feature:
            feature = feature[0]
        elif isinstance(feature, dict) and "names" not in feature:
            feature = feature.get("feature")
    names = feature.get("names") if isinstance(feature, dict) else None
    return [str(name) for name in names] if isinstance(names, list) else None


def _column(part: Part, batch: Any, wanted: tuple[str, ...], what: str) -> str:
    names = [name for name in wanted if batch.schema.names.count(name) == 1]
    if not names:
        listed = ", ".join(map(repr, batch.schema.names))
        raise DataError(
            f"{part.file}: the columns are {listed}; rename the column of {what} to {wanted[0]!r}"
        )
    return names[0]


def _refuse_stored(source: Path, pictures: list[Any]) -> None:
    """Raise DataError if the files hold pictures instead of their paths."""
    if any(isinstance(one, dict) and one.get("bytes") is not None for one in pictures):
        command = f"python -m spml.data.readers.hub_export {source} OUT"
        raise DataError(
            f"{source}: the pictures are inside its files; write them out with "
            f"`{command}`, then give OUT/labels.csv"
        )


def _splits(part: Part, batch: Any) -> list[str]:
    """Return the split of each row, from a column `split` unless the file's name decides."""
    if part.named or batch.schema.names.count(SPLIT) != 1 or not is_text(batch.column(SPLIT).type):
        return [part.split] * len(batch)
    written = [str(cell or part.split).strip() for cell in batch.column(SPLIT).to_pylist()]
    return [SPLIT_NAMES.get(split.lower(), split) for split in written]


def _item(part: Part, split: str, number: int, picture: Any, store: Store | None) -> str:
    """Return the path of a picture, relative to the dataset's folder."""
    if isinstance(picture, dict):
        path, data = picture.get("path") or "", picture.get("bytes")
        return path if data is None or store is None else store(split, number, data, path)
    return f"{part.prefix}{picture}" if picture else ""


def _names(builder: Builder, number: int, cell: Any, names: list[str] | None) -> Any:
    """Return a cell with names for class numbers; -1 stands for no label."""
    if names is None or isinstance(cell, str):
        return cell
    labels = list(cell) if isinstance(cell, list) else [cell]
    for i, one in enumerate(labels):
        if isinstance(one, int):
            if not -1 <= one < len(names):
                raise builder.error(
                    number, f"label {one}, but there are {len(names)} names; save the dataset again"
                )
            labels[i] = names[one] if one >= 0 else None
    return labels
