"""What is kept of a run for good: a few kilobytes that the tables are made from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from spml.bench.plan import Record
from spml.errors import DAMAGED, UserError
from spml.files import read_json
from spml.metrics.bootstrap import RESAMPLES, SEED, resampled_map
from spml.runs.identity import portable
from spml.runs.run import Run

# what tables and figures read of a record's parts, and the kinds that it may have
Kinds = dict[str, tuple[type, ...]]
RESULT: Kinds = {
    **dict.fromkeys(("val_map", "test_map"), (float, int, type(None))),
    "best_epoch": (int,),
    "selection": (str,),
    "per_class_ap": (dict, type(None)),
}
BOOTSTRAP: Kinds = {"seed": (int,), "images": (int,), "maps": (list,)}
COUNTS = "observed_counts"


def check_result(result: Any, where: object, remedy: str = DAMAGED) -> None:
    """Raise UserError where a run's result is not one that a table or a figure can be made from."""
    _check(result, "result", RESULT, where, remedy)


def _check(part: Any, called: str, kinds: Kinds, where: object, remedy: str) -> None:
    if not isinstance(part, dict):
        raise UserError(f"{where}: the {called} is no JSON object; {remedy}")
    for name, allowed in kinds.items():
        if not isinstance(part.get(name), allowed):
            raise UserError(
                f"{where}: {name} of the {called} cannot be {part.get(name)!r}; {remedy}"
            )


def check_record(record: Record, where: object, remedy: str = DAMAGED) -> None:
    """Raise UserError where a record is neither of a run that is done nor of one that failed."""
    if isinstance(record.get("error"), str):
        return
    check_result(record.get("result"), where, remedy)
    lists = {COUNTS: record.get(COUNTS, [])}
    if "bootstrap" in record:
        _check(record["bootstrap"], "bootstrap", BOOTSTRAP, where, remedy)
        lists["maps"] = record["bootstrap"]["maps"]
    for name, values in lists.items():
        if not isinstance(values, list) or not all(
            isinstance(value, (int, float)) for value in values
        ):
            raise UserError(f"{where}: {name} are no list of numbers; {remedy}")


def read_record(path: Path, remedy: str = DAMAGED) -> Record:
    """The record in a file, checked."""
    record = read_json(path, remedy)
    check_record(record, path, remedy)
    return record


def condensed(folder: Path, resamples: int = RESAMPLES) -> Record:
    """Config, history, result and versions of a finished run, counts of its classes, and its resampled mAPs."""
    run = Run(folder)
    record = {
        "config": portable(run.config),
        "history": run.history,
        "result": run.require_result(),
        "versions": run.config.get("versions", {}),
    }
    counts = observed_counts(run)
    return record | ({} if counts is None else {COUNTS: counts}) | _resampled(run, resamples)


def observed_counts(run: Run) -> list[int] | None:
    """Observed positives of each class among the training rows; None where a run does not hold them."""
    if run.observed is None:
        return None
    counts: list[int] = (run.observed.train == 1).sum(axis=0).tolist()
    return counts


def _resampled(run: Run, resamples: int) -> Record:
    scores, truth = run.scores("test"), run.test_truth
    if scores is None or truth is None or not resamples:
        return {}
    maps = resampled_map(scores.astype(np.float32), truth, resamples)
    return {
        "bootstrap": {
            "seed": SEED,
            "images": len(truth),
            "maps": [round(value, 3) for value in maps.tolist()],
        }
    }
