"""`check`: report every problem of a data set at once."""

from __future__ import annotations

import hashlib
import stat
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import reduce
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from spml.data.check.problems import Findings, Place, Problem
from spml.data.experiment import train_list
from spml.data.names import doubtful_names, near_duplicates
from spml.data.observation import draw
from spml.data.readers.builder import Kind
from spml.data.table import SPLITS, Labels, LabelTable, SparseLabels, concatenate
from spml.errors import DataError
from spml.machine import decoders

Counts = npt.NDArray[np.int64]
Advance = Callable[[str, int, int], None]
Out = TypeVar("Out")
Copies = tuple[Place, ...]  # two or more rows with the same picture
MAX_NAMES = 5  # classes that one message lists
WINDOW = 512  # files that are queued for the threads at once


def check(
    tables: dict[str, LabelTable],
    *,
    unread: Iterable[DataError] = (),
    labels: Kind | None = None,
    pictures: bool = True,
    size: int | None = None,
    min_positives: int = 5,
    advance: Advance | None = None,
) -> Findings:
    """Return the problems of tables by split, and which of their pictures are the same.

    Pictures in arrays are compared, and files also located and, with `pictures`, decoded at `size`.
    `unread` are the invalid records that `read` reported, `labels` the kind that it used, as the
    fill value of arrays does not show it.
    """
    files = {split: table for split, table in tables.items() if table.x is None}
    broken, copies = _inspect_files(files, pictures, size, advance)
    copies += _inspect_arrays(tables)
    problems = [*unread_problems(unread), *broken]
    for group in copies:
        problems += _same_pictures(tables, group)
    if labels is None:
        labels = "complete" if next(iter(tables.values())).sparse.fill == -1 else "observed"
    problems += untrainable(tables, complete=labels == "complete")
    problems += _rare(tables, min_positives)
    problems += _names_problems(tables)
    for part in (part for part in SPLITS if part in tables):
        table = tables[part]
        for row in np.flatnonzero(positives_per_row(table.sparse) == 0).tolist():
            text = f"{table.where(row)}{table.items[row]!r}"
            problems.append(Problem("unlabelled", text, part, row))
    return Findings(problems, copies)


def unread_problems(unread: Iterable[DataError]) -> list[Problem]:
    """Return the problems of records that `read` reported."""
    return [Problem("record", str(error)) for error in unread]


def _inspect_files(
    tables: dict[str, LabelTable], decoded: bool, size: int | None, advance: Advance | None
) -> tuple[list[Problem], list[Copies]]:
    """Return missing and unreadable pictures, and groups of rows with the same bytes, in order."""
    places = [
        Place(split, row)
        for split in SPLITS
        if split in tables
        for row in range(len(tables[split]))
    ]
    broken: dict[Place, Problem] = {}
    lengths: dict[Place, int] = {}

    def refuse(place: Place, kind: str, text: str) -> None:
        broken[place] = Problem(kind, f"{tables[place.split].where(place.row)}{text}", *place)

    def path(place: Place) -> Path:
        return tables[place.split].file(place.row)

    folders: dict[Path, dict[str, str]] = {}
    for place, length in _threaded(
        "looking for files", lambda at: _length(path(at)), places, advance
    ):
        if isinstance(length, int):
            lengths[place] = length
        else:
            kind, text = length
            hint = _similar_file(path(place), folders) if kind == "missing" else ""
            refuse(place, kind, text + hint)
    shared = {length for length, count in Counter(lengths.values()).items() if count > 1}
    to_read = [place for place, length in lengths.items() if decoded or length in shared]
    what = "decoding pictures" if decoded else "comparing files"
    same: dict[str, list[Place]] = defaultdict(list)
    for place, (error, digest) in _threaded(
        what, lambda at: _contents(path(at), decoded, size, lengths[at] in shared), to_read, advance
    ):
        if error:
            refuse(place, "unreadable", error)
        elif digest:
            same[digest].append(place)
    ordered = [broken[place] for place in places if place in broken]
    return ordered, [tuple(group) for group in same.values() if len(group) > 1]


