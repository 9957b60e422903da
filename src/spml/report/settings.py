"""config.json as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spml.report.text import NONE, brief, setting
from spml.runs.run import Run

Rows = list[tuple[str, str]]
_TITLES = {
    "": "Run",
    "options": "Options of the method",
    "observation": "How labels came to be observed",
    "side_information": "Side information, taken from complete labels",
    "versions": "Versions",
}


def tables(config: Mapping[str, Any]) -> list[tuple[str, Rows]]:
    """Every setting: a table of the plain ones, then one for each nested group."""
    parts: dict[str, Rows] = {"": []}
    for key, value in config.items():
        if key == "command":
            continue
        if isinstance(value, dict):
            parts[key] = flat(value) or [("none", "")]
        else:
            parts[""].append((key, setting(value)))
    return [(_TITLES.get(key, key), rows) for key, rows in parts.items() if rows]


def flat(record: Mapping[str, Any], prefix: str = "") -> Rows:
    """Names joined by dots, with their values."""
    rows: Rows = []
    for key, value in record.items():
        if isinstance(value, dict) and value:
            rows += flat(value, f"{prefix}{key}.")
        else:
            rows.append((f"{prefix}{key}", setting(value)))
    return rows


def command(run: Run) -> str | None:
    """The command that repeats a run, where it was recorded."""
    recorded = run.config.get("command")
    if isinstance(recorded, list):
        import shlex

        return shlex.join(str(part) for part in recorded)
    return None if recorded is None else setting(recorded)


def shared(runs: Sequence[Run]) -> dict[str, Any]:
    """The settings that all runs have in common, nested as they were."""
    first, *others = (run.config for run in runs)
    return _common(first, others)


def differing(runs: Sequence[Run]) -> tuple[list[str], list[list[str]]]:
    """The settings that differ: their names, and a row of values a run."""
    flats = [_wide(run.config) for run in runs]
    names = dict.fromkeys(name for row in flats for name in row)
    chosen = [name for name in names if len({row.get(name, NONE) for row in flats}) > 1]
    return chosen, [[row.get(name, NONE) for name in chosen] for row in flats]


def _common(first: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    same: dict[str, Any] = {}
    for key, value in first.items():
        rivals = [other.get(key) for other in others]
        if all(key in other for other in others) and all(rival == value for rival in rivals):
            same[key] = value
        elif (
            isinstance(value, dict)
            and key != "options"
            and all(isinstance(rival, dict) for rival in rivals)
        ):
            inner = _common(value, [rival for rival in rivals if isinstance(rival, dict)])
            same.update({key: inner} if inner else {})
    return same


def _wide(config: Mapping[str, Any]) -> dict[str, str]:
    """Settings by name, the options of the method in one cell, without the command."""
    plain = {
        key: value
        for key, value in config.items()
        if key not in ("options", "command") and value != {}
    }
    row = dict(flat(plain))
    if "options" in config:
        row["options"] = brief(config["options"])
    return row
