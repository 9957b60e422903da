"""The files of a Hugging Face dataset folder: which split each belongs to, what they hold, and the names of labels."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spml.errors import DataError
from spml.files import opening

BATCH = 512  # rows decoded together: they may hold pictures
IMAGES, LABELS = ("image", "file_name"), ("label", "labels")
INFO = "dataset_info.json"
METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
SPLIT_NAMES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
}
SHARD = re.compile(r"(?P<split>.+?)(-\d+-of-\d+.*)?\.parquet")


@dataclass(frozen=True)
class Part:
    """A file of one split.

    Attributes:
        split: train, val or test.
        file: Arrow, Parquet, CSV or JSON lines.
        prefix: what the file's paths start with, seen from the dataset's folder.
        named: whether its name or folder says the split; otherwise a column `split` may.
    """

    split: str
    file: Path
    prefix: str = ""
    named: bool = True


def is_hub_folder(path: Path) -> bool:
    """Whether a folder is one that the library `datasets` writes or reads."""
    return path.is_dir() and (
        (path / "dataset_dict.json").is_file() or next(_found(path), None) is not None
    )


def parts_of(path: Path) -> list[Part]:
    """The files of a dataset's folder, in the order of splits."""
    listed = path / "dataset_dict.json"
    if listed.is_file():
        names = read_json(listed).get("splits")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise DataError(f"{listed}: no list of splits; save the dataset again")
        found = [Part(_split(path, name), file) for name in names for file in _arrow(path / name)]
    else:
        found = list(_found(path))
    if not found:
        raise DataError(f"{path}: no Arrow or Parquet files; save the dataset again")
    return sorted(found, key=lambda part: ("train", "val", "test").index(part.split))


def _found(path: Path) -> Iterator[Part]:
    """Arrow files, or else Parquet files, or else tables of pictures."""
    if arrow := _arrow(path):
        yield from (Part("train", file, named=False) for file in arrow)
        return
    plain = [
        file
        for file in _files(path, "*.parquet") + _files(path, "data/*.parquet")
        if file.name not in METADATA
    ]
    if plain:
        for file in plain:
            match = SHARD.fullmatch(file.name)
            yield (
                Part(_split(path, match["split"]), file)
                if match and len(plain) > 1
                else _alone(file, match)
            )
        return
    for name in METADATA:
        for file in [
            *_files(path, name),
            *(file for split in SPLIT_NAMES for file in _files(path / split, name)),
        ]:
            folder = file.parent.name
            inner = file.parent != path
            yield (
                Part(SPLIT_NAMES[folder], file, f"{folder}/")
                if inner
                else Part("train", file, named=False)
            )


def _alone(file: Path, match: re.Match[str] | None) -> Part:
    """A single file, whose name may be that of a split or anything."""
    known = SPLIT_NAMES.get(match["split"].lower()) if match else None
    return Part(known or "train", file, named=known is not None)


def _split(path: Path, name: str) -> str:
    if name.lower() not in SPLIT_NAMES:
        known = ", ".join(SPLIT_NAMES)
        raise DataError(
            f"{path}: split {name!r} is not known ({known}); rename it or remove its files"
        )
    return SPLIT_NAMES[name.lower()]


def _arrow(folder: Path) -> list[Path]:
    return _files(folder, "*.arrow")


def _files(folder: Path, pattern: str) -> list[Path]:
    return sorted(file for file in folder.glob(pattern) if file.is_file())


def read_json(path: Path) -> dict[str, Any]:
    """The object that a JSON file holds."""
    try:
        with opening(path):
            found = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}: no JSON ({error}); save the dataset again") from None
    if not isinstance(found, dict):
        raise DataError(f"{path}: no JSON object; save the dataset again")
    return found


def batches(file: Path) -> Iterator[Any]:
    """Record batches of a file; wrap it in `sound`."""
    import pyarrow as pa
    from pyarrow import csv, ipc
    from pyarrow import json as json_lines
    from pyarrow import parquet as pq

    if file.suffix == ".arrow":
        with pa.memory_map(str(file)) as source:
            start = source.read(6)
            source.seek(0)
            if start == b"ARROW1":  # the library writes streams; others write files
                reader = ipc.open_file(source)
                yield from (reader.get_batch(i) for i in range(reader.num_record_batches))
            else:
                yield from ipc.open_stream(source)
    elif file.suffix == ".parquet":
        with file.open("rb") as stream, pq.ParquetFile(stream) as table:
            yield from table.iter_batches(BATCH)
    else:
        table = (
            csv.read_csv(file, convert_options=_as_text(file))
            if file.suffix == ".csv"
            else json_lines.read_json(file)
        )
        yield from table.to_batches(BATCH)


def _as_text(file: Path) -> Any:
    """Options for a CSV file: its paths and names as they are written, so that 01 is not 1; numbers of names stay."""
    import pyarrow as pa
    from pyarrow import csv

    numbers = (file.parent / INFO).is_file()
    return csv.ConvertOptions(
        column_types={} if numbers else dict.fromkeys((*IMAGES, *LABELS), pa.string())
    )


def label_names(part: Part, schema: Any, column: str) -> list[str] | None:
    """The names of a ClassLabel column, or of a list of them; None for other columns."""
    try:
        features = (
            json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
            .get("info", {})
            .get("features")
        )
    except (ValueError, AttributeError, RecursionError):
        features = None
    info = part.file.parent / INFO
    if not isinstance(features, dict) and info.is_file():
        features = read_json(info).get("features")
    feature = features.get(column) if isinstance(features, dict) else None
    for _ in range(2):  # a list is [feature] or {"feature": feature}
        if isinstance(feature, list) and feature:
            feature = feature[0]
        elif isinstance(feature, dict) and "names" not in feature:
            feature = feature.get("feature")
    names = feature.get("names") if isinstance(feature, dict) else None
    return [str(name) for name in names] if isinstance(names, list) else None
