"""The builder that every reader fills: items and labels in any order, then one table per split."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from spml.data.names import ClassList, refuse_name
from spml.data.readers.columns import Columns
from spml.data.table import SPLITS, LabelTable, Places, SparseLabels
from spml.errors import DataError

Kind = Literal["observed", "complete"]
OnError = Callable[[DataError], None]
FILL = {"observed": 0, "complete": -1}


@dataclass(frozen=True)
class Reading:
    """Options of reading a user's file."""

    labels: Kind = "observed"  # whether an absent label is unknown or negative ("complete")
    classes: ClassList | None = None  # and their order; None takes them from the file
    on_error: OnError | None = None  # takes each invalid record; None raises the first
    columns: Columns = field(default_factory=Columns)  # of tables


def report(error: DataError, on_error: OnError | None) -> None:
    """Pass an error to `on_error`, or raise it if that is None."""
    if on_error is None:
        raise error
    on_error(error)


class Builder:
    """Collects labels entry by entry; `tables` checks that they agree and returns the tables.

    Messages name the source and the position in it, counted in `unit`. Paths of items start from
    `root`.
    """

    def __init__(self, source: Path, reading: Reading, root: Path, unit: str = "line") -> None:
        self.source, self.reading, self.root, self.unit = source, reading, root, unit
        self.classes = reading.classes
        self._skipped = 0
        self._columns: dict[str, int] = {}
        if self.classes is not None:
            self._columns = {name: i for i, name in enumerate(self.classes.display)}
        self._rows: dict[str, int] = {}
        self._row_places, self._row_splits = array("q"), array("b")
        self._entry_rows, self._entry_columns = array("i"), array("i")
        self._entry_values, self._entry_places = array("b"), array("q")
        self.feature_names: Sequence[str] = ()
        self._features = array("f")
        self._arrays: tuple[array[Any], ...] = (
            *(self._row_places, self._row_splits, self._features, self._entry_rows),
            *(self._entry_columns, self._entry_values, self._entry_places),
        )

    def report(self, error: DataError) -> None:
        """Report an invalid record, or raise the error."""
        report(error, self.reading.on_error)

    def error(self, place: int, text: str) -> DataError:
        """Return a DataError that names source and place; place 0 is the whole source."""
        return DataError(f"{self.place(place)}{text}")

    def place(self, place: int) -> str:
        """Return the start of a message about a place."""
        return f"{self.source}, {self.unit} {place}: " if place else f"{self.source}: "

    @contextmanager
    def located(self, place: int) -> Iterator[None]:
        """Start the message of an error in the block with a place."""
        try:
            yield
        except DataError as error:
            raise self.error(place, str(error)) from None

    @contextmanager
    def record(self) -> Iterator[None]:
        """Add one record; an error in the block removes all of it and goes to `on_error`."""
        rows, columns = len(self._rows), len(self._columns)
        lengths = [len(numbers) for numbers in self._arrays]
        try:
            yield
        except DataError as error:
            self.report(error)
            self._skipped += 1
            for names, count in ((self._rows, rows), (self._columns, columns)):
                while len(names) > count:
                    names.popitem()
            for numbers, length in zip(self._arrays, lengths, strict=True):
                del numbers[length:]

    def path(self, written: str) -> str:
        """Convert the backslashes of a table from Windows, unless a file has that very name."""
        if "\\" not in written or os.path.lexists(self.root / written):
            return written
        return written.replace("\\", "/")

    def row(self, item: str, place: int, split: str = "train") -> int:
        """Return the row number of an item; a known item must be in the same split."""
        row = self._rows.setdefault(item, len(self._rows))
        code = SPLITS.index(split)
        if row == len(self._row_places):
            self._row_places.append(place)
            self._row_splits.append(code)
        elif self._row_splits[row] != code:
            first, earlier = SPLITS[self._row_splits[row]], self._row_places[row]
            raise self.error(
                place,
                f"{item!r} is in {split!r}, but in {first!r} at {self.unit} {earlier}; "
                "keep it in one split",
            )
        return row

    def known(self, item: str) -> int | None:
        """Return the row number of a known item, else None."""
        return self._rows.get(item)

    def __len__(self) -> int:
        return len(self._rows)

    def column(self, name: str, place: int) -> int:
        """Return the column of a class; a new class is added unless there is a class list."""
        column = self._columns.get(name)
        if column is None:
            if self.classes is not None:
                raise self.error(place, f"class {name!r} {self.classes.lacking(name)}")
            refuse_name(name, self.place(place))
            column = self._columns[name] = len(self._columns)
        return column

    def add(self, row: int, column: int, value: int, place: int) -> None:
        """Add one known label: 1 or -1."""
        self._entry_rows.append(row)
        self._entry_columns.append(column)
        self._entry_values.append(value)
        self._entry_places.append(place)

    def features(self, row: int, values: Sequence[float], place: int) -> None:
        """Add the features of a row; a known row must have the same ones."""
        start = row * len(values)
        if start == len(self._features):
            self._features.extend(values)
        elif self._features[start : start + len(values)] != array("f", values):
            item, earlier = list(self._rows)[row], self._row_places[row]
            problem = f"{item!r} has other features than at {self.unit} {earlier}"
            raise self.error(place, f"{problem}; give each row a name of its own")

    def names(self, row: int, cell: Any, value: int, place: int) -> None:
        """Add the labels of a cell: class names with the separator between them, or a list."""
        if isinstance(cell, str):
            cell = cell.split(self.reading.columns.separator)
        for part in cell if isinstance(cell, list) else [cell]:
            if not isinstance(part, str | None):
                raise self.error(place, f"label {part!r} is no text; store the names of classes")
            if part and (name := part.strip()):
                self.add(row, self.column(name, place), value, place)

    def tables(self, *, sort_classes: bool = True) -> dict[str, LabelTable]:
        """Return the tables of the splits that have rows, in the order of the source."""
        classes = list(self._columns)
        columns = np.asarray(self._entry_columns)
        if self.classes is not None:
            classes = list(self.classes.display.values())
        elif sort_classes:
            order = sorted(range(len(classes)), key=classes.__getitem__)
            columns = np.argsort(order).astype(np.int32)[columns]
            classes = [classes[i] for i in order]
        places = Places.of(self.source, self.unit, self._row_places)
        sparse, valid = self._sparse(columns, classes)
        self._refuse_empty(sparse, valid)
        x, width = None, len(self.feature_names)
        if width:
            x = np.frombuffer(self._features, np.float32).reshape(-1, width)
        table = LabelTable(
            list(self._rows),
            classes,
            sparse,
            x=x,
            root=None if width else self.root,
            places=places,
            feature_names=self.feature_names,
        )
        codes = np.where(valid, np.asarray(self._row_splits), -1)
        if valid.all() and (codes == codes[0]).all():
            return {SPLITS[codes[0]]: table}
        return {
            name: table.take(codes == code)
            for code, name in enumerate(SPLITS)
            if (codes == code).any()
        }

    def _refuse_empty(self, sparse: SparseLabels, valid: npt.NDArray[np.bool_]) -> None:
        """Raise DataError if no row or no positive remains."""
        if self._skipped and not ((sparse.values == 1).any() and valid.any()):
            raise DataError(f"{self.source}: no valid {self.unit} with a label remains")
        if not valid.any():
            raise DataError(f"{self.source}: no rows; give at least one image and its label")
        if not (sparse.values == 1).any():
            raise DataError(f"{self.source}: no row has a label; give at least one image its label")

    def _sparse(
        self, columns: npt.NDArray[np.int32], classes: list[str]
    ) -> tuple[SparseLabels, npt.NDArray[np.bool_]]:
        """Return the labels, and which rows remain without records that contradict earlier ones."""
        rows, values, places = (
            np.asarray(numbers)
            for numbers in (self._entry_rows, self._entry_values, self._entry_places)
        )
        keys = rows.astype(np.int64) * len(classes) + columns
        order = np.argsort(keys, kind="stable")
        starts = np.flatnonzero(np.diff(keys[order], prepend=-1))
        # The first entry of the same item and class, for each entry.
        first = np.repeat(order[starts], np.diff(starts, append=len(order)))
        valid = np.ones(len(self._rows), bool)
        wrong = np.flatnonzero(values[order] != values[first])
        if len(wrong):
            skipped: set[int] = set()
            items = list(self._rows)
            for at in wrong[np.argsort(places[order[wrong]], kind="stable")].tolist():
                if (place := int(places[order[at]])) not in skipped:
                    item, name = items[rows[first[at]]], classes[columns[first[at]]]
                    problem = f"{name!r} is both positive and negative for {item!r}"
                    earlier = f"{self.unit} {places[first[at]]}"
                    self.report(
                        self.error(place, f"{problem} (see {earlier}); keep one of the two")
                    )
                    skipped.add(place)
            self._skipped += len(skipped)
            order = order[~np.isin(places[order], list(skipped))]
            valid[np.isin(np.asarray(self._row_places), list(skipped))] = False
            valid[rows[order]] = True
        order = order[np.diff(keys[order], prepend=-1) != 0]
        if self.reading.labels == "complete":
            order = order[values[order] == 1]
        shape = len(self._rows), len(classes)
        sparse = SparseLabels.from_entries(
            rows[order], columns[order], values[order], shape, FILL[self.reading.labels]
        )
        return sparse, valid
