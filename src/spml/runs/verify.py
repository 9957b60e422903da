"""Verification of a run folder: which of its files are missing, damaged or do not fit."""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from spml.errors import UserError
from spml.files import Record, demand, read_arrays, read_json
from spml.model.store import check_weights, load_model
from spml.runs import names
from spml.runs.folder import RunFolder
from spml.runs.run import Run

REMEDY = "put it back, or resume the run"
RESULT = ("method", "best_epoch", "val_map", "test_map", "selection", "epochs")


def finished(folder: Path, report: Callable[[str], None]) -> Record | None:
    """Return the result of a finished run; None if there is none.

    If a file is damaged that a checkpoint can replace, `report` receives a line, and the run counts
    as unfinished.
    """
    run = Run(folder)
    if not run.finished:
        return None
    try:
        result = run.require_result()
        demand(result, RESULT, folder / names.RESULT)
        check_weights(run.model)
        _ = run.observed, run.val_truth, run.test_truth, run.scored, run.held_out
    except UserError as error:
        if not RunFolder(folder).checkpoint.exists():
            raise
        report(f"{error}; finishing the run again")
        return None
    return result


def verify(folder: Path) -> list[str]:
    """Return a line for each file of a run that is missing, damaged or does not fit the others."""
    run = Run(folder, REMEDY)
    problems: list[str] = []
    for check in (_records, _checkpoints, _model, _observed, _scores):
        try:
            problems += check(run)
        except UserError as error:
            problems.append(str(error))
    return problems


def _records(run: Run) -> Iterator[str]:
    """Check the files of text."""
    demand(run.config, ("data", "method", "backbone"), run.folder / names.CONFIG)
    epochs = [line["epoch"] for line in run.history]
    if epochs != list(range(len(epochs))):
        yield f"{run.folder / names.HISTORY} lacks an epoch; {REMEDY}"
    if run.finished:
        demand(run.require_result(), RESULT, run.folder / names.RESULT)
        if len(epochs) <= run.require_result()["best_epoch"]:
            yield f"{run.folder / names.HISTORY} ends before the best epoch; {REMEDY}"
    others = [run.folder / names.RACE, run.calibration_file, *run.folder.glob(names.EVALUATIONS)]
    for path in filter(Path.exists, others):
        read_json(path)


def _checkpoints(run: Run) -> Iterator[str]:
    folder = RunFolder(run.folder)
    folder.check_checkpoints()
    begun = len(run.history) > 1 or run.has(names.RACE)
    if begun and not (run.finished or folder.checkpoint.exists() or run.has(names.RACE)):
        yield f"{folder.checkpoint} is missing; put it back, or training starts over"


def _model(run: Run) -> Iterator[str]:
    if run.finished or run.model.is_dir():
        info = load_model(run.model)[1]
        if run.classes and info.classes != list(run.classes):
            yield f"{run.model_info} has other classes than {names.LABELS}; {REMEDY}"
        if run.finished and info.training.get("epoch") != run.best_epoch:
            yield f"{run.model_info} is not of the best epoch, {run.best_epoch}; {REMEDY}"


def _observed(run: Run) -> Iterator[str]:
    path = run.folder / names.OBSERVED
    arrays = read_arrays(path, ("observed", "sha256"), remedy=REMEDY)
    if arrays is None:
        if run.history:
            yield f"{path} is missing; {REMEDY}"
        return
    digest = hashlib.sha256((arrays["observed"] == 1).tobytes()).hexdigest()
    if {digest, str(arrays["sha256"])} != {run.config.get("observed_sha256")}:
        yield f"{path} does not fit its hash in {names.CONFIG}; {REMEDY}"
    _ = run.observed, run.contents  # checks the rows and the shapes


def _scores(run: Run) -> Iterator[str]:
    if not run.has(names.LABELS):
        if run.history:
            yield f"{run.folder / names.LABELS} is missing; {REMEDY}"
        return
    wanted = [
        (run.scores_file("val", line["epoch"]), run.val_truth)
        for line in run.history
        if line.get("val_map") is not None
    ]
    result = run.result or {}
    if result.get("test_map") is not None or "test_score" in result:
        wanted.append((run.scores_file("test"), run.test_truth))
    for path, truth in wanted:
        try:
            arrays = read_arrays(path, ("logits",), remedy=REMEDY)
        except UserError as error:
            yield str(error)
            continue
        if arrays is None:
            yield f"{path} is missing; {REMEDY}"
        elif truth is None or arrays["logits"].shape != np.shape(truth):
            yield f"{path} does not fit {names.LABELS}; {REMEDY}"
