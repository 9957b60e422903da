"""Output of `spml check`: the problems and the summary."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from spml.cli.output.tables import add_ends, columns, plain
from spml.data import LabelTable
from spml.data.check.check import positives_per_row, positives_seen
from spml.data.check.problems import KINDS, Findings, counted

SHOWN = 20  # listed problems of each kind
ENDS = 6  # classes shown from each end if there are many


def print_warnings(console: Console, messages: list[str]) -> None:
    """Print the warnings of the reader."""
    for text in messages:
        line = Text("warning: ", "bold yellow").append(plain(text), "not bold default")
        console.print(line, "\n", soft_wrap=True)


def print_problems(console: Console, findings: Findings) -> None:
    """Print each kind of problem with its first examples and the number of the others."""
    for kind, problems in findings.by_kind().items():
        severity = KINDS[kind].severity
        head = Text(f"{severity}: ", "bold red" if severity == "error" else "bold yellow")
        head.append(counted({kind: len(problems)}), "bold").append(
            f"; {KINDS[kind].remedy}", "not bold default"
        )
        console.print(head, soft_wrap=True)
        for problem in problems[:SHOWN]:
            console.print(f"  {plain(problem.message)}", markup=False, soft_wrap=True)
        if len(problems) > SHOWN:
            console.print(f"  and {len(problems) - SHOWN:,} more")
        console.print()


def print_summary(console: Console, tables: dict[str, LabelTable], *, complete: bool) -> None:
    """Print rows and labels of each split, and the most and least frequent classes."""
    rows = columns("split", "rows", "positives", "per row", "rows without", "known negatives")
    for split, table in tables.items():
        each = positives_per_row(table.sparse)
        negatives = "the rest" if complete else f"{table.sparse.counts(-1).sum():,}"
        counts = f"{len(table):,}", f"{each.sum():,}", f"{each.mean():.2f}"
        rows.add_row(split, *counts, f"{(each == 0).sum():,}", negatives)
    console.print(rows)
    console.print(_classes(tables, complete=complete))


def _classes(tables: dict[str, LabelTable], *, complete: bool) -> Table:
    """Return the positives of each class, the most frequent in train first."""
    classes = next(iter(tables.values())).classes
    counts = {split: table.sparse.counts(1) for split, table in tables.items()}
    if "train" in tables and complete:
        counts["drawn for training"] = positives_seen(tables)
    out = columns(f"positives of {len(classes):,} classes", *counts)
    order = sorted(range(len(classes)), key=lambda i: [-count[i] for count in counts.values()])
    rows = [(classes[i], [f"{count[i]:,}" for count in counts.values()]) for i in order]
    add_ends(out, rows, ENDS, 2 * ENDS + 3)
    return out