def _inspect_arrays(tables: dict[str, LabelTable]) -> list[Copies]:
    """Return the rows of equal pictures in arrays; features may be equal by chance."""
    same: dict[bytes, list[Place]] = defaultdict(list)
    for split in SPLITS:
        x = tables[split].x if split in tables else None
        if x is not None and x.ndim == 4:
            for row, picture in enumerate(x):
                same[hashlib.sha256(picture.tobytes()).digest()].append(Place(split, row))
    return [tuple(group) for group in same.values() if len(group) > 1]


def _threaded(
    what: str, work: Callable[[Place], Out], places: Sequence[Place], advance: Advance | None
) -> Iterator[tuple[Place, Out]]:
    """Yield each place with the result of its work, in order, from threads."""
    with ThreadPoolExecutor(decoders()) as pool:
        for start in range(0, len(places), WINDOW):
            window = places[start : start + WINDOW]
            results = zip(window, pool.map(work, window), strict=True)
            for done, (place, out) in enumerate(results, start + 1):
                yield place, out
                if advance:
                    advance(what, done, len(places))


def _length(path: Path) -> int | tuple[str, str]:
    """Return the bytes of a file, or the kind of problem and its description."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return "missing", f"{path}: no such file"
    except (OSError, ValueError) as error:
        return "unreadable", f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})"
    if not stat.S_ISREG(status.st_mode):  # reading a pipe would block
        return "unreadable", f"{path}: a folder, pipe or device, not a picture"
    return status.st_size or ("unreadable", f"{path}: the file is empty")


def _similar_file(path: Path, folders: dict[Path, dict[str, str]]) -> str:
    """Return `; there is 'A.JPG'` if a file differs only by case or composed accents, else ""."""
    if path.parent not in folders:
        folders[path.parent] = {}
        with suppress(OSError, ValueError):
            names = [file.name for file in path.parent.iterdir()]
            folders[path.parent] = {_folded(name): name for name in names}
    other = folders[path.parent].get(_folded(path.name))
    return f"; there is {other!r}" if other else ""


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def _contents(
    path: Path, decoded: bool, size: int | None, compared: bool
) -> tuple[str | None, str | None]:
    """Return why a picture cannot be decoded, and the hash of its bytes if it is compared."""
    try:
        if decoded:
            from spml.data.images.decode import decode

            decode(path, size)
        if not compared:
            return None, None
        with path.open("rb") as file:
            return None, hashlib.file_digest(file, "sha256").hexdigest()
    except DataError as error:
        return str(error), None
    except OSError as error:
        return f"{path}: cannot be read ({error.strerror or error})", None


def _same_pictures(tables: dict[str, LabelTable], group: Copies) -> Iterator[Problem]:
    """Yield the copies outside the group's last split, then those that repeat or contradict others.

    Splits are in the order train, val, test.
    """
    last = group[-1]
    for place in group:
        if place.split != last.split:
            row, other = _row(tables, place), _other(tables, last)
            yield Problem("leak", f"{row} in {place.split} is the same picture as {other}", *place)
    rows = np.concatenate([tables[place.split].rows([place.row]) for place in group])
    first: dict[str, int] = {}
    for i, (place, row) in enumerate(zip(group, rows, strict=True)):
        clashes = (rows[:i] * row == -1).any(axis=1)
        same = first.setdefault(place.split, i)
        if clashes.any():
            earliest = int(clashes.argmax())
            yield _contradiction(tables, place, row, group[earliest], rows[earliest])
        elif same < i:
            kind = "repeated" if (row == rows[same]).all() else "different"
            text = f"{_row(tables, place)} is the same picture as {_other(tables, group[same])}"
            if kind == "different":
                text += f", which has {_positives(tables, group[same])}"
                text += f"; here it has {_positives(tables, place)}"
            yield Problem(kind, text, *place)


def _contradiction(
    tables: dict[str, LabelTable], place: Place, row: Labels, other: Place, other_row: Labels
) -> Problem:
    classes = tables[place.split].classes
    clash = row * other_row == -1
    here = [classes[i] for i in (clash & (row == 1)).nonzero()[0]]
    there = [classes[i] for i in (clash & (other_row == 1)).nonzero()[0]]
    labels = [f"{_names(here)} positive here and negative there"] if here else []
    labels += [f"{_names(there)} negative here and positive there"] if there else []
    same = f"{_row(tables, place)} is the same picture as {_other(tables, other)}"
    return Problem("contradiction", f"{same}, but {', '.join(labels)}", *place)


def _row(tables: dict[str, LabelTable], place: Place) -> str:
    table = tables[place.split]
    return f"{table.where(place.row)}{table.items[place.row]!r}"


def _other(tables: dict[str, LabelTable], place: Place) -> str:
    table = tables[place.split]
    at = f", {table.places.short(place.row)}" if table.places else ""
    return f"{table.items[place.row]!r} ({place.split}{at})"


def _positives(tables: dict[str, LabelTable], place: Place) -> str:
    table = tables[place.split]
    names = [table.classes[i] for i in (table.rows([place.row])[0] == 1).nonzero()[0]]
    return _names(names) if names else "no positive"


def _names(names: list[str]) -> str:
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(map(repr, names[:MAX_NAMES])) + more


def _names_problems(tables: dict[str, LabelTable]) -> Iterator[Problem]:
    """Yield class names that are nearly equal, or that may be several names."""
    for name, count, other, other_count in near_duplicates(joined(tables)):
        alike = unicodedata.normalize("NFC", name) == unicodedata.normalize("NFC", other)
        shown = ascii if alike else repr  # the codes distinguish names that look the same
        text = f"{shown(name)} ({count:,}) and {shown(other)} ({other_count:,})"
        yield Problem("near_names", text)
    for name, what in doubtful_names(next(iter(tables.values())).classes).items():
        yield Problem("joined_names", f"{name!r}: {what}")


def untrainable(tables: dict[str, LabelTable], *, complete: bool) -> list[Problem]:
    """Return the reason for which `load` would refuse the tables, if any."""
    labels = {split: _without_items(table) for split, table in tables.items()}
    try:
        train_list(labels, complete=complete)
    except DataError as error:
        return [Problem("untrainable", str(error))]
    return []


def _without_items(table: LabelTable) -> LabelTable:
    return LabelTable(table.items, table.classes, table.sparse)


def joined(tables: dict[str, LabelTable]) -> LabelTable:
    """Join the labels of all splits into one table."""
    return reduce(concatenate, map(_without_items, tables.values()))


def positives_per_row(labels: SparseLabels) -> Counts:
    """Return the number of positives of each row."""
    return np.diff(labels.positives(0).indptr)


def positives_seen(tables: dict[str, LabelTable]) -> Counts:
    """Count the single positives of each class that are drawn from complete labels of train."""
    lists = joined({part: tables[part] for part in ("train", "val") if part in tables})
    return draw(lists.sparse).take(np.arange(len(tables["train"]))).counts(1)


def _rare(tables: dict[str, LabelTable], min_positives: int) -> Iterator[Problem]:
    """Yield each class with too few positives, once."""
    some = next(iter(tables.values()))
    counts = {
        part: tables[part].sparse.counts(1) if part in tables else np.zeros(len(some.classes))
        for part in SPLITS
    }
    for column, name in enumerate(some.classes):
        train, val, test = (int(counts[part][column]) for part in SPLITS)
        if train + val + test == 0:
            yield Problem("no_positive", repr(name))
        elif train + val == 0:
            yield Problem("test_only", f"{name!r} has {test:,} in test, none in train")
        elif train < min_positives:
            yield Problem(
                "few_positives",
                f"{name!r} has {train:,} in train; --min-positives is {min_positives}",
                "train",
            )
