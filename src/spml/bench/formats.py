"""Formats of a table: Markdown, CSV, LaTeX, HTML."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence

from spml.bench.plan import benchmark
from spml.bench.published import COLUMNS, PAPER, Quote
from spml.bench.tables import THIRDS, Row, Table
from spml.data.benchmarks import BENCHMARKS
from spml.report.format import NONE, signed
from spml.report.groups import Summary
from spml.report.results import ESTIMATE, ResultTable, results_page

Column = tuple[str, Callable[[Row], str]]  # name of the column, and the function for its cells
BRIEF = ("method", "seeds", "failed")


def cells(table: Table, *, brief: bool = False) -> ResultTable:
    """Return the table as text, without empty columns.

    Args:
        table: results of the runs.
        brief: only the columns that fit a terminal: figures, differences, and published figures
            for the same data.
    """
    notes = _Notes()
    own = benchmark(table.data)
    quoted = [_quoted(name, own, notes) for name in sorted(COLUMNS, key=lambda name: name != own)]
    same = 1 if own in COLUMNS else 0  # number of quoted columns for the same data
    columns: list[Column] = [
        ("method", lambda row: row.label),
        (table.figure, lambda row: spread(row.test)),
        (
            "seeds",
            lambda row: (
                f"{row.seeds}" if row.seeds == row.wanted else f"{row.seeds} of {row.wanted}"
            ),
        ),
        (f"− {table.against}", _short if brief else versus),
        *quoted[:same],
        *((name, lambda row, name=name: spread(row.thirds.get(name))) for name in THIRDS),
        *(
            [(table.chosen_by, lambda row: spread(row.val))]
            if table.figure != table.chosen_by
            else []
        ),
        ("chosen", lambda row: row.chosen),
        *quoted[same:],
        (
            "quoted elsewhere",
            lambda row: ", ".join(notes.quote(quote, named=True) for quote in row.elsewhere),
        ),
        ("failed", lambda row: f"{row.failed}" if row.failed else ""),
    ]
    filled = [(head, [of(row) for row in table.rows]) for head, of in columns]
    nonempty = [
        (head, column) for head, column in filled if any(cell not in ("", NONE) for cell in column)
    ]
    if brief:
        shown = (*BRIEF, table.figure, f"− {table.against}", *(head for head, _ in quoted[:same]))
        nonempty = [pair for pair in nonempty if pair[0] in shown]
    rows = [list(row) for row in zip(*(column for _, column in nonempty), strict=True)]
    return ResultTable(
        _title(table),
        [head for head, _ in nonempty],
        rows,
        [*_notes(table, brief), *notes.texts(rows)],
    )


def _title(table: Table) -> str:
    return f"{table.title}, {table.data}: {table.figure} in percent"


def _quoted(name: str, own: str, notes: _Notes) -> Column:
    head = f"{BENCHMARKS[name].title}, quoted" + ("" if own == name else ", not run")
    return head, lambda row: notes.quote(row.quoted.get(name))


def _notes(table: Table, brief: bool) -> list[str]:
    notes = ["Mean ± sample standard deviation over seeds."]
    if table.selection:
        notes[0] += f" Epochs were chosen on {table.selection} validation labels."
    if table.figure == "validation estimate":
        notes.append(ESTIMATE)
    if any(row.versus is not None for row in table.rows):
        interval = "" if brief else "its 95 % interval "
        notes.append(
            f"− {table.against}: difference over the same seeds, {interval}and p by resampled "
            "test images; both ignore the variation between seeds."
        )
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
        sources = dict.fromkeys(
            quote.source for row in table.rows for quote in row.quoted.values()
        ) or [PAPER]
        notes.append(
            f"Quoted figures were not run here: {' and '.join(sources)} unless marked, ResNet-50."
        )
    notes += [f"{row.label} failed: {error}" for row in table.rows for error in row.errors]
    return notes


class _Notes:
    """Footnotes of quoted figures; equal texts share one number."""

    def __init__(self) -> None:
        self.marks: dict[str, int] = {}

    def quote(self, quote: Quote | None, named: bool = False) -> str:
        if quote is None:
            return ""
        marks = [
            self._mark(text)
            for text in ((quote.source,) if named else ()) + ((quote.doubt,) if quote.doubt else ())
        ]
        return quote.text + "".join(f" [{mark}]" for mark in marks)

    def texts(self, rows: Sequence[Sequence[str]]) -> list[str]:
        """Return the footnotes that these rows use."""
        cells = [cell for row in rows for cell in row]
        return [
            f"[{mark}] {text}"
            for text, mark in self.marks.items()
            if any(f" [{mark}]" in cell for cell in cells)
        ]

    def _mark(self, text: str) -> int:
        return self.marks.setdefault(text, len(self.marks) + 1)


def spread(summary: Summary | None) -> str:
    """Return mean ± standard deviation."""
    if summary is None or summary.mean is None:
        return NONE
    return f"{summary.mean:.2f}" + ("" if summary.std is None else f" ± {summary.std:.2f}")


def versus(row: Row) -> str:
    """Return the difference between a row and the row it is compared with."""
    if row.versus is None:
        return ""
    v = row.versus
    return f"{signed(v.difference)} [{signed(v.low)}, {signed(v.high)}], p = {v.p:.3f}"


def _short(row: Row) -> str:
    return "" if row.versus is None else f"{signed(row.versus.difference)}, p = {row.versus.p:.3f}"


def markdown(table: Table) -> str:
    """Return a Markdown table with its notes below."""
    shown = cells(table)
    lines = [shown.header, ["---"] * len(shown.header), *shown.rows]
    body = ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
    return (
        "\n".join([f"**{shown.title}**", "", *body, "", *(f"{note}  " for note in shown.notes)])
        + "\n"
    )


def as_csv(table: Table) -> str:
    """Return CSV for other programs, each number in its own column."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    measured = ["test", "val", *THIRDS]
    quoted = [f"quoted_{name}{part}" for name in COLUMNS for part in ("", "_deviation", "_doubt")]
    versus = ["difference", "low", "high", "p"]
    spreads = [f"{name}{part}" for name in measured for part in ("", "_deviation")]
    writer.writerow(["row", "seeds", *spreads, "against", *versus, "chosen", "failed", *quoted])
    for row in table.rows:
        test = row.test if table.figure == "test mAP" else Summary.of([])
        summaries = [test, row.val, *(row.thirds[name] for name in THIRDS)]
        quotes = [row.quoted.get(name) for name in COLUMNS]
        writer.writerow(
            [row.label, row.seeds, *(value for s in summaries for value in (s.mean, s.std))]
            + [
                table.against if row.versus else None,
                *(getattr(row.versus, name, None) for name in versus),
            ]
            + [row.chosen, row.failed]
            + [
                value
                for q in quotes
                for value in ((q.mean, q.deviation, q.doubt) if q else (None, None, None))
            ]
        )
    return out.getvalue()


