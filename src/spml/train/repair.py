"""Comparison with the data, and repair, of a run folder that is resumed, before the first step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spml.data import Experiment
from spml.errors import UserError
from spml.files import Record, read_json
from spml.model.scoring import Logits
from spml.model.store import check_model, load_model
from spml.runs import names
from spml.runs.contents import changed_items
from spml.runs.folder import RunFolder
from spml.runs.record import tables
from spml.runs.run import Run, scores_name
from spml.runs.settings import CHANGED

if TYPE_CHECKING:
    from spml.train.loop import Training

MISSING = "is missing"
REMEDY = "put the file back, or remove it"


def compare_data(
    run: RunFolder, config: Record, experiment: Experiment, *, accepted: bool
) -> list[str]:
    """Return lines about items that have changed since the run was trained on them.

    Unless that is `accepted`, and recorded, such items are a UserError. If their hashes are lost,
    a sample is compared.
    """
    stored = Run(run.path)
    try:
        known = stored.contents
    except UserError:
        known = {}
    if not known:
        if not run.progressed:
            return []
        if not accepted:
            run.compare_samples(stored.config, config)
        run.write_contents(experiment, anew=True)
        return [f"{run.path / names.CONTENTS} was missing or damaged, and is written again"]
    notes: list[str] = []
    parts = [(known.get(part), table) for part, table in tables(experiment).items()]
    count = changed_items(parts, experiment.name, accepted=accepted, note=notes.append)
    if count:
        entry = {"items": count, "after_epoch": max((*stored.curve("loss"), 0))}
        changes = [*stored.config.get(CHANGED, []), entry]
        run.write_config({**read_json(run.path / names.CONFIG), CHANGED: changes})
        run.write_contents(experiment, anew=True)
    return notes


def repair(training: Training, last: int) -> None:
    """Rebuild the files of the run that are missing or damaged; `last` is the finished epoch.

    Labels come from the data, the history from the checkpoint, and scores from the model of the
    last or the best epoch. UserError if another file is damaged.
    """
    training.writer.wait()
    training.processes.wait()  # until the first process has written the best model
    run, progress = training.run_folder, training.progress
    best = progress.best.get("epoch")
    if best is not None:
        check_model(run.best, best, last)
    unusable = _unusable_scores(training)
    latest = None if progress.within else last
    rest = [unusable.pop(epoch) for epoch in sorted(set(unusable) - {latest, best})]
    for problem in rest:
        if not problem.endswith(MISSING):  # it may have been removed to save space
            raise UserError(f"{problem} and cannot be made again; {REMEDY}")
        training.display.line(f"{problem}: figures over epochs leave it out")
    training.processes.wait()  # until every process has looked

    if training.processes.first:
        run.write_history(progress.history)
        for name in run.write_labels(training.job.experiment, training.val_truth):
            training.display.line(f"{run.path / name} was missing or damaged, and is written again")
    for epoch, problem in unusable.items():
        training.display.line(f"{problem}, and is written again")
        logits = training.score_validation() if epoch == latest else _best_scores(training)
        if training.processes.first:
            run.write_scores(scores_name("val", epoch), logits)


def _best_scores(training: Training) -> Logits:
    """Score the validation rows with the stored model."""
    classifier = training.classifier
    own = {name: value.clone() for name, value in classifier.state_dict().items()}
    classifier.load_state_dict(load_model(training.run_folder.best)[0].state_dict())
    logits = training.score(training.val, "validation")
    classifier.load_state_dict(own)
    return logits


def _unusable_scores(training: Training) -> dict[int, str]:
    """Return the epochs whose scores of the validation rows cannot be read, and why."""
    if not len(training.val_truth):
        return {}
    run = Run(training.run_folder.path, REMEDY)
    unusable = {}
    for line in training.progress.history:
        epoch = line["epoch"]
        if epoch < training.job.validated_from:
            continue
        path = run.scores_file("val", epoch)
        try:
            logits = run.scores("val", epoch)
        except UserError:
            unusable[epoch] = f"{path} is damaged"
            continue
        if logits is None:
            unusable[epoch] = f"{path} {MISSING}"
        elif logits.shape != training.val_truth.shape:
            unusable[epoch] = f"{path} does not fit the data"
    return unusable
