"""Verification of recorded figures against stored scores.

It covers the result of each run and its record, the source of tables. Scores are stored as float16.
Rounding keeps their order but creates ties, so the scores give two bounds: every tie broken against
the positives, and every tie broken in their favour.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from spml.bench.plan import done_in
from spml.bench.record import COUNTS, check_result, read_record
from spml.errors import UserError
from spml.files import Record, read_json
from spml.metrics import average_precision
from spml.metrics.bootstrap import resampled_map
from spml.model.scoring import validation_map
from spml.runs.names import LABELS, RESULT
from spml.runs.run import Labels, Logits, Run, Scored, Split
from spml.runs.settings import Selection

SLACK = 1e-6  # tolerance of the arithmetic, in points of mAP
ROUNDED = 0.002  # tolerance of resampled mAPs: three decimals, and sums in another order
SPLITS: tuple[Split, ...] = ("val", "test")
Ranks = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Check:
    """A recorded figure, in percent, and the bounds that its scores give.

    Attributes:
        run: name of the run folder, or of the record if its figure differs from the folder's.
        split: "val" or "test", and the class if the figure belongs to one.
        recorded: None if the record cannot be read.
        bounds: lowest and highest figure that the source allows; None, with a problem, without it.
    """

    run: str
    split: str
    recorded: float | None
    bounds: tuple[float, float] | None
    problem: str = ""
    source: str = "scores"

    @property
    def agrees(self) -> bool:
        """Whether the figure lies within the bounds."""
        if self.bounds is None or self.recorded is None:
            return False
        return self.bounds[0] - SLACK <= self.recorded <= self.bounds[1] + SLACK

    def __str__(self) -> str:
        text = self.problem
        if self.bounds is not None:
            text = "{} give {:.2f} to {:.2f}".format(self.source, *self.bounds)
        if not self.agrees:
            text += "  NOT CHECKED" if self.bounds is None else "  DIFFERS"
        recorded = "" if self.recorded is None else f"{self.recorded:.2f} recorded, "
        return f"{self.run}  {self.split:<4}  {recorded}{text}"


def verify(runs: Path, records: Path | None = None) -> Iterator[Check]:
    """Check every mAP of the finished runs in a folder, and of their records if these differ.

    For class APs, class counts and resampled mAPs, only wrong ones are yielded.
    """
    folders = sorted(path.parent for path in runs.glob(f"*/{RESULT}"))
    if not folders:
        raise UserError(f"{runs} has no finished run; give the --out folder of a bench")
    for folder in folders:
        file = (records or folder) / f"{folder.name}.json"
        try:
            result = Run(folder).require_result()
            check_result(result, folder / RESULT)
            record = read_record(file) if file.is_file() else {}
        except UserError as error:  # continue with the other runs
            yield Check(folder.name, "", None, None, str(error))
            continue
        yield from _verify_run(folder, result, file.name, record)


def _verify_run(folder: Path, own: Record, name: str, record: Record) -> Iterator[Check]:
    """Check the result of a run, and its record of that name."""
    run, stored = Run(folder), record.get("result", {})
    scored: Scored | None = None
    for split in SPLITS:
        figure = own.get(f"{split}_map")
        figures = {folder.name: figure}
        recorded = stored.get(f"{split}_map", figure)
        if recorded != figure:
            figures[name] = np.nan if recorded is None else recorded
        scored, problem = None, ""
        try:
            scored = _scored(run, split)
        except UserError as error:
            problem = str(error)
        kind: Selection = own["selection"] if split == "val" else "complete"
        known = {where: value for where, value in figures.items() if value is not None}
        allowed = bounds(scored.logits, scored.truth, kind) if scored and known else None
        for where, value in known.items():
            yield Check(where, split, float(value), allowed, problem)
    if scored is not None:  # scores of the test items
        classes = {folder.name: own.get("per_class_ap"), name: stored.get("per_class_ap")}
        listed = {where: aps for where, aps in classes.items() if aps is not None}
        yield from _wrong(_classes(scored, run.classes, listed))
        yield from islice(_wrong(_draws(scored, name, record.get("bootstrap"))), 1)
    yield from _wrong(_counts(run, name, record.get(COUNTS)))


def without_scores(runs: Path, records: Path) -> int:
    """Count the finished runs whose run folder is missing."""
    missing = [path for path in records.glob("*.json") if not Run(runs / path.stem).finished]
    return sum(done_in(read_json(path)) for path in missing)


def _wrong(checks: Iterable[Check]) -> Iterator[Check]:
    return (check for check in checks if not check.agrees)


def _classes(
    scored: Scored, classes: Sequence[str], recorded: dict[str, dict[str, float]]
) -> Iterator[Check]:
    """Check the AP of each class, by the name of its source."""
    if not recorded:
        return
    ranked = _ranks(scored.logits, scored.truth)
    ends = [100 * average_precision(ranks, scored.truth) for ranks in ranked]
    for name, aps in recorded.items():
        for label, low, high in zip(classes, *ends, strict=True):
            yield Check(name, f"test, {label}", aps.get(label, np.nan), (low, high))


def _draws(scored: Scored, name: str, drawn: Record | None) -> Iterator[Check]:
    """Check each resampled mAP."""
    if drawn is None:
        return
    again = resampled_map(scored.logits, scored.truth, len(drawn["maps"]), drawn["seed"])
    for at, (own, figure) in enumerate(zip(drawn["maps"], again.tolist(), strict=True)):
        yield Check(name, f"test, draw {at}", own, (figure - ROUNDED, figure + ROUNDED))


def _counts(run: Run, name: str, recorded: list[float] | None) -> Iterator[Check]:
    """Check the observed positives of each class against the run's labels."""
    try:
        observed, classes = run.observed, run.classes
    except UserError as error:  # continue with the other runs
        yield Check(name, "observed", None, None, str(error))
        return
    if recorded is None or observed is None:
        return
    labels = classes or range(len(recorded))
    for label, own, count in zip(labels, recorded, observed.counts, strict=True):
        yield Check(name, f"observed, {label}", own, (count, count), source="labels")


def _scored(run: Run, split: Split) -> Scored:
    """Return the scores and labels of a split; for validation, those of the best epoch."""
    scored = run.scored_on(split)
    if scored is None:
        if not run.scores_file(split, run.best_epoch or 0).is_file():
            raise UserError("no scores")
        raise UserError(f"no labels of {split} in {LABELS}" if run.has(LABELS) else f"no {LABELS}")
    return scored


def bounds(logits: Logits, truth: Labels, selection: Selection) -> tuple[float, float]:
    """Return the lowest and highest figure, in percent, of scores that round to these."""
    against, favouring = _ranks(logits, truth)
    return validation_map(against, truth, selection), validation_map(favouring, truth, selection)


def _ranks(logits: Logits, truth: Labels) -> tuple[Ranks, Ranks]:
    """Return the items' ranks by class, with ties broken against and in favour of the positives."""
    against, favouring = np.empty(logits.shape, np.float32), np.empty(logits.shape, np.float32)
    for column in range(logits.shape[1]):
        values, positive = logits[:, column], truth[:, column] == 1
        order = np.lexsort((~positive, values))  # ascending; positives below their ties
        against[order, column] = np.arange(len(values))
        favouring[:, column] = 2 * np.unique(values, return_inverse=True)[1] + positive
    return against, favouring
