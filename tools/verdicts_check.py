"""Recompute every verdict and interval of docs/reproduction.md and README.md from the run files.

python tools/verdicts_check.py

Shares no code with the scripts that write these pages: it reads the list of runs
(docs/voc2012-runs.csv), the run files and the stored scores, and computes with NumPy, SciPy and
scikit-learn alone. Intervals from scores come from a jackknife over images here and from a
bootstrap there, so their differences and verdicts must agree, not their ends.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from verdicts_rule import (
    EITHER,
    NO,
    ROOT,
    YES,
    Found,
    Gap,
    Listed,
    all_of,
    gap_of,
    some_of,
    thirds,
)
from verdicts_scores import after, before, distances, histograms, of_scores, tail_of_scores

PAGE = ROOT / "docs" / "reproduction.md"
CELL = re.compile(r"([+−]?\d+\.\d+) \[([+−]?\d+\.\d+), ([+−]?\d+\.\d+)\]")
WHOLE = "k̂ ✓, v ✓, L ✓"
HEADS = {name: f"{name} at one rate" for name in ("smile", "mime")}


def best(listed: Listed, base: str, sign: int) -> Found:
    """Whether every other method is on the same side of one method."""
    table = listed.main()
    rows = [row for row in listed.labels(table) if row not in (base, "full", *HEADS)]
    gaps = [listed.gap(table, row, base) for row in rows]
    gaps += [listed.gap("query heads", row, base) for row in HEADS.values()]
    return [], all_of(sign * gap.sign for gap in gaps)


def classes(listed: Listed) -> Found:
    """What the tail gains more than the head, of GR from scores and of Focal."""
    focal, an = (listed.finals("Table B", row) for row in ("focal", "an"))
    gains = [tail(r) - tail(s) for r, s in zip(focal, an, strict=True)]
    other = gap_of(np.array(gains), np.zeros((3, 3)), [1, 2, 3], [0, 0, 0])
    gr = of_scores(tail_of_scores, 25, seeds=(1, 2, 3))
    if gr.sign > 0 and other.sign <= 0:
        return [gr, other], YES
    return [gr, other], NO if gr.sign < 0 or other.sign > 0 else EITHER


def tail(record: dict[str, Any]) -> float:
    """AP of the tail third minus that of the head third."""
    head, last = thirds(record["observed_counts"])
    ap = np.array(list(record["result"]["per_class_ap"].values()))
    return float(ap[last].mean() - ap[head].mean())


def alone(listed: Listed) -> Found:
    """One part against each of the two others."""
    others = ("k̂ ✗, v ✓, L ✗", "k̂ ✗, v ✗, L ✓")
    gaps = [listed.gap("Table 3", "k̂ ✓, v ✗, L ✗", other) for other in others]
    return gaps, some_of(gap.sign for gap in gaps)


def whole(listed: Listed) -> Found:
    """All parts against less."""
    rows = [row for row in listed.labels("Table 3") if re.match("k̂ [✓✗]", row) and row != WHOLE]
    gaps = {row: listed.gap("Table 3", WHOLE, row) for row in rows}
    return [gaps["k̂ ✓, v ✗, L ✓"]], all_of(gap.sign for gap in gaps.values())


def grid(name: str, paper: Callable[[str], bool]) -> Callable[[Listed], Found]:
    """Decided by three fresh seeds of the paper's setting and its rival in each line."""

    def look(listed: Listed) -> Found:
        table = f"in question, {name}"
        lines: dict[str, dict[bool, str]] = {}
        for row in listed.labels(table):
            line = row.split(",")[0] if name in "βα" else ""
            lines.setdefault(line, {})[paper(row)] = row
        pairs = list(lines.values())
        rows = [row for pair in pairs for row in pair.values()]
        wanted = 6 if name in "βα" else 2
        if len(rows) < wanted or any(len(listed.finals(table, row)) < 3 for row in rows):
            return [], EITHER
        gaps = [listed.gap(table, pair[True], pair[False]) for pair in pairs]
        return gaps, all_of(gap.sign for gap in gaps)

    return look


def signed(gaps: Sequence[Gap]) -> Found:
    """A statement that needs all differences to count."""
    return list(gaps), all_of(gap.sign for gap in gaps)


STATEMENTS: dict[str, Callable[[Listed], Found]] = {
    "GR is above AN": lambda runs: signed([runs.widest("gr", "an")]),
    "GR is above EM and EM+APL": lambda runs: signed(
        [runs.widest("gr", "em"), runs.gap(runs.main(), "gr", "em_apl")]
    ),
    "GR is the best": lambda runs: best(runs, "gr", -1),
    "AN is the worst": lambda runs: best(runs, "an", 1),
    "GR deals with imbalance": classes,
    "k̂ alone gives almost a point": alone,
    "All three parts together": whole,
    "k̂ and v learned": lambda runs: (
        [runs.gap("Table 3", "k̂ ○, v ○, L ✓", WHOLE)],
        all_of([-runs.gap("Table 3", "k̂ ○, v ○, L ✓", WHOLE).sign]),
    ),
    "The best threshold is τ = 1": grid("β", lambda row: row.endswith("τ = 1.0")),
    "μ = 0.8 is best": grid("α", lambda row: row.endswith("μ = 0.8")),
    "q2 = 0.01 with q3 = 1": grid("q", lambda row: row == "q2 = 0.01, q3 = 1"),
    "A q that moves": grid("moving q3", lambda row: "from" in row),
    "The Wasserstein distance": distances,
    "GR's confidences": histograms,
    "Assumption 1": before,
    "Assumption 2": after,
}


