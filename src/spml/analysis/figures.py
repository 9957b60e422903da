"""The paper's figures by letter: the runs each needs, and its files."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spml.analysis.archive import FinishedRun, comparable, run_of
from spml.analysis.confidences import Unknown, assumptions, distinguishability, unknown_labels
from spml.analysis.gradients import gradient_curves, loss_curves
from spml.analysis.plots import (
    draw_assumptions,
    draw_distinguishability,
    draw_gradients,
    draw_losses,
    draw_sensitivity,
)
from spml.analysis.plots_classes import draw_classes
from spml.analysis.sensitivity import GR, LINES, STUDIES, Study, sensitivity
from spml.bench.plan import Case, SettingValues
from spml.bench.record import as_text
from spml.data.statistics import statistics
from spml.errors import UserError
from spml.files import write_text
from spml.report.format import chosen_by

if TYPE_CHECKING:
    from spml.data import Experiment

MAKER = "spml figures"
KINDS = (".svg", ".png")
SCORED = (GR, LINES[0])  # GR and AN: the figures of confidences compare them


@dataclass(frozen=True)
class Source:
    """Runs and data that figures are drawn from; `settings` are those that the runs must have."""

    runs: Sequence[FinishedRun] = ()
    studies: Sequence[Study] = STUDIES
    settings: SettingValues = field(default_factory=dict)
    experiment: Experiment | None = None

    def scored(self) -> list[Unknown]:
        """Return the unknown labels of GR and AN; raise UserError without runs with scores."""
        stored = [run for run in self.runs if run.folder is not None]
        group = comparable(stored, SCORED, self.settings)
        chosen = [run for case in SCORED if (run := run_of(case, group)) is not None]
        folders = [run.folder for run in chosen if run.folder is not None]
        if len(folders) < len(SCORED):
            raise UserError("needs finished runs of gr and an in one setting, with their scores")
        return [unknown_labels(folder) for folder in folders]


Drawn = tuple[Any, str]  # the study's data, and a note on missing runs


@dataclass(frozen=True)
class Figure:
    """One of the paper's figures: `cases` returns the runs that it needs."""

    name: str
    draw: Callable[[Source, Sequence[Path]], Drawn]
    cases: Callable[[Sequence[Study]], Sequence[Case]] = lambda studies: ()


def _distinguishability(source: Source, files: Sequence[Path]) -> Drawn:
    return _painted(list(map(distinguishability, source.scored())), draw_distinguishability, files)


def _assumptions(source: Source, files: Sequence[Path]) -> Drawn:
    parts = [assumptions(unknown, unknown.observed_share) for unknown in source.scored()]
    return _painted(parts, draw_assumptions, files)


def _painted(parts: Sequence[Any], paint: Callable[..., None], files: Sequence[Path]) -> Drawn:
    paint(parts, *files)
    return [asdict(part) for part in parts], ""


def _sensitivity(source: Source, files: Sequence[Path]) -> Drawn:
    group = comparable(source.runs, study_cases(source.studies), source.settings)
    studies = sensitivity(group, source.studies)
    done = sum(len(study.done) for study in studies)
    total = sum(len(study.points) for study in studies)
    if not done:
        raise UserError("needs runs of gr with the settings of the grid")
    kinds = {run.result.get("selection") for run in group}
    draw_sensitivity(studies, *files, chosen_by=f"validation {chosen_by(kinds)}")
    note = "" if done == total else f"{done} of {total} settings were run"
    return [asdict(study) for study in studies], note


def _classes(source: Source, files: Sequence[Path]) -> Drawn:
    if source.experiment is None:
        raise UserError("needs the data: give DATA, and --root if its files are elsewhere")
    counts = statistics(source.experiment)
    draw_classes(counts, *files)
    return counts.to_json(), ""


def study_cases(studies: Sequence[Study]) -> tuple[Case, ...]:
    """Return the runs of the studies and of the methods they are compared with."""
    return (*LINES, GR, *(case for study in studies for case in study.cases))


FIGURES = {
    "a": Figure("losses", lambda source, files: _painted(loss_curves(), draw_losses, files)),
    "b": Figure(
        "gradients", lambda source, files: _painted(gradient_curves(), draw_gradients, files)
    ),
    "c": Figure("sensitivity", _sensitivity, study_cases),
    "d": Figure("distinguishability", _distinguishability, lambda studies: SCORED),
    "e": Figure("assumptions", _assumptions, lambda studies: SCORED),
    "f": Figure("classes", _classes),
}


def files_of(figure: Figure, folder: Path) -> list[Path]:
    """Return the paths of the drawings."""
    return [folder / f"{figure.name}{kind}" for kind in KINDS]


def refuse_foreign(figure: Figure, folder: Path) -> None:
    """Raise UserError if a file of the figure's name exists that this program did not draw."""
    data = folder / f"{figure.name}.json"
    try:
        ours = json.loads(data.read_text(encoding="utf-8")).get("made_by") == MAKER
    except (OSError, ValueError, AttributeError):
        ours = False
    for file in (*files_of(figure, folder), data):
        if file.exists() and not ours:
            raise UserError(f"{file} exists; give another --out or --overwrite")


def draw(figure: Figure, source: Source, folder: Path) -> str:
    """Write the figure and a JSON file of its data; return a note on missing runs."""
    study, note = figure.draw(source, files_of(figure, folder))
    about = {"figure": figure.name, "made_by": MAKER, "wanting": note}
    study = _rounded(study)
    expanded = ("study",) if isinstance(study, list) else ()
    write_text(folder / f"{figure.name}.json", as_text({**about, "study": study}, *expanded))
    return note


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(part) for part in value]
    return float(f"{value:.7g}") if isinstance(value, float) else value
