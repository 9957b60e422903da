"""The documents of a bench.

A run's record is a few kilobytes that tables are computed from; bench.json collects the records of
a table, and plan.json shows its progress.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spml.bench.plan import Record, Run, done_in
from spml.errors import DAMAGED, UserError
from spml.files import read_json, write_text
from spml.metrics.bootstrap import RESAMPLES, SEED, resampled_map
from spml.runs import run as run_folder
from spml.runs.settings import portable

if TYPE_CHECKING:
    from spml.bench.store import RunStore

REMEDY = "give a bench.json written by spml bench or spml ablate"
ROW = {"label", "trials", "finals", "wanted"}
FIGURES = ("val_map", "test_map", "best_epoch", "seconds")
RESULT = ("val_map", "best_epoch", "selection")  # entries that tables and figures read
COUNTS = "observed_counts"


def check_result(result: Any, where: object, remedy: str = DAMAGED) -> None:
    """Raise UserError if a run's result lacks an entry that tables and figures read."""
    known = result if isinstance(result, dict) else {}
    if missing := [name for name in RESULT if name not in known]:
        raise UserError(f"{where}: the result lacks {', '.join(missing)}; {remedy}")


def check_record(record: Record, where: object, remedy: str = DAMAGED) -> None:
    """Raise UserError if a record describes neither a finished nor a failed run."""
    if not isinstance(record.get("error"), str):
        check_result(record.get("result"), where, remedy)


def read_record(path: Path, remedy: str = DAMAGED) -> Record:
    """Read and check the record in a file."""
    record = read_json(path, remedy)
    check_record(record, path, remedy)
    return record


def as_text(document: Record, *expanded: str) -> str:
    """Return JSON with one line for each entry, and for each item of the expanded entries."""
    lines = []
    for name, value in document.items():
        text = _line(value)
        if name in expanded:
            items = [_line(item) for item in value]
            if isinstance(value, dict):
                items = [f"{_line(key)}: {_line(item)}" for key, item in value.items()]
            inner = ",\n".join(f"    {item}" for item in items)
            text = f"{text[0]}\n{inner}\n  {text[-1]}"
        lines.append(f"  {_line(name)}: {text}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def condensed(folder: Path, resamples: int = RESAMPLES) -> Record:
    """Return configuration, history, result, class counts and resampled mAPs of a finished run."""
    run = run_folder.Run(folder)
    record = {
        "config": portable(run.config),
        "history": run.history,
        "result": run.require_result(),
        "versions": run.config.get("versions", {}),
    }
    counts = {} if run.observed is None else {COUNTS: run.observed.counts}
    return record | counts | _resampled(run, resamples)


def _resampled(run: run_folder.Run, resamples: int) -> Record:
    scored = run.scored_on("test")
    if scored is None or not resamples:
        return {}
    maps = resampled_map(scored.logits, scored.truth, resamples)
    rounded = [round(value, 3) for value in maps.tolist()]
    return {"bootstrap": {"seed": SEED, "images": len(scored.truth), "maps": rounded}}


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
    for name in () if (folder / "records").is_dir() else names:
        if (folder / name).exists():
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
