"""What every reader fills: items and labels as they come, then one sparse table per split."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from spml.data.names import ClassList, suggestion
from spml.data.table import SPLITS, LabelTable, SparseLabels
from spml.errors import DataError

Kind = Literal["observed", "complete"]
FILL = {"observed": 0, "complete": -1}


class Builder:
    """Collects labels entry by entry; `tables` checks that they agree and gives the tables.

    Args:
        source: file the entries come from, for messages.
        classes: the classes and their order; when None, those met, sorted by name.
        unit: what a place in the source is called.
    """

    def __init__(self, source: Path, classes: ClassList | None = None, unit: str = "line") -> None:
        self.source, self.unit = source, unit
        self._list = classes
        self._columns = {name: i for i, name in enumerate(classes.display)} if classes else {}
        self._rows: dict[str, int] = {}
        self._row_places, self._row_splits = array("q"), array("b")
        self._entry_rows, self._entry_columns = array("i"), array("i")
        self._entry_values, self._entry_places = array("b"), array("q")

    def error(self, place: int, text: str) -> DataError:
        """A DataError that names the source and the place; 0 is the source as a whole."""
        where = f"{self.source}, {self.unit} {place}" if place else f"{self.source}"
        return DataError(f"{where}: {text}")

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
                place, f"{item!r} is in {split!r}, but in {first!r} at {self.unit} {earlier}; keep it in one split"
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
            if self._list is not None:
                hint = suggestion(name, self._columns)
                raise self.error(
                    place, f"class {name!r} is not in the class list ({self._list.source}){hint or '; add it there'}"
                )
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

    def tables(self, kind: Kind, root: Path | None, *, sort_classes: bool = True) -> dict[str, LabelTable]:
        """The splits that have rows, in the order of the source."""
        if not self._rows:
            raise DataError(f"{self.source}: no rows; give at least one image and its label")
        if 1 not in self._entry_values:
            raise DataError(f"{self.source}: no row has a label; give at least one image its label")
        classes = list(self._columns)
        columns = np.asarray(self._entry_columns)
        if self._list is not None:
            classes = list(self._list.display.values())
        elif sort_classes:
            order = sorted(range(len(classes)), key=classes.__getitem__)
            columns = np.argsort(order).astype(np.int32)[columns]
            classes = [classes[i] for i in order]
        places = (self.source, self.unit, np.asarray(self._row_places))
        sparse = self._sparse(columns, classes, kind)
        table = LabelTable(list(self._rows), classes, sparse, root=root, places=places)
        codes = np.asarray(self._row_splits)
        found = np.unique(codes)
        if len(found) == 1:
            return {SPLITS[found[0]]: table}
        return {SPLITS[code]: table.take(np.flatnonzero(codes == code)) for code in found}

    def _sparse(self, columns: npt.NDArray[np.int32], classes: list[str], kind: Kind) -> SparseLabels:
        rows, values = np.asarray(self._entry_rows), np.asarray(self._entry_values)
        keys = rows.astype(np.int64) * len(classes) + columns
        order = np.argsort(keys, kind="stable")
        again = keys[order[1:]] == keys[order[:-1]]
        clash = np.flatnonzero(again & (values[order[1:]] != values[order[:-1]]))
        if len(clash):
            places = np.asarray(self._entry_places)
            at = min(clash, key=lambda i: places[order[i + 1]])
            first, second = order[at], order[at + 1]
            item = list(self._rows)[rows[first]]
            earlier, name = places[first], classes[columns[first]]
            raise self.error(
                places[second],
                f"{name!r} is both positive and negative for {item!r} (see {self.unit} {earlier}); keep one of the two",
            )
        order = order[np.concatenate([[True], ~again])]
        if kind == "complete":
            order = order[values[order] == 1]
        shape = len(self._rows), len(classes)
        return SparseLabels.from_entries(rows[order], columns[order], values[order], shape, FILL[kind])
