"""What `spml check` prints: the problems, the summary, and a bar while it works."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from spml.data import LabelTable
from spml.data.check_files import Advance
from spml.data.check_kinds import KINDS, Findings, counted
from spml.data.check_labels import positives_per_row, positives_seen

SHOWN = 20  # problems of a kind that are listed
ENDS = 6  # classes shown from each end, where there are many
PATIENCE = 2.0  # seconds without a bar


def print_warnings(console: Console, said: list[str]) -> None:
    """What the reader said while it read."""
    for text in said:
        console.print(Text("warning: ", "bold yellow").append(_plain(text), "not bold default"), "\n", soft_wrap=True)


def print_problems(console: Console, found: Findings) -> None:
    """Each kind of problem with its first examples and the number of the rest."""
    for kind, problems in found.by_kind().items():
        severity = KINDS[kind].severity
        head = Text(f"{severity}: ", "bold red" if severity == "error" else "bold yellow")
        head.append(counted({kind: len(problems)}), "bold").append(f"; {KINDS[kind].remedy}", "not bold default")
        console.print(head, soft_wrap=True)
        for problem in problems[:SHOWN]:
            console.print(f"  {_plain(problem.message)}", markup=False, soft_wrap=True)
        if len(problems) > SHOWN:
            console.print(f"  and {len(problems) - SHOWN:,} more")
        console.print()


def _plain(text: str) -> str:
    """One line, without what a file's name could do to a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def print_summary(console: Console, tables: dict[str, LabelTable]) -> None:
    """Rows and labels of each split, and the commonest and rarest classes."""
    rows = _table("split", "rows", "positives", "per row", "rows without", "known negatives")
    for split, table in tables.items():
        each = positives_per_row(table.sparse)
        negatives = "the rest" if table.sparse.fill == -1 else f"{table.sparse.counts(-1).sum():,}"
        cells = f"{len(table):,}", f"{each.sum():,}", f"{each.mean():.2f}", f"{(each == 0).sum():,}", negatives
        rows.add_row(split, *cells)
    console.print(rows)
    console.print(_classes(tables))


def _classes(tables: dict[str, LabelTable]) -> Table:
    """Positives of each class, those with the most in train first."""
    classes = next(iter(tables.values())).classes
    columns = {split: table.sparse.counts(1) for split, table in tables.items()}
    if "train" in tables and tables["train"].sparse.fill == -1:
        columns["drawn for training"] = positives_seen(tables)
    out = _table(f"positives of {len(classes):,} classes", *columns)
    order = sorted(range(len(classes)), key=lambda i: [-count[i] for count in columns.values()])
    many = len(order) > 2 * ENDS + 3
    for i in order[:ENDS] if many else order:
        out.add_row(Text(_plain(classes[i])), *(f"{count[i]:,}" for count in columns.values()))
    if many:
        out.add_row(Text(f"... {len(order) - 2 * ENDS:,} more ...", "dim"), *("" for _ in columns))
        for i in order[-ENDS:]:
            out.add_row(Text(_plain(classes[i])), *(f"{count[i]:,}" for count in columns.values()))
    return out


def _table(first: str, *others: str) -> Table:
    table = Table(first, box=SIMPLE_HEAD, pad_edge=False)
    for name in others:
        table.add_column(name, justify="right")
    return table


@contextmanager
def bar() -> Iterator[Advance]:
    """A progress bar on a terminal, once the work has taken some seconds."""
    console = Console(stderr=True)
    progress = Progress(console=console, transient=True, disable=not console.is_terminal)
    started = time.monotonic()
    task = progress.add_task("")

    def advance(what: str, done: int, total: int) -> None:
        if time.monotonic() - started > PATIENCE:
            progress.start()
        progress.update(task, description=what, completed=done, total=total)

    try:
        yield advance
    finally:
        progress.stop()