LATEX = {
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    **{
        "~": "\\textasciitilde{}",
        "^": "\\textasciicircum{}",
        "\\": "\\textbackslash{}",
        "±": "$\\pm$",
        "−": "$-$",
    },
    **{"✓": "\\checkmark{}", "✗": "$\\times$", "○": "$\\circ$", "–": "--"},
}


def latex(table: Table) -> str:
    """Return a LaTeX tabular for booktabs and amssymb, with the notes as comments."""
    shown = cells(table)
    lines = [
        " & ".join(_tex(cell) for cell in line) + r" \\" for line in (shown.header, *shown.rows)
    ]
    notes = [f"% {note}" for note in (shown.title, *shown.notes)]
    columns = "l" + "r" * (len(shown.header) - 1)
    body = [
        r"\begin{tabular}{" + columns + "}",
        r"\toprule",
        lines[0],
        r"\midrule",
        *lines[1:],
        r"\bottomrule",
    ]
    return "\n".join([*notes, *body, r"\end{tabular}"]) + "\n"


def _tex(text: str) -> str:
    return "".join(LATEX.get(letter, letter) for letter in text.replace("k̂", "\0")).replace(
        "\0", r"$\hat{k}$"
    )


def page(tables: Sequence[Table]) -> str:
    """Return one self-contained HTML page of all tables."""
    titles = ", ".join(dict.fromkeys(table.title for table in tables))
    data = ", ".join(dict.fromkeys(table.data for table in tables))
    return results_page(titles, data, [cells(table) for table in tables])


FORMATS: dict[str, Callable[[Table], str]] = {
    "md": markdown,
    "csv": as_csv,
    "tex": latex,
    "html": lambda table: page([table]),
}
