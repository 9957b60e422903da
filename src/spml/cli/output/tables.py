"""Tables in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from spml.report.groups import ResultTable

Row = tuple[str, Sequence[str]]


def columns(first: str, *others: str) -> Table:
    """Return a table of names with right-aligned numbers."""
    table = Table(first, box=SIMPLE_HEAD, pad_edge=False)
    for name in others:
        table.add_column(name, justify="right")
    return table


def add_ends(table: Table, rows: Sequence[Row], ends: int, all_of: int, where: str = "") -> None:
    """Add rows; of more than `all_of`, only the first and the last `ends`.

    `where` names the place of the other rows.
    """
    few = len(rows) <= all_of
    for place, (name, cells) in enumerate(rows):
        if few or place < ends or place >= len(rows) - ends:
            table.add_row(Text(plain(name)), *cells)
        elif place == ends:
            table.add_row(Text(f"... {len(rows) - 2 * ends:,} more{where} ...", "dim"))


def print_results(results: ResultTable) -> None:
    """Print a table of results with its notes."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for place, name in enumerate(results.header):
        table.add_column(name, justify="right" if place else "left")
    for row in results.rows:
        table.add_row(*(Text(cell) for cell in row))
    console = Console()
    # the title may be wider than the table
    console.print(results.title, highlight=False, markup=False, style="italic")
    console.print(table)
    for note in results.notes:
        console.print(note, highlight=False, markup=False, style="dim")


def plain(text: str) -> str:
    """Replace characters of file and class names that a terminal would interpret."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
