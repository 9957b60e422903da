"""Tables in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from spml.bench.write import Cells

Row = tuple[str, Sequence[int]]


def columns(first: str, *others: str) -> Table:
    """A table of names, and numbers to their right."""
    table = Table(first, box=SIMPLE_HEAD, pad_edge=False)
    for name in others:
        table.add_column(name, justify="right")
    return table


def add_ends(table: Table, rows: Sequence[Row], ends: int, all_of: int) -> None:
    """Add rows of names and counts: all of them, or of more than `all_of` those at the two ends."""
    few = len(rows) <= all_of
    for place, (name, counts) in enumerate(rows):
        if few or place < ends or place >= len(rows) - ends:
            table.add_row(Text(plain(name)), *(f"{count:,}" for count in counts))
        elif place == ends:
            table.add_row(
                Text(f"... {len(rows) - 2 * ends:,} more ...", "dim"), *("" for _ in counts)
            )


def shown(cells: Cells) -> None:
    """Print a table of results with its notes."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for place, head in enumerate(cells.header):
        table.add_column(head, justify="right" if place else "left")
    for row in cells.rows:
        table.add_row(*(Text(cell) for cell in row))
    console = Console()
    console.print(
        cells.title, highlight=False, markup=False, style="italic"
    )  # may be longer than the table is wide
    console.print(table)
    for note in cells.notes:
        console.print(note, highlight=False, markup=False, style="dim")


def plain(text: str) -> str:
    """One line, without what a file's or class's name could do to a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
