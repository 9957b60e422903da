"""How GR's figure depends on its hyper-parameters: the grid that the paper looked at, and what its runs came to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from spml.analysis.archive import Made, the
from spml.bench.plan import Case
from spml.losses.gr import ALPHA, BETA

QS = (0.01, 0.25, 0.5, 0.75, 1.0)
Q3 = (*QS, 1.5)
LINES = (Case("AN", "an"), Case("EM", "em"))  # drawn as levels
GR = Case("GR", "gr")


@dataclass(frozen=True)
class Point:
    """A setting of GR.

    Attributes:
        line: that it lies on.
        x: its place there.
        options: of GR.
        label: of its row in a table.
    """

    line: str
    x: float
    options: dict[str, Any]
    label: str

    @property
    def case(self) -> Case:
        """As a row of a table."""
        return Case(self.label, "gr", self.options)


@dataclass(frozen=True)
class Study:
    """A grid of settings.

    Attributes:
        name: of the hyper-parameters.
        axis: what x is.
        points: of the grid.
    """

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


def _moving(label: str, q3: Any) -> Point:
    return Point(label, 0.0, {"q3": q3}, label)


MOVES = "moving q3"
STUDIES = (
    Study("β", "τ = −b/w at the end", tuple(map(_beta, BETA))),
    Study("α", "μ at the end", tuple(map(_alpha, ALPHA))),
    Study("q", "q3", tuple(_q(q2, q3) for q2 in QS for q3 in Q3)),
    Study(
        MOVES,
        "epoch",
        (
            *(_moving(f"q3 = {q3:g}", q3) for q3 in (1.0, 0.01)),
            *(
                _moving(f"q3 from {start:g} to {end:g}", (start, end))
                for start, end in ((0.01, 1.0), (1.0, 0.01))
            ),
        ),
    ),
)


def short_form() -> tuple[Study, ...]:
    """The same studies at the corners of their grids, for a first look."""
    return tuple(
        study if study.name == MOVES else replace(study, points=_corners(study))
        for study in STUDIES
    )


def _corners(study: Study) -> tuple[Point, ...]:
    lines, places = [point.line for point in study.points], [point.x for point in study.points]
    ends = {lines[0], lines[-1]}
    return tuple(
        point
        for point in study.points
        if point.line in ends and point.x in (min(places), max(places))
    )


@dataclass(frozen=True)
class Found:
    """What the run of a setting came to.

    Attributes:
        line: as the point's.
        x: as the point's.
        label: as the point's.
        run: the run's name; None while there is none.
        test_map: in percent; None without a run or without a test split.
        val_map: of the chosen epoch.
        by_epoch: validation mAP after each epoch, 0 being before training.
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
    """A study with its results.

    Attributes:
        name: of the study.
        axis: what x is.
        points: of the grid, with or without a run.
        levels: AN and EM.
    """

    name: str
    axis: str
    points: tuple[Found, ...]
    levels: tuple[Found, ...]

    @property
    def done(self) -> list[Found]:
        """The points with a run."""
        return [point for point in self.points if point.run is not None]


def sensitivity(made: Sequence[Made], studies: Sequence[Study] = STUDIES) -> list[Sensitivity]:
    """Every study with what the runs, all of one setting and seed, came to."""
    levels = tuple(_found(case.label, 0.0, case, made) for case in LINES)
    return [
        Sensitivity(
            study.name,
            study.axis,
            tuple(_found(point.line, point.x, point.case, made) for point in study.points),
            levels,
        )
        for study in studies
    ]


def _found(line: str, x: float, case: Case, made: Sequence[Made]) -> Found:
    run = the(case, made)
    if run is None:
        return Found(line, x, case.label)
    by_epoch = tuple(record.get("val_map") for record in run.history)
    return Found(
        line, x, case.label, run.name, run.result.get("test_map"), run.result["val_map"], by_epoch
    )
