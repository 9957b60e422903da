"""The documents of a bench: bench.json, the source of every table, and plan.json, its progress."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from spml.bench.plan import Record, Run, done_in
from spml.bench.record import as_text, check_record
from spml.bench.store import RunStore
from spml.errors import UserError
from spml.files import read_json, write_text

REMEDY = "give a bench.json written by spml bench or spml ablate"
ROW = {"label", "trials", "finals", "wanted"}
FIGURES = ("val_map", "test_map", "best_epoch", "seconds")


def write_collected(path: Path, stored: Record) -> None:
    """Write the document of `tables.collected`, one line for each row and each run."""
    write_text(path, as_text(stored, "rows", "runs"))


def read_collected(path: Path) -> Record:
    """Read and check a bench.json; raise UserError if it is damaged or another file."""
    if not path.is_file():
        raise UserError(f"{path}: {'a folder' if path.is_dir() else 'no such file'}; {REMEDY}")
    stored = read_json(path, REMEDY)
    rows, runs = stored.get("rows"), stored.get("runs")
    if not ({"table", "data"} <= set(stored) and isinstance(rows, list) and isinstance(runs, dict)):
        raise UserError(f"{path} is not a bench.json; {REMEDY}")
    for number, row in enumerate(rows, 1):
        if not (isinstance(row, dict) and set(row) >= ROW):
            raise UserError(f"{path}: row {number} lacks one of {', '.join(sorted(ROW))}; {REMEDY}")
    for name, record in runs.items():
        check_record(record if isinstance(record, dict) else {}, f"{path}, {name}", REMEDY)
    return stored


def refuse_foreign(folder: Path, names: Iterable[str]) -> None:
    """Raise UserError if the folder has a file with one of these names that no bench wrote."""
    try:
        ours = {"counts", "runs"} <= set(
            json.loads((folder / "plan.json").read_text(encoding="utf-8"))
        )
    except (OSError, ValueError, TypeError):
        ours = (folder / "records").is_dir()
    for name in names:
        if not ours and (folder / name).exists():
            raise UserError(f"{folder / name} exists and no bench wrote it; give another --out")


def write_overview(
    path: Path, runs: Iterable[Run], store: RunStore, **about: Any
) -> dict[str, int]:
    """Write plan.json, one line for each run, and return the number of runs in each state."""
    plain: list[Record] = []
    counts = {"pending": 0, "running": 0, "done": 0, "failed": 0}
    for run in runs:
        state = store.state(run.id)
        counts[state] += 1
        record = store.outcome(run.id) or {}
        figures = {name: record["result"].get(name) for name in FIGURES} if done_in(record) else {}
        error = {"error": record["error"]} if "error" in record else {}
        plain.append({**run.plain(), "state": state, **figures, **error})
    write_text(path, as_text({**about, "counts": counts, "runs": plain}, "runs"))
    return counts
