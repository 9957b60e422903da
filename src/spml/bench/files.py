"""The files that a bench leaves: bench.json, from which every table is made, and plan.json, which says what is open."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from spml.bench.plan import Run, done_in
from spml.bench.record import check_record
from spml.bench.shelf import Shelf
from spml.errors import UserError
from spml.files import read_json, write_text

REMEDY = "give the file that spml bench or spml ablate wrote"
ROW = {"label", "trials", "finals", "wanted"}
FIGURES = ("val_map", "test_map", "best_epoch", "seconds")


def write_collected(path: Path, stored: Mapping[str, Any]) -> None:
    """What `tables.collected` gives, a line for each run."""
    rows = ",\n".join(f"    {_line(row)}" for row in stored["rows"])
    runs = ",\n".join(
        f"    {json.dumps(name)}: {_line(record)}" for name, record in stored["runs"].items()
    )
    rest = "".join(
        f"  {json.dumps(name)}: {_line(stored[name])},\n"
        for name in stored
        if name not in ("rows", "runs")
    )
    write_text(path, f'{{\n{rest}  "rows": [\n{rows}\n  ],\n  "runs": {{\n{runs}\n  }}\n}}\n')


def read_collected(path: Path) -> dict[str, Any]:
    """A bench.json; UserError where it is none."""
    if not path.is_file():
        raise UserError(f"{path}: {'a folder' if path.is_dir() else 'no such file'}; {REMEDY}")
    stored = read_json(path, REMEDY)
    rows, runs = stored.get("rows"), stored.get("runs")
    if not ({"table", "data"} <= set(stored) and isinstance(rows, list) and isinstance(runs, dict)):
        raise UserError(f"{path} is no bench.json; {REMEDY}")
    for number, row in enumerate(rows, 1):
        if not (isinstance(row, dict) and set(row) >= ROW):
            raise UserError(
                f"{path}: row {number} has not all of {', '.join(sorted(ROW))}; {REMEDY}"
            )
    for name, record in runs.items():
        check_record(record if isinstance(record, dict) else {}, f"{path}, {name}", REMEDY)
    return stored


def refuse_foreign(folder: Path, names: Iterable[str]) -> None:
    """Raise UserError where a file of these names is there that no bench wrote, rather than replace it."""
    try:
        ours = {"counts", "runs"} <= set(
            json.loads((folder / "plan.json").read_text(encoding="utf-8"))
        )
    except (OSError, ValueError, TypeError):
        ours = (folder / "records").is_dir()
    for name in names:
        if not ours and (folder / name).exists():
            raise UserError(
                f"{folder / name} is already there and not of a bench; give another --out"
            )


def write_overview(path: Path, runs: Iterable[Run], shelf: Shelf, **about: Any) -> dict[str, int]:
    """plan.json: every run with its state and figures, a line each; how many there are of each state."""
    lines, counts = [], {"pending": 0, "running": 0, "done": 0, "failed": 0}
    for run in runs:
        state = shelf.state(run.id)
        counts[state] += 1
        record = shelf.outcome(run.id) or {}
        figures = {name: record["result"].get(name) for name in FIGURES} if done_in(record) else {}
        error = {"error": record["error"]} if "error" in record else {}
        lines.append(f"    {_line({**run.plain(), 'state': state, **figures, **error})}")
    head = "".join(
        f"  {json.dumps(name)}: {_line(value)},\n"
        for name, value in {**about, "counts": counts}.items()
    )
    write_text(path, f'{{\n{head}  "runs": [\n' + ",\n".join(lines) + "\n  ]\n}\n")
    return counts


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
