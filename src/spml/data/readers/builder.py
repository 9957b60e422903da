"""What every reader fills: items and labels as they come, then one sparse table per split."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from spml.data.names import ClassList, refuse_name
from spml.data.places import Places
from spml.data.table import SPLITS, LabelTable, SparseLabels
from spml.errors import DataError

Kind = Literal["observed", "complete"]
OnError = Callable[[DataError], None]
FILL = {"observed": 0, "complete": -1}


@dataclass(frozen=True)
class Reading:
    """How a user's file is taken.

    Attributes:
        labels: whether a label that is not given is unknown ("observed") or negative ("complete").
        classes: the classes and their order; when None, those of the file.
        on_error: told of each record that cannot be taken, which is then left out; without it, the first is raised.
    """

    labels: Kind = "observed"
    classes: ClassList | None = None
    on_error: OnError | None = None


def tell(error: DataError, on_error: OnError | None) -> None:
    """Hand an error to the one who collects them, or raise it where nobody does."""
    if on_error is None:
        raise error
    on_error(error)


class Builder:
    """Collects labels entry by entry; `tables` checks that they agree and gives the tables.

    Args:
        source: file the entries come from, for messages.
        classes: the classes and their order; when None, those met, sorted by name.
        unit: what a place in the source is called.
        on_error: told of each record that cannot be taken, which is then left out; without it, the first is raised.
        folder: from which the paths of items start; None where items are no paths that people wrote.
    """

    def __init__(
        self,
        source: Path,
        classes: ClassList | None = None,
        unit: str = "line",
        on_error: OnError | None = None,
        folder: Path | None = None,
    ) -> None:
        self.source, self.unit, self.on_error, self.folder = source, unit, on_error, folder
        self._skipped = 0
        self.classes = classes
        self._columns = {name: i for i, name in enumerate(classes.display)} if classes else {}
        self._rows: dict[str, int] = {}
        self._row_places, self._row_splits = array("q"), array("b")
        self._entry_rows, self._entry_columns = array("i"), array("i")
        self._entry_values, self._entry_places = array("b"), array("q")

    def error(self, place: int, text: str) -> DataError:
        """A DataError that names the source and the place; 0 is the source as a whole."""
        return DataError(f"{self.place(place)}{text}")

    def place(self, place: int) -> str:
        """The start of a message about a place."""
        return f"{self.source}, {self.unit} {place}: " if place else f"{self.source}: "

    @contextmanager
    def record(self) -> Iterator[None]:
        """One record: an error within leaves nothing of it, and goes to `on_error`."""
        rows, columns, entries = len(self._rows), len(self._columns), len(self._entry_rows)
        try:
            yield
        except DataError as error:
            tell(error, self.on_error)
            self._skipped += 1
            for names, count in ((self._rows, rows), (self._columns, columns)):
                while len(names) > count:
                    names.popitem()
            for numbers in (self._row_places, self._row_splits):
                del numbers[rows:]
            for numbers in (
                self._entry_rows,
                self._entry_columns,
                self._entry_values,
                self._entry_places,
            ):
                del numbers[entries:]

    def path(self, written: str) -> str:
        """The path in a cell as this machine has it: that of a table from Windows has backslashes."""
        if "\\" not in written or self.folder is None or os.path.lexists(self.folder / written):
            return written
        return written.replace("\\", "/")

    def row(self, item: str, place: int, split: str = "train") -> int:
        """Row number of an item, which is new or known in the same split."""
        row = self._rows.setdefault(item, len(self._rows))
        code = SPLITS.index(split)
        if row == len(self._row_places):
            self._row_places.append(place)
            self._row_splits.append(code)
        elif self._row_splits[row] != code:
            first, earlier = SPLITS[self._row_splits[row]], self._row_places[row]
            raise self.error(
                place,
                f"{item!r} is in {split!r}, but in {first!r} at {self.unit} {earlier}; keep it in one split",
            )
        return row

    def known(self, item: str) -> int | None:
        """Row number of an item met before."""
        return self._rows.get(item)

    def __len__(self) -> int:
        return len(self._rows)

    def column(self, name: str, place: int) -> int:
        """Column of a class, which is added unless a class list was given."""
        column = self._columns.get(name)
        if column is None:
            if self.classes is not None:
                raise self.error(place, f"class {name!r} {self.classes.lacking(name)}")
            refuse_name(name, self.place(place))
            column = self._columns[name] = len(self._columns)
        return column

    def add(self, row: int, column: int, value: int, place: int) -> None:
        """One known label: 1 or -1."""
        self._entry_rows.append(row)
        self._entry_columns.append(column)
        self._entry_values.append(value)
        self._entry_places.append(place)

    def names(self, row: int, cell: str | list[str | None], value: int, place: int) -> None:
        """The labels of a cell that holds class names joined by `|`, or a list of them."""
        for part in cell.split("|") if isinstance(cell, str) else cell:
            if part and (name := part.strip()):
                self.add(row, self.column(name, place), value, place)

    def tables(
        self, kind: Kind, root: Path | None, *, sort_classes: bool = True
    ) -> dict[str, LabelTable]:
        """The splits that have rows, in the order of the source."""
        classes = list(self._columns)
        columns = np.asarray(self._entry_columns)
        if self.classes is not None:
            classes = list(self.classes.display.values())
        elif sort_classes:
            order = sorted(range(len(classes)), key=classes.__getitem__)
            columns = np.argsort(order).astype(np.int32)[columns]
            classes = [classes[i] for i in order]
        places = Places.of(self.source, self.unit, self._row_places)
        sparse, left = self._sparse(columns, classes, kind)
        self._refuse_empty(sparse, left)
        table = LabelTable(list(self._rows), classes, sparse, root=root, places=places)
        codes = np.where(left, np.asarray(self._row_splits), -1)
        if left.all() and (codes == codes[0]).all():
            return {SPLITS[codes[0]]: table}
        return {
            name: table.take(codes == code)
            for code, name in enumerate(SPLITS)
            if (codes == code).any()
        }

    def _refuse_empty(self, sparse: SparseLabels, left: npt.NDArray[np.bool_]) -> None:
        """Raise DataError where no row or no positive is left."""
        if self._skipped and not ((sparse.values == 1).any() and left.any()):
            raise DataError(
                f"{self.source}: no {self.unit} with a label is left without those that cannot be read"
            )
        if not left.any():
            raise DataError(f"{self.source}: no rows; give at least one image and its label")
        if not (sparse.values == 1).any():
            raise DataError(f"{self.source}: no row has a label; give at least one image its label")

    def _sparse(
        self, columns: npt.NDArray[np.int32], classes: list[str], kind: Kind
    ) -> tuple[SparseLabels, npt.NDArray[np.bool_]]:
        """The labels, and which rows are left when the records that contradict earlier ones are skipped."""
        rows, values, places = (
            np.asarray(numbers)
            for numbers in (self._entry_rows, self._entry_values, self._entry_places)
        )
        keys = rows.astype(np.int64) * len(classes) + columns
        order = np.argsort(keys, kind="stable")
        starts = np.flatnonzero(np.diff(keys[order], prepend=-1))
        first = np.repeat(
            order[starts], np.diff(starts, append=len(order))
        )  # of the entries of an item and class
        left = np.ones(len(self._rows), bool)
        wrong = np.flatnonzero(values[order] != values[first])
        if len(wrong):
            skipped: set[int] = set()
            items = list(self._rows)
            for at in wrong[np.argsort(places[order[wrong]], kind="stable")].tolist():
                if (place := int(places[order[at]])) not in skipped:
                    item, name = items[rows[first[at]]], classes[columns[first[at]]]
                    tell(self._clash(item, name, place, int(places[first[at]])), self.on_error)
                    skipped.add(place)
            self._skipped += len(skipped)
            order = order[~np.isin(places[order], list(skipped))]
            left[np.isin(np.asarray(self._row_places), list(skipped))] = False
            left[rows[order]] = True
        order = order[np.diff(keys[order], prepend=-1) != 0]
        if kind == "complete":
            order = order[values[order] == 1]
        shape = len(self._rows), len(classes)
        return SparseLabels.from_entries(
            rows[order], columns[order], values[order], shape, FILL[kind]
        ), left

    def _clash(self, item: str, name: str, place: int, earlier: int) -> DataError:
        text = f"{name!r} is both positive and negative for {item!r} (see {self.unit} {earlier}); keep one of the two"
        return self.error(place, text)