# what the pages show


def number(text: str) -> float:
    """A signed number as the pages write it."""
    return float(text.replace("−", "-"))


def block(path: Path, name: str) -> list[list[str]]:
    """The cells of a generated table."""
    text = path.read_text(encoding="utf-8")
    found = re.search(rf"<!-- generated: {name} -->\n(.*?)<!-- end -->", text, re.DOTALL)
    assert found, f"{path.name} has no part {name}"
    lines = [line for line in found[1].splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def shown(cell: str, gap: Gap, what: str, exact: bool = True) -> list[str]:
    """Problems of a cell that shows a difference with its interval."""
    match = CELL.search(cell)
    if match is None:
        return [f"{what}: no interval in {cell!r}"]
    value, low, high = map(number, match.groups())
    sign = 0 if "one seed" in cell else int(low > 0) - int(high < 0)
    near = 0.0051 if exact else 0.02 * abs(gap.value) + 0.1
    wrong = abs(value - gap.value) > near or (sign != gap.sign and 0.0 not in (low, high))
    if exact:
        wrong |= max(abs(low - gap.low), abs(high - gap.high)) > near
    mine = f"{gap.value:+.2f} [{gap.low:+.2f}, {gap.high:+.2f}]"
    return [f"{what}: {match[0]} on the page, {mine} here"] if wrong else []


def statements(listed: Listed) -> tuple[list[str], int]:
    """Compare every statement."""
    wrong, lines = [], block(PAGE, "claims")[2:]
    for start, compute in STATEMENTS.items():
        line = next((cells for cells in lines if cells[0].startswith(start)), None)
        if line is None:
            wrong.append(f"{start}: not on the page")
            continue
        gaps, verdict = compute(listed)
        if verdict != line[2].strip(" |"):
            wrong.append(f"{start}: {line[2]} on the page, {verdict} here")
        cells = [match[0] for match in CELL.finditer(line[1])]
        exact = start not in ("GR deals with imbalance", "The Wasserstein distance") and (
            start not in ("GR's confidences", "Assumption 1")
        )
        for cell, gap in zip(cells, gaps, strict=True):
            wrong += shown(cell, gap, start, exact)
        leads = re.findall(r"\(the paper's ([+−]\d+\.\d+) lies (inside|outside)\)", line[1])
        for (lead, side), gap in zip(leads, gaps, strict=False):
            if (gap.low <= number(lead) <= gap.high) != (side == "inside"):
                wrong.append(f"{start}: {lead} is not {side}")
    if len(lines) != len(STATEMENTS):
        wrong.append(f"{len(lines)} statements on the page, {len(STATEMENTS)} here")
    return wrong, len(lines)


TABLES = {"table-b": "Table B", "query-heads": "query heads", "table-3": "Table 3"}


def tables(listed: Listed) -> tuple[list[str], int]:
    """Compare every difference of the tables."""
    wrong: list[str] = []
    number_ = 0
    places = [(PAGE, name, table) for name, table in TABLES.items()]
    for path, name, table in [*places, (ROOT / "README.md", "voc", listed.main())]:
        lines = block(path, name)
        column = next(at for at, cell in enumerate(lines[0]) if cell.startswith("− "))
        base = lines[0][column].removeprefix("− ").strip(" |")
        for cells in lines[2:]:
            row = cells[0].strip("` |")
            if row != base and "not run" not in cells[1]:
                wrong += shown(cells[column], listed.gap(table, row, base), f"{name}, {row}")
                number_ += 1
    for cells, row in zip(block(PAGE, "switches")[2:], listed.labels("switches")[1:], strict=True):
        wrong += shown(cells[2], listed.gap("switches", row, "as released"), f"switches, {row}")
        number_ += 1
    words = {1: "above", -1: "below", 0: "undecided against"}
    for cells in block(PAGE, "backbones")[2:]:
        table = f"backbone, {cells[0].strip('| ')}"
        for column, base in ((5, "an"), (6, "em")):
            gap = listed.gap(table, "gr", base)
            wrong += shown(cells[column], gap, f"{table}, {base}")
            if f"{words[gap.sign]} {base}" not in cells[7]:
                wrong.append(f"{table}: gr is not {cells[7]}")
            number_ += 1
    return wrong, number_


def main() -> int:
    """Print what differs; the exit code is 1 if anything does."""
    listed = Listed()
    wrong = listed.problems()
    for problems in (statements(listed), tables(listed)):
        wrong += problems[0]
        print(f"{problems[1]} {'statements' if problems[1] < 20 else 'differences'} recomputed")
    print("\n".join(wrong) or "all agree with the pages")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
