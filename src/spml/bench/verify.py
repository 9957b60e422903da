"""Whether recorded figures are those of the stored scores: a run's own, and its record's, which tables are made from.

Scores are stored as float16. Rounding keeps their order but makes ties, so that the figure is known to lie between two
bounds: every tie broken against the positives, and every tie for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from spml.bench.plan import done_in
from spml.bench.record import COUNTS, check_result, observed_counts, read_record
from spml.errors import UserError
from spml.files import Record, read_json
from spml.metrics import average_precision
from spml.metrics.bootstrap import resampled_map
from spml.model.scoring import validation_map
from spml.runs.names import LABELS, RESULT
from spml.runs.run import Run, Split
from spml.runs.settings import Selection

SLACK = 1e-6  # points of mAP: of the arithmetic
ROUNDED = 0.002  # points of mAP: resampled ones are recorded with three decimals, and sums may be added up otherwise
Labels = npt.NDArray[np.int8]
Ranks = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Check:
    """A figure as recorded, in percent, and what its scores allow.

    Attributes:
        run: the run folder's name, or that of its record where this says something else.
        split: val or test; of a class, its name too.
        recorded: the figure; None where what is recorded cannot be read.
        bounds: between which it lies by the scores; None where these are not there.
        problem: why there are none.
        source: what the bounds are of.
    """

    run: str
    split: str
    recorded: float | None
    bounds: tuple[float, float] | None
    problem: str = ""
    source: str = "scores"

    @property
    def agrees(self) -> bool:
        """Whether the figure is that of the scores."""
        if self.bounds is None or self.recorded is None:
            return False
        return self.bounds[0] - SLACK <= self.recorded <= self.bounds[1] + SLACK

    def __str__(self) -> str:
        found = (
            self.problem
            if self.bounds is None
            else "{} give {:.2f} to {:.2f}".format(self.source, *self.bounds)
        )
        mark = "" if self.agrees else "  NOT CHECKED" if self.bounds is None else "  DIFFERS"
        told = "" if self.recorded is None else f"{self.recorded:.2f} recorded, "
        return f"{self.run}  {self.split:<4}  {told}{found}{mark}"


class _Scored(NamedTuple):
    logits: npt.NDArray[np.float16]
    truth: Labels
    classes: list[str]


def verify(runs: Path, records: Path | None = None) -> Iterator[Check]:
    """Each mAP of the finished runs in a folder of run folders, and of their records, ID.json, where it differs.

    Of the classes' AP and counts, which thirds are made from, and of the resampled mAPs, by which rows are compared,
    those that do not agree.
    """
    folders = sorted(path.parent for path in runs.glob(f"*/{RESULT}"))
    if not folders:
        raise UserError(f"{runs} holds no finished run; give the --out of a bench")
    for folder in folders:
        run = Run(folder)
        file = (records or folder) / f"{folder.name}.json"
        try:
            own, record = _result(run), read_record(file) if file.is_file() else {}
        except UserError as error:  # the other runs are looked at all the same
            yield Check(folder.name, "", None, None, str(error))
            continue
        kept: Record = record.get("result", {})
        splits: tuple[Split, ...] = ("val", "test")
        for split in splits:
            figure = own.get(f"{split}_map")
            told = kept.get(f"{split}_map", figure)
            figures = {
                folder.name: figure,
                **({} if told == figure else {file.name: np.nan if told is None else told}),
            }
            scored, problem = _found(run, split, own["best_epoch"])
            kind: Selection = own["selection"] if split == "val" else "complete"
            yield from _checks(
                scored,
                problem,
                split,
                kind,
                {name: f for name, f in figures.items() if f is not None},
            )
        if scored is not None:  # of the test items
            told_of = {folder.name: own.get("per_class_ap"), file.name: kept.get("per_class_ap")}
            yield from _wrong_classes(
                scored, {name: aps for name, aps in told_of.items() if aps is not None}
            )
            yield from _wrong_draws(scored, file.name, record.get("bootstrap"))
        yield from _wrong_counts(run, file.name, record.get(COUNTS))


def _result(run: Run) -> Record:
    result = run.require_result()
    check_result(result, run.folder / RESULT)
    return result


def without_scores(runs: Path, records: Path) -> int:
    """Runs that are recorded as done, and whose run folder is not there to be looked at."""
    names = {
        path.stem: path for path in records.glob("*.json") if not Run(runs / path.stem).finished
    }
    return sum(done_in(read_json(path)) for path in names.values())


def _checks(
    scored: _Scored | None, problem: str, split: str, kind: Selection, figures: dict[str, float]
) -> Iterator[Check]:
    if figures:
        allowed = scored and bounds(scored.logits, scored.truth, kind)
        yield from (
            Check(name, split, float(figure), allowed, problem) for name, figure in figures.items()
        )


def _wrong_classes(found: _Scored, recorded: dict[str, dict[str, float]]) -> Iterator[Check]:
    """The classes whose AP is not that of the scores."""
    if not recorded:
        return
    low, high = (
        100 * average_precision(ranks, found.truth) for ranks in _ranks(found.logits, found.truth)
    )
    for name, aps in recorded.items():
        for at, label in enumerate(found.classes):
            check = Check(
                name, f"test, {label}", aps.get(label, np.nan), (float(low[at]), float(high[at]))
            )
            if not check.agrees:
                yield check


def _wrong_draws(found: _Scored, name: str, drawn: Record | None) -> Iterator[Check]:
    """The first of a record's resampled mAPs that is not that of the scores; these were taken as they are stored."""
    if drawn is None:
        return
    told = np.asarray(drawn["maps"], np.float64)
    again = resampled_map(found.logits.astype(np.float32), found.truth, len(told), drawn["seed"])
    wrong = np.flatnonzero(~(np.abs(told - again) <= ROUNDED))
    if len(wrong):
        at = int(wrong[0])
        yield Check(name, f"test, draw {at}", float(told[at]), (float(again[at]), float(again[at])))


