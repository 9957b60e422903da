"""Numbers, settings and facts of a run as text and tables, and the templates that show them."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from spml.runs.names import HISTORY, LABELS, OBSERVED, RESULT
from spml.runs.run import Observed, Run

NONE = "–"
Rows = list[tuple[str, str]]
_TITLES = {
    "": "Run",
    "options": "Options of the method",
    "observation": "How labels were observed",
    "side_information": "Side information, taken from complete labels",
    "versions": "Versions",
}


def render(template: str, values: dict[str, Any]) -> str:
    """Fill a template of the report; raise an error if `values` lacks a name it uses."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("spml.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["file_name"] = file_name
    environment.tests["hash"] = is_hash
    return environment.get_template(template).render(values)


def is_hash(name: str) -> bool:
    """Whether a setting of this name is a hash, which the page folds away."""
    return name.lower().replace("-", "").startswith("sha256") or name.endswith("sha256")


def percent(value: float | None, digits: int = 2) -> str:
    """71.23; a dash for None."""
    if value is None:
        return NONE
    return f"{value:.{digits}f}" if math.isfinite(value) else "not finite"


def chance(p: float) -> str:
    """p = 0.042 or p < 0.001."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def signed(value: float | None, digits: int = 2) -> str:
    """+1.30 or −0.42, zero without a sign."""
    if value is None or not math.isfinite(value):
        return percent(value)
    text = f"{abs(value):.{digits}f}"
    if float(text) == 0:
        return text
    return ("+" if value > 0 else "−") + text


def count(value: float | None) -> str:
    """12,345; a small number keeps one decimal unless it is whole."""
    if value is None:
        return NONE
    if not math.isfinite(value):
        return "not finite"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:,.1f}"


def duration(seconds: float | None) -> str:
    """8.4 s, 3 min 20 s, 2 h 05 min."""
    if seconds is None or not math.isfinite(seconds):
        return percent(seconds)
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def setting(value: Any) -> str:
    """A value of config.json on one line; text without quotes."""
    if value in (None, ""):
        return "none"
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    return json.dumps(value, ensure_ascii=False)


def short(text: str, length: int = 26) -> str:
    """Text on one line for a figure; the middle of a long text is cut out."""
    line = " ".join(text.split())
    if len(line) <= length:
        return line
    tail = (length - 1) // 2
    return f"{line[: length - 1 - tail]}…{line[-tail:]}"


def file_name(path: str, length: int = 18) -> str:
    """A file name without its folder; of a long name the end, in which files differ most."""
    name = " ".join(path.split()).rpartition("/")[2]
    return name if len(name) <= length else f"…{name[1 - length :]}"


def chosen_by(kinds: Collection[Any]) -> str:
    """Name of the validation figure; from observed labels it only ranks epochs and is no mAP."""
    if len(set(kinds)) > 1:
        return "figure"
    return "estimate" if "observed" in kinds else "mAP"


def selection(kind: Any) -> str:
    """The labels that chose the epoch."""
    known = {"complete": "complete validation labels", "observed": "observed validation labels"}
    return known.get(str(kind), "labels not recorded")


def setting_tables(*runs: Run) -> list[tuple[str, Rows]]:
    """The settings that the runs share: a table of the plain ones, and one for each group."""
    first, *others = (_groups(run.config) for run in runs)
    tables = []
    for group, rows in first.items():
        rivals = [dict(other.get(group, [])) for other in others]
        same = [(name, text) for name, text in rows if all(r.get(name) == text for r in rivals)]
        if group == "options" and any(other.get(group) != rows for other in others):
            same = []  # only together do the options describe a method
        tables.append((_TITLES.get(group, group), same))
    return [(title, rows) for title, rows in tables if rows]


def _groups(config: Mapping[str, Any]) -> dict[str, Rows]:
    """Settings as text by their group, "" for those that stand alone."""
    groups: dict[str, Rows] = {"": []}
    for key, value in config.items():
        if isinstance(value, dict):
            groups[key] = _flat(value) or [("none", "")]
        elif key != "command":
            groups[""].append((key, setting(value)))
    return groups


def differing_settings(runs: Sequence[Run], *, hashes: bool) -> dict[str, Any]:
    """Names of the settings that differ, and their values by run; hashes or all others."""
    flats = [_one_row(run.config) for run in runs]
    names = dict.fromkeys(name for row in flats for name in row if is_hash(name) == hashes)
    differing = [name for name in names if len({row.get(name, NONE) for row in flats}) > 1]
    rows = [[row.get(name, NONE) for name in differing] for row in flats]
    return {"names": differing, "rows": list(zip([run.name for run in runs], rows, strict=True))}


def _flat(record: Mapping[str, Any], prefix: str = "") -> Rows:
    """Names joined by dots, with their values."""
    rows: Rows = []
    for key, value in record.items():
        if isinstance(value, dict) and value:
            rows += _flat(value, f"{prefix}{key}.")
        else:
            rows.append((f"{prefix}{key}", setting(value)))
    return rows


def _one_row(config: Mapping[str, Any]) -> dict[str, str]:
    """Settings by name without the command, the options of the method in one cell."""
    plain = {key: part for key, part in config.items() if part != {} and key != "command"}
    options = plain.get("options", {})
    if isinstance(options, dict) and "options" in config:
        pairs = [f"{name} = {setting(value)}" for name, value in options.items()]
        plain["options"] = ", ".join(pairs) or NONE
    return dict(_flat(plain))


def label_facts(observed: Observed) -> Rows:
    """Counts of the labels used in training."""
    positive = observed.train == 1
    per_item = positive.sum(axis=1)
    amounts = {"none": per_item == 0, "one": per_item == 1, "more": per_item > 1}
    shares = [
        f"{amount}: {count(items.sum())} item{'s' if items.sum() != 1 else ''} "
        f"({100 * items.mean():.1f} %)"
        for amount, items in amounts.items()
        if items.any()
    ]
    per_class = np.asarray(observed.counts)
    median = count(float(np.median(per_class))) if per_class.size else NONE
    low, high = per_class.min(initial=len(per_item)), per_class.max(initial=0)
    return [
        ("Items in training", count(len(per_item))),
        ("Items held out for validation", count(observed.num_val)),
        ("Observed positives", count(positive.sum())),
        ("Observed negatives", count((observed.train == -1).sum())),
        ("Positives per item", "; ".join(shares)),
        ("Positives per class", f"{count(low)} to {count(high)}, median {median}"),
        ("Classes without a positive", count((per_class == 0).sum())),
        ("SHA-256 of the labels", observed.sha256),
    ]


def missing(run: Run) -> list[str]:
    """A sentence for each part that the page cannot show, with the reason."""
    notes = []
    if run.result is None:
        done = run.history[-1]["epoch"] if run.history else 0
        wanted = run.config.get("epochs")
        of = f" of {wanted}" if wanted is not None else ""
        state = f"Shown is its state after epoch {done}{of}."
        notes.append(f"This run has not finished: there is no {RESULT}. {state}")
    elif run.outcome("test_map") is None:
        notes.append("There is no test mAP: the run had no labelled test set.")
    absent = [file for file in (HISTORY, LABELS, OBSERVED) if not run.has(file)]
    if absent:
        notes.append(
            f"Not in the run folder: {', '.join(absent)}. Sections that need it are left out."
        )
    if run.scored is None:
        notes.append(
            "There are no stored scores with labels for the chosen epoch, "
            "so no confidences are shown."
        )
    elif np.isnan(run.scored.logits).any():
        notes.append(
            "The stored scores hold NaN: the model has diverged. "
            "Figures computed from them are left out."
        )
    return notes
