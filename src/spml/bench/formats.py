"""Formats of a table: Markdown, CSV, LaTeX, HTML."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from typing import Any

from spml.bench.plan import benchmark
from spml.bench.published import COLUMNS, PAPER, Quote
from spml.bench.tables import THIRDS, Row, Table
from spml.data.benchmarks import BENCHMARKS
from spml.report.format import NONE, chance, render, signed
from spml.report.groups import ESTIMATE, ResultTable, Summary


def cells(table: Table, *, brief: bool = False) -> ResultTable:
    """Return the table as text, without empty columns.

    Args:
        table: results of the runs.
        brief: only the columns that fit a terminal: figures, differences, and published figures
            for the same data.
    """
    rows, own = table.rows, benchmark(table.data)
    marks: dict[str, int] = {}  # footnotes of quoted figures; equal texts share one number

    def quoted(names: Sequence[str]) -> dict[str, list[str]]:
        heads = [BENCHMARKS[name].title + ", quoted" for name in names]
        heads = [head if names == [own] else f"{head}, not run" for head in heads]
        columns = [[_quote(row.quoted.get(name), marks) for row in rows] for name in names]
        return dict(zip(heads, columns, strict=True))

    columns = {
        "method": [row.label for row in rows],
        table.figure: [str(row.test) for row in rows],
        "seeds": [" of ".join(dict.fromkeys((str(row.seeds), str(row.wanted)))) for row in rows],
        f"− {table.against}": [versus(row, brief=brief) for row in rows],
        **quoted([name for name in COLUMNS if name == own]),
    }
    if not brief:
        columns |= {name: [str(row.thirds[name]) for row in rows] for name in THIRDS}
        columns.setdefault(table.chosen_by, [str(row.val) for row in rows])
        columns["chosen"] = [row.chosen for row in rows]
        columns |= quoted([name for name in COLUMNS if name != own])
        elsewhere = [[_quote(quote, marks, named=True) for quote in row.elsewhere] for row in rows]
        columns["quoted elsewhere"] = [", ".join(quotes) for quotes in elsewhere]
    columns["failed"] = [str(row.failed or "") for row in rows]
    filled = {name: part for name, part in columns.items() if set(part) - {"", NONE}}
    body = [list(row) for row in zip(*filled.values(), strict=True)]
    every = " ".join(cell for row in body for cell in row)
    footnotes = [f"[{mark}] {text}" for text, mark in marks.items() if f" [{mark}]" in every]
    title = f"{table.title}, {table.data}: {table.figure} in percent"
    return ResultTable(title, list(filled), body, [*_notes(table, brief), *footnotes])


def _quote(quote: Quote | None, marks: dict[str, int], named: bool = False) -> str:
    """Return a quoted figure with the numbers of its notes."""
    if quote is None:
        return ""
    texts = [quote.source] if named else []
    texts += [quote.doubt] if quote.doubt else []
    return quote.text + "".join(f" [{marks.setdefault(text, len(marks) + 1)}]" for text in texts)


def _notes(table: Table, brief: bool) -> list[str]:
    notes = ["Mean ± sample standard deviation over seeds."]
    if table.selection:
        notes[0] += f" Epochs were chosen on {table.selection} validation labels."
    if table.figure == "validation estimate":
        notes.append(ESTIMATE)
    if any(row.versus is not None for row in table.rows):
        interval = "" if brief else "its 95 % interval "
        notes.append(
            f"− {table.against}: difference over the same seeds, {interval}and p over test images "
            f"and seeds{_draws(table)}."
        )
        if any(row.versus is not None and row.versus.p is None for row in table.rows):
            notes.append("With one seed the interval covers test images alone: no verdict.")
    elif table.against and sum(row.seeds > 0 for row in table.rows) > 1:
        needs = "test images with complete labels"
        if table.figure == "test mAP":
            needs = "runs of the same seeds, and resampled test images (--resamples)"
        notes.append(f"Rows are not compared with {table.against}: this needs {needs}.")
    if not brief and any(row.thirds[THIRDS[0]].num for row in table.rows):
        notes.append(
            "head, middle, tail: AP of the third of the classes with the most observed positives, "
            "of the middle third, and of the third with the fewest."
        )
    if any(row.quoted or row.elsewhere for row in table.rows):
        quotes = [quote for row in table.rows for quote in row.quoted.values()]
        sources = " and ".join(dict.fromkeys(quote.source for quote in quotes)) or PAPER
        notes.append(f"Quoted figures were not run here: {sources} unless marked, ResNet-50.")
    notes += [f"{row.label} failed: {error}" for row in table.rows for error in row.errors]
    return notes


def _draws(table: Table) -> str:
    """Return how many draws of the observed labels the comparisons of a table cover."""
    least = min(row.versus.draws for row in table.rows if row.versus is not None)
    return f", over {least} draw{'s' * (least > 1)} of the observed labels"


def versus(row: Row, *, brief: bool = False) -> str:
    """Return the difference between a row and the row it is compared with."""
    if row.versus is None:
        return ""
    v = row.versus
    interval = "" if brief else f" [{signed(v.low)}, {signed(v.high)}]"
    return f"{signed(v.difference)}{interval}, {'one seed' if v.p is None else chance(v.p)}"


def markdown(table: Table) -> str:
    """Return a Markdown table with its notes below."""
    shown = cells(table)
    lines = [shown.header, ["---"] * len(shown.header), *shown.rows]
    body = ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
    notes = [f"{note}  " for note in shown.notes]
    return "\n".join([f"**{shown.title}**", "", *body, "", *notes, ""])


def as_csv(table: Table) -> str:
    """Return CSV for other programs, each number in its own column."""
    rows = [_numbers(table, row) for row in table.rows]
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _numbers(table: Table, row: Row) -> dict[str, Any]:
    test = row.test if table.figure == "test mAP" else Summary.of([])
    values: dict[str, Any] = {"row": row.label, "seeds": row.seeds}
    for name, summary in {"test": test, "val": row.val, **row.thirds}.items():
        values |= {name: summary.mean, f"{name}_deviation": summary.std}
    values["against"] = table.against if row.versus else None
    values |= {name: getattr(row.versus, name, None) for name in ("difference", "low", "high", "p")}
    values |= {"chosen": row.chosen, "failed": row.failed}
    for name in COLUMNS:
        quote = row.quoted.get(name)
        for part in ("mean", "deviation", "doubt"):
            column = f"quoted_{name}" + ("" if part == "mean" else f"_{part}")
            values[column] = getattr(quote, part, None)
    return values


LATEX = str.maketrans(
    {
        **{letter: f"\\{letter}" for letter in "&%$#_{}"},
        **{"~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "\\": "\\textbackslash{}"},
        **{"±": "$\\pm$", "−": "$-$", "–": "--", "\0": "$\\hat{k}$"},
        **{"✓": "\\checkmark{}", "✗": "$\\times$", "○": "$\\circ$"},
    }
)


def latex(table: Table) -> str:
    """Return a LaTeX tabular for booktabs and amssymb, with the notes as comments."""
    shown = cells(table)
    head, *body = (
        " & ".join(cell.replace("k̂", "\0").translate(LATEX) for cell in line) + r" \\"
        for line in (shown.header, *shown.rows)
    )
    columns = "l" + "r" * (len(shown.header) - 1)
    lines = [f"% {note}" for note in (shown.title, *shown.notes)]
    lines += [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", head, r"\midrule", *body]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def page(table: Table) -> str:
    """Return a self-contained HTML page."""
    names = {"title": table.title, "subtitle": table.data}
    return render("results.html", {**names, "notes": [], "tables": [cells(table)]})


FORMATS: dict[str, Callable[[Table], str]] = {
    "md": markdown,
    "csv": as_csv,
    "tex": latex,
    "html": page,
}