def _wrong_counts(run: Run, name: str, told: list[float] | None) -> Iterator[Check]:
    """The classes whose observed positives are not those of the run's labels."""
    try:
        again, classes = observed_counts(run), run.classes
    except UserError as error:  # the other runs are looked at all the same
        yield Check(name, "observed", None, None, str(error))
        return
    if told is None or again is None:
        return
    labels = classes or range(len(again))
    for label, own, count in zip_longest(labels, told, again, fillvalue=np.nan):
        check = Check(
            name, f"observed, {label}", float(own), (float(count), float(count)), source="labels"
        )
        if not check.agrees:
            yield check


def _found(run: Run, split: Split, best: int) -> tuple[_Scored | None, str]:
    """Scores and labels of a split, or why they cannot be used: the other runs are looked at all the same."""
    try:
        return _scored(run, split, best), ""
    except UserError as error:
        return None, str(error)


def _scored(run: Run, split: Split, best: int) -> _Scored:
    """Scores and labels of a split: of the test items, or of validation after the best epoch."""
    scores = run.scores(split, best)
    truth = run.test_truth if split == "test" else run.val_truth
    if scores is None:
        raise UserError("no scores")
    if truth is None:
        raise UserError(f"no labels of {split} in {LABELS}" if run.has(LABELS) else f"no {LABELS}")
    if scores.shape != truth.shape:
        path = run.scores_file(split, best)
        raise UserError(
            f"{path}: scores of shape {scores.shape} do not fit the labels {truth.shape}"
        )
    return _Scored(scores, truth, list(run.classes))


def bounds(
    logits: npt.NDArray[np.float16], truth: Labels, selection: Selection
) -> tuple[float, float]:
    """The least and the largest figure, in percent, that scores which round to these can have."""
    against, favouring = _ranks(logits, truth)
    return validation_map(against, truth, selection), validation_map(favouring, truth, selection)


def _ranks(logits: npt.NDArray[np.float16], truth: Labels) -> tuple[Ranks, Ranks]:
    """The order of the items of each class, with every tie broken against the positives, and for them."""
    against, favouring = np.empty(logits.shape, np.float32), np.empty(logits.shape, np.float32)
    for column in range(logits.shape[1]):
        values, positive = logits[:, column], truth[:, column] == 1
        order = np.lexsort((~positive, values))  # rising; positives below what they tie with
        against[order, column] = np.arange(len(values))
        favouring[:, column] = 2 * np.unique(values, return_inverse=True)[1] + positive
    return against, favouring
