"""Text that `spml calibrate` prints."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from spml.cli.output.tables import add_ends, columns, plain
from spml.runs.names import CALIBRATION

ENDS = 10  # classes shown from each end of a long list
ALL = 40  # longest list that is shown completely
NAMED = 8  # classes with few positives that are named


def print_calibration(console: Console, record: dict[str, Any]) -> None:
    """Print the labels used, the thresholds of the classes, and the figures before and after."""
    for line in _about(record):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print(_classes(record))
    console.print(
        "±: half the 95 % range",
        style="dim",
        highlight=False,
    )
    console.print(_overall(record))
    now, before = record["overall"]["macro_f1"], record["overall_before"]["macro_f1"]
    if record["aim"] == "f1" and now["value"] < before:
        where = "within its range" if before <= now["high"] else "beyond its range"
        console.print(
            f"macro-F1 is lower than before, {where}: the old thresholds are at least as good; "
            "--undo restores them"
        )


def _about(record: dict[str, Any]) -> list[str]:
    observed, items = record["labels"] == "observed", record["items"]
    source = f"{record['labels']} labels; scores: {record['scores']}"
    lines = [f"{items:,} validation items with {source}"]
    if record["items_left_out"]:
        lines.append(f"{record['items_left_out']:,} items without a known positive were left out")
    if observed:
        positives = record["overall"]["positives_per_item"]
        estimated = record["positives_per_item_given"] is None
        range_ = f"estimated, {positives['low']:.2f} to {positives['high']:.2f}"
        how = range_ if estimated else "as given"
        lines.append(f"positives per item: {positives['value']:.2f} ({how})")
        lines.append(
            "All figures below are estimates from observed positives; no other label was read."
        )
        if estimated:
            lines.append(
                "They depend on the positives per item: give --positives-per-item if you know it."
            )
    if few := record["few_positives"]:
        lines.append(f"few known positives, fitted with the other classes: {_named(few)}")
    if none := record["untagged"]:
        least = record["aim"].partition("=")[2]
        lines.append(
            f"{record['aim']}: no validation item reaches the threshold of these classes "
            "(their precision counts as 0 in means); "
            f"new items are tagged from probability {least} on: {_named(none)}"
        )
    if short := record["below_aim"]:
        lines.append(f"these classes miss {record['aim']} on the validation items: {_named(short)}")
    return lines


def _named(names: list[str]) -> str:
    """Return the first few names and their total number."""
    more = ", ..." if len(names) > NAMED else ""
    return f"{', '.join(map(plain, names[:NAMED]))}{more} ({len(names)})"


def _classes(record: dict[str, Any]) -> Table:
    table = columns("class", "known", "share", "threshold", "precision", "recall", "F1")
    rows = []
    for row in sorted(record["classes"], key=lambda row: -row["prior"]["value"]):
        scales = {"prior": 100, "threshold": 1, "precision": 100, "recall": 100, "f1": 100}
        cells = {name: _range(row[name], scale) for name, scale in scales.items()}
        if row["name"] in record["untagged"]:
            cells["precision"] = "–"
        rows.append((row["name"], [f"{row['known_positives']:,}", *cells.values()]))
    add_ends(table, rows, ENDS, ALL, f" in {CALIBRATION}")
    return table


def _overall(record: dict[str, Any]) -> Table:
    table = columns(f"all classes (aim: {record['aim']})", "before", "now", "range")
    for name in ("macro_f1", "micro_f1", "macro_precision", "macro_recall", "map"):
        now = record["overall"][name]
        ends = f"{100 * now['low']:.1f}–{100 * now['high']:.1f}"
        title = "mAP" if name == "map" else name.replace("_", "-").replace("f1", "F1")
        before = f"{100 * record['overall_before'][name]:.1f}"
        table.add_row(title, before, f"{100 * now['value']:.1f}", ends)
    curves = record["reliability"]
    errors = (f"{100 * curves[name]['error']:.1f}" for name in ("logits", "calibrated"))
    table.add_row("calibration error", *errors, "")
    return table


def _range(estimate: dict[str, float], scale: int) -> str:
    digits = 1 if scale == 100 else 2
    half = scale * (estimate["high"] - estimate["low"]) / 2
    return f"{scale * estimate['value']:.{digits}f}±{half:.{digits}f}"
