"""Sensitivity of GR to its hyper-parameters: the paper's grid and the results of its runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from spml.analysis.archive import FinishedRun, run_of
from spml.bench.plan import Case
from spml.losses.gr import ALPHA, BETA

QS = (0.01, 0.25, 0.5, 0.75, 1.0)
Q3 = (*QS, 1.5)
LINES = (Case("AN", "an"), Case("EM", "em"))  # drawn as horizontal lines
GR = Case("GR", "gr")


@dataclass(frozen=True)
class Point:
    """A setting of GR: a point of a line of the drawing, at `x`, and a row of a table."""

    line: str
    x: float
    options: dict[str, Any]
    label: str

    @property
    def case(self) -> Case:
        """The setting as a row of a table."""
        return Case(self.label, "gr", self.options)


@dataclass(frozen=True)
class Study:
    """A grid of settings, drawn over the axis of that name."""

    name: str
    axis: str
    points: tuple[Point, ...]

    @property
    def cases(self) -> tuple[Case, ...]:
        """Rows of a table."""
        return tuple(point.case for point in self.points)


def _beta(options: dict[str, Any]) -> Point:
    b, tau = options["b"][1], round(-options["b"][1] / options["w"][1], 4)
    return Point(f"b = −{-b:g}", tau, options, f"b = {b:g}, τ = {tau:.1f}")


def _alpha(options: dict[str, Any]) -> Point:
    mu, sigma = options["mu"][1], options["sigma"][1]
    return Point(f"σ = {sigma:g}", mu, options, f"σ = {sigma:g}, μ = {mu:g}")


def _q(q2: float, q3: float) -> Point:
    return Point(f"q2 = {q2:g}", q3, {"q2": q2, "q3": q3}, f"q2 = {q2:g}, q3 = {q3:g}")


MOVES = "moving q3"
MOVING: dict[str, Any] = {
    "q3 = 1": 1.0,
    "q3 = 0.01": 0.01,
    "q3 from 0.01 to 1": (0.01, 1.0),
    "q3 from 1 to 0.01": (1.0, 0.01),
}
STUDIES = (
    Study("β", "τ = −b/w at the end", tuple(map(_beta, BETA))),
    Study("α", "μ at the end", tuple(map(_alpha, ALPHA))),
    Study("q", "q3", tuple(_q(q2, q3) for q2 in QS for q3 in Q3)),
    Study(MOVES, "epoch", tuple(Point(name, 0.0, {"q3": q3}, name) for name, q3 in MOVING.items())),
)


def short_form() -> tuple[Study, ...]:
    """Return the studies reduced to the corners of their grids."""
    return tuple(
        study if study.name == MOVES else replace(study, points=_corners(study))
        for study in STUDIES
    )


def _corners(study: Study) -> tuple[Point, ...]:
    lines, places = [point.line for point in study.points], [point.x for point in study.points]
    rows, columns = {lines[0], lines[-1]}, {min(places), max(places)}
    return tuple(point for point in study.points if point.line in rows and point.x in columns)


@dataclass(frozen=True)
class PointResult:
    """The result of a setting; figures are None without a run, `test_map` without a test split.

    `by_epoch` has the validation figure before training and after each epoch.
    """

    line: str
    x: float
    label: str
    run: str | None = None
    test_map: float | None = None
    val_map: float | None = None
    by_epoch: tuple[float | None, ...] = ()


@dataclass(frozen=True)
class Sensitivity:
    """A study with its results; `levels` are those of AN and EM."""

    name: str
    axis: str
    points: tuple[PointResult, ...]
    levels: tuple[PointResult, ...]

    @property
    def done(self) -> list[PointResult]:
        """Points with a run."""
        return [point for point in self.points if point.run is not None]


def sensitivity(
    runs: Sequence[FinishedRun], studies: Sequence[Study] = STUDIES
) -> list[Sensitivity]:
    """Return every study with its runs' results; the runs share the seed and all other settings."""
    levels = tuple(_result_of(Point(case.label, 0.0, {}, case.label), case, runs) for case in LINES)
    return [
        Sensitivity(
            study.name,
            study.axis,
            tuple(_result_of(point, point.case, runs) for point in study.points),
            levels,
        )
        for study in studies
    ]


def _result_of(point: Point, case: Case, runs: Sequence[FinishedRun]) -> PointResult:
    run, where = run_of(case, runs), (point.line, point.x, point.label)
    if run is None:
        return PointResult(*where)
    by_epoch = tuple(record.get("val_map") for record in run.history)
    test, val = run.result.get("test_map"), run.result["val_map"]
    return PointResult(*where, run.name, test, val, by_epoch)
