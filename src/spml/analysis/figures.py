"""The paper's figures by letter: what each needs, and its files."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spml.analysis.archive import Made, comparable, the
from spml.analysis.sensitivity import GR, LINES, STUDIES, Study
from spml.bench.plan import Case
from spml.errors import UserError
from spml.files import write_text

if TYPE_CHECKING:
    from spml.analysis.unknown import Unknown
    from spml.data import Experiment

MAKER = "spml figures"
KINDS = (".svg", ".png")
SCORED = (GR, LINES[0])  # GR and AN, whose confidences are looked at


@dataclass(frozen=True)
class Source:
    """What there is to draw from.

    Attributes:
        made: finished runs.
        studies: of hyper-parameters.
        given: settings that the runs must have.
        experiment: the data; None where only runs are there.
    """

    made: Sequence[Made] = ()
    studies: Sequence[Study] = STUDIES
    given: dict[str, Any] = field(default_factory=dict)
    experiment: Experiment | None = None

    def scored(self) -> list[Unknown]:
        """Unknown labels of GR and AN; UserError where a run with scores is wanting."""
        from spml.analysis.unknown import unknown_labels

        there = [run for run in self.made if run.folder is not None]
        group = comparable(there, SCORED, self.given)
        found = [
            run.folder
            for case in SCORED
            if (run := the(case, group)) is not None and run.folder is not None
        ]
        if len(found) < len(SCORED):
            raise UserError(
                "it needs finished runs of gr and of an in one setting, with their scores"
            )
        return [unknown_labels(folder) for folder in found]


Drawn = tuple[Any, str]  # the study's data, and a sentence on what is wanting


@dataclass(frozen=True)
class Figure:
    """One of the paper's figures.

    Attributes:
        name: of its files.
        draw: from a source to the study's data, drawing the files; with what is wanting, if anything is.
        cases: runs that it needs.
    """

    name: str
    draw: Callable[[Source, Sequence[Path]], Drawn]
    cases: Callable[[Sequence[Study]], Sequence[Case]] = lambda studies: ()


def _losses(source: Source, files: Sequence[Path]) -> Drawn:
    from spml.analysis import gradients, plots

    curves = gradients.loss_curves()
    plots.draw_losses(curves, *files)
    return [asdict(curve) for curve in curves], ""


def _gradients(source: Source, files: Sequence[Path]) -> Drawn:
    from spml.analysis import gradients, plots

    curves = gradients.gradient_curves()
    plots.draw_gradients(curves, *files)
    return [asdict(curve) for curve in curves], ""


def _sensitivity(source: Source, files: Sequence[Path]) -> Drawn:
    from spml.analysis import plots
    from spml.analysis.sensitivity import sensitivity
    from spml.report.format import chosen_by

    group = comparable(source.made, study_cases(source.studies), source.given)
    found = sensitivity(group, source.studies)
    done, every = sum(len(study.done) for study in found), sum(len(study.points) for study in found)
    if not done:
        raise UserError("it needs runs of gr with the settings of the grid")
    kinds = {run.result.get("selection") for run in group}
    plots.draw_sensitivity(found, *files, chosen_by=f"validation {chosen_by(kinds)}")
    return [
        asdict(study) for study in found
    ], "" if done == every else f"{done} of {every} settings were run"


def _distinguishability(source: Source, files: Sequence[Path]) -> Drawn:
    from spml.analysis.distinguishability import distinguishability
    from spml.analysis.plots_confidence import draw_distinguishability

    found = [distinguishability(unknown) for unknown in source.scored()]
    draw_distinguishability(found, *files)
    return [asdict(one) for one in found], ""


def _assumptions(source: Source, files: Sequence[Path]) -> Drawn:
    from spml.analysis.assumptions import assumptions
    from spml.analysis.plots_confidence import draw_assumptions

    found = [assumptions(unknown, unknown.observed_share) for unknown in source.scored()]
    draw_assumptions(found, *files)
    return [asdict(one) for one in found], ""


def _classes(source: Source, files: Sequence[Path]) -> Drawn:
    from spml.analysis.plots_classes import draw_classes
    from spml.data.statistics import statistics

    if source.experiment is None:
        raise UserError("it needs the data themselves: give DATA and, where they are files, --root")
    found = statistics(source.experiment)
    draw_classes(found, *files)
    return found.to_json(), ""


def study_cases(studies: Sequence[Study]) -> tuple[Case, ...]:
    """The runs of the studies, and of the levels that they are held against."""
    return (*LINES, GR, *(case for study in studies for case in study.cases))


FIGURES = {
    "a": Figure("losses", _losses),
    "b": Figure("gradients", _gradients),
    "c": Figure("sensitivity", _sensitivity, study_cases),
    "d": Figure("distinguishability", _distinguishability, lambda studies: SCORED),
    "e": Figure("assumptions", _assumptions, lambda studies: SCORED),
    "f": Figure("classes", _classes),
}


def files_of(figure: Figure, folder: Path) -> list[Path]:
    """The drawings."""
    return [folder / f"{figure.name}{kind}" for kind in KINDS]


def refuse_foreign(figure: Figure, folder: Path) -> None:
    """Raise UserError where a file of the figure's name is there that this did not draw."""
    data = folder / f"{figure.name}.json"
    try:
        ours = json.loads(data.read_text(encoding="utf-8")).get("made_by") == MAKER
    except (OSError, ValueError, AttributeError):
        ours = False
    for file in (*files_of(figure, folder), data):
        if file.exists() and not ours:
            raise UserError(f"{file} is already there; give another --out or --overwrite")


def draw(figure: Figure, source: Source, folder: Path) -> str:
    """Write the figure and its data beside; a sentence on what is wanting in it, if anything is."""
    study, wanting = figure.draw(source, files_of(figure, folder))
    about = {"figure": figure.name, "made_by": MAKER, "wanting": wanting}
    lines = [
        f"  {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}"
        for name, value in about.items()
    ]
    write_text(
        folder / f"{figure.name}.json",
        "{\n" + ",\n".join(lines) + ',\n  "study": ' + _text(study) + "\n}\n",
    )
    return wanting


def _text(study: Any) -> str:
    """JSON with a line for each part of a list, numbers to seven digits."""
    short = _rounded(study)
    if isinstance(short, list):
        return (
            "[\n"
            + ",\n".join(f"    {json.dumps(part, ensure_ascii=False)}" for part in short)
            + "\n  ]"
        )
    return json.dumps(short, ensure_ascii=False)


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(part) for part in value]
    return float(f"{value:.7g}") if isinstance(value, float) else value
