"""Compare the `coco` reader on real pictures and lists with other ways to read the same labels.

python benchmarks/stage.py official STAGED --out DIR/22k --train 22000 --test 8000
python benchmarks/stage.py official STAGED --out DIR/whole
python benchmarks/coco_reader.py STAGED DIR           # writes results/coco-reader.json

The labels, draws and validation rows of the official files must equal those of a CSV file in the
order of the protocol and those that `observe` and `split` draw from an array. Every picture is
decoded.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from stage import COCO_CLASSES, COCO_FOLDERS, Entry, read_table

from spml.bench.record import as_text
from spml.data import Experiment, load, observe, split
from spml.data.images.decode import decode

LENGTHS: dict[str, dict[str, int | None]] = {
    "22k": {"train": 22_000, "test": 8_000},
    "whole": {"train": None, "test": None},
}
RESULT = Path(__file__).parent / "results" / "coco-reader.json"
Labels = npt.NDArray[np.int8]


def digest(labels: Labels) -> str:
    return hashlib.sha256((labels == 1).astype(np.uint8).tobytes()).hexdigest()


def in_order(entries: list[Entry], part: str) -> list[Entry]:
    """Return the entries of a split in the order of the protocol: image ids as strings."""
    return sorted(
        (entry for entry in entries if entry[2] == part), key=lambda entry: str(int(entry[0]))
    )


def direct(entries: list[Entry]) -> Labels:
    """Return complete labels without any reader."""
    labels = np.full((len(entries), len(COCO_CLASSES)), -1, np.int8)
    for row, (_, names, _) in enumerate(entries):
        labels[row, [COCO_CLASSES.index(name) for name in names]] = 1
    return labels


def from_csv(staged: Path, lists: dict[str, list[Entry]]) -> Experiment:
    """Read the same lists from a CSV file with one column for each class."""
    with tempfile.NamedTemporaryFile(
        "w", dir=staged, prefix="wide", suffix=".csv", newline=""
    ) as file:
        table = csv.writer(file)
        table.writerow(["image", *COCO_CLASSES, "split"])
        for part, entries in lists.items():
            for (name, _, _), row in zip(entries, direct(entries), strict=True):
                table.writerow([f"pictures/{name}.jpg", *(row == 1).astype(int), part])
        file.flush()
        return load(Path(file.name), labels="complete")


def examine(staged: Path, root: Path, lengths: dict[str, int | None]) -> dict[str, Any]:
    """Compare the three ways, and return counts and hashes; stop at the first difference."""
    entries = read_table(staged, lengths)
    lists = {part: in_order(entries, part) for part in COCO_FOLDERS}
    official, table = load("coco", root), from_csv(staged, lists)
    arrays = {part: direct(own) for part, own in lists.items()}
    train_rows, val_rows = split(len(arrays["train"]))
    drawn = observe(arrays["train"])
    for experiment in (official, table):
        assert experiment.complete is not None
        assert experiment.test is not None
        assert list(experiment.classes) == COCO_CLASSES
        assert np.array_equal(experiment.complete.labels, arrays["train"])
        assert np.array_equal(experiment.test.labels, arrays["test"])
        assert np.array_equal(experiment.observed.labels, drawn)
        assert np.array_equal(experiment.train_rows, train_rows)
        assert np.array_equal(experiment.val_rows, val_rows)
    items = [*official.observed.items, *official.test.items]
    names = [entry[0] for own in lists.values() for entry in own]
    assert [Path(item).stem[-12:] for item in items] == names
    pixels = hashlib.sha256()
    for item in items:
        pixels.update(decode(root / item, 256).numpy().tobytes())
    return {
        "pictures": {"train": len(train_rows), "val": len(val_rows), "test": len(lists["test"])},
        "positives": {
            part: round(float((labels == 1).sum(1).mean()), 4) for part, labels in arrays.items()
        },
        "one_positive": {
            part: round(float(((labels == 1).sum(1) == 1).mean()), 4)
            for part, labels in arrays.items()
        },
        "classes_observed": {
            "least": int((drawn[train_rows] == 1).sum(0).min()),
            "most": int((drawn[train_rows] == 1).sum(0).max()),
        },
        "labels_sha256": {part: digest(labels) for part, labels in arrays.items()},
        "observed_sha256": {"train": digest(drawn), "test": digest(observe(arrays["test"]))},
        "pixels_sha256": pixels.hexdigest(),
        "equal": ["coco reader", "CSV file", "observe and split on an array"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("staged", type=Path)
    parser.add_argument("roots", type=Path, help="folder that holds 22k and whole")
    options = parser.parse_args()
    known = {
        name: examine(options.staged, options.roots / name, lengths)
        for name, lengths in LENGTHS.items()
    }
    RESULT.write_text(as_text(known, *known), encoding="utf-8")


if __name__ == "__main__":
    main()
