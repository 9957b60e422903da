"""Probabilities and tags for new pictures or feature vectors, written as they come."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt
import torch

from spml.atomic import replacing
from spml.data import DataError, LabelTable
from spml.data.feed import Feed, OnError
from spml.data.pictures import EXTENSIONS
from spml.data.text import lines
from spml.errors import UserError
from spml.model import ModelInfo, load_model

Probabilities = npt.NDArray[np.float32]
TABLES = (".csv", ".tsv", ".txt", ".parquet", ".npz")


def predict(
    run: Path,
    inputs: Sequence[Path],
    out: Path,
    *,
    batch_size: int = 32,
    on_error: OnError | None = None,
    advance: Callable[[int, int], None] | None = None,
) -> int:
    """Write `image, tags` and one probability column per class for every input; gives how many were written.

    Args:
        run: a run folder or its `best`.
        inputs: pictures, folders of pictures, tables with an `image` column, or .npz files with `x`.
        out: .csv or .parquet.
        batch_size: items at a time.
        on_error: told of each picture that cannot be read; without it the first one ends the work.
        advance: told how many items are done, and of how many.
    """
    if batch_size < 1:
        raise UserError(f"--batch-size must be above 0, not {batch_size}")
    model, info = load_model(run)
    items = gather(inputs, info)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model.to(device)
    calibrate = info.calibrate().to(device)
    size = info.preprocessing["size"]
    feed = Feed(items, size, upright=bool(info.preprocessing["upright"]))
    written = done = 0
    with _writer(out, info) as write, torch.inference_mode():
        for x, rows in feed.in_order(batch_size, on_error):
            probabilities = calibrate(model(x.to(device))).sigmoid().cpu().numpy()
            if not np.isfinite(probabilities).all():
                raise UserError(f"{run}: the model gives values that are not numbers; its weights are damaged")
            write([items.items[row] for row in rows], probabilities)
            written += len(rows)
            done = int(rows[-1]) + 1
            if advance is not None:
                advance(done, len(items))
        if not written:
            raise UserError(f"none of {len(items)} pictures could be read; nothing was written")
    return written


def tags(probabilities: Probabilities, info: ModelInfo) -> list[str]:
    """Names of the classes at or above their thresholds, joined by `|`, for each row."""
    chosen = probabilities >= np.asarray(info.thresholds, np.float32)
    return ["|".join(name for name, on in zip(info.classes, row, strict=True) if on) for row in chosen]


def gather(inputs: Sequence[Path], info: ModelInfo) -> LabelTable:
    """All inputs as one table without labels, in the order given; folders are walked in sorted order."""
    features = info.preprocessing["kind"] == "features"
    found: list[str] = []
    arrays: list[npt.NDArray[Any]] = []
    for path in inputs:
        if path.is_dir():
            inside = [str(p) for p in sorted(path.rglob("*")) if p.suffix.lower() in EXTENSIONS and p.is_file()]
            if not inside:
                raise UserError(f"{path}: no pictures in this folder ({', '.join(sorted(EXTENSIONS))})")
            found += inside
        elif path.suffix.lower() == ".npz":
            names, x = _read_arrays(path)
            found += names
            arrays.append(x)
        elif path.suffix.lower() in TABLES:
            found += _read_images(path)
        else:
            found.append(str(path))
    if arrays and sum(map(len, arrays)) != len(found):
        raise UserError("arrays and picture files cannot be predicted together; give them one after another")
    if features != bool(arrays and arrays[0].ndim == 2):
        wanted = f".npz files with x of {info.preprocessing['features']} features" if features else "pictures"
        raise UserError(f"this model takes {wanted}; the inputs are something else")
    if arrays and features and arrays[0].shape[1] != info.preprocessing["features"]:
        raise UserError(f"x has {arrays[0].shape[1]} features, the model takes {info.preprocessing['features']}")
    if not found:
        raise UserError("nothing to predict; give pictures, folders or a table")
    labels = np.zeros((len(found), 1), np.int8)
    return LabelTable(found, ["any"], labels, x=np.concatenate(arrays) if arrays else None)


def _read_arrays(path: Path) -> tuple[list[str], npt.NDArray[Any]]:
    try:
        with np.load(path, allow_pickle=False) as file:
            x = file["x"]
            names = file["items"].tolist() if "items" in file else [f"{path.stem}/{i}" for i in range(len(x))]
    except (OSError, ValueError, KeyError, TypeError, BadZipFile) as error:
        raise DataError(f"{path}: not arrays with an x ({' '.join(str(error).split())})") from error
    if x.ndim == 4 and x.shape[-1] == 3 and x.shape[1] != 3:
        x = x.transpose(0, 3, 1, 2)
    if x.ndim not in (2, 4) or (x.ndim == 4 and (x.shape[1] != 3 or x.dtype != np.uint8)):
        raise DataError(f"{path}: x has shape {x.shape}; give features (N, D) or uint8 pictures (N, 3, H, W)")
    if len(names) != len(x):
        raise DataError(f"{path}: x has {len(x)} rows, items {len(names)}")
    return names, x


def _read_images(path: Path) -> list[str]:
    """Paths in the `image` column, relative to the table's folder; other columns do not matter."""
    if path.suffix.lower() == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            found = pq.read_table(path, columns=["image"]).column("image").to_pylist()
        except (OSError, KeyError, pa.ArrowException) as error:
            raise DataError(f"{path}: no column 'image' ({' '.join(str(error).split())[:150]})") from error
    else:
        text = list(lines(path))
        separator = max(",;\t", key=(text[0] if text else "").count)
        rows = csv.DictReader(text, delimiter=separator)
        if "image" not in (rows.fieldnames or ()):
            raise DataError(f"{path}, line 1: no column 'image'; name the one of the paths 'image'")
        found = [row["image"] for row in rows]
    return [str(path.parent / image) for image in dict.fromkeys(found) if image]


@contextmanager
def _writer(out: Path, info: ModelInfo) -> Iterator[Callable[[list[str], Probabilities], None]]:
    if out.suffix.lower() == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        names = ["image", "tags", *info.classes]
        schema = pa.schema([(n, pa.string()) for n in names[:2]] + [(n, pa.float32()) for n in names[2:]])
        with replacing(out) as beside, pq.ParquetWriter(beside, schema) as file:
            yield lambda images, p: file.write_table(
                pa.table([images, tags(p, info), *p.T.astype(np.float32)], schema=schema)
            )
        return
    if out.suffix.lower() != ".csv":
        raise UserError(f"{out}: predictions are written as .csv or .parquet")
    with replacing(out) as beside, beside.open("w", newline="", encoding="utf-8") as text:
        rows = csv.writer(text)
        rows.writerow(["image", "tags", *info.classes])
        yield lambda images, p: rows.writerows(
            [image, names, *(f"{value:.6f}" for value in row)]
            for image, names, row in zip(images, tags(p, info), p, strict=True)
        )
