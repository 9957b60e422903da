"""`spml figures`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import tyro

from spml.cli import log
from spml.cli.many_runs import ManyRuns
from spml.errors import UserError

if TYPE_CHECKING:
    from spml.analysis.archive import FinishedRun
    from spml.analysis.figures import Figure
    from spml.analysis.sensitivity import Study
    from spml.bench.plan import Case
    from spml.bench.store import RunStore
    from spml.data import Experiment

PURE = ("losses", "gradients")  # need neither data nor runs


@dataclass(frozen=True, kw_only=True)
class Figures(ManyRuns):
    """Draw the figures of the GR Loss paper, with their numbers in .json.

    a losses, b gradients, c sensitivity, d distinguishability, e assumptions, f classes. The runs
    of a figure are trained first, in --out; stop at any time and run the same command to resume.
    With --runs nothing is trained.

    Example: spml figures digits --short --out figures/digits
    """

    order: ClassVar[int] = 160

    seed: int = 0
    """Seed of every run."""
    only: tuple[str, ...] = ()
    """Letters or names of figures, separated by commas or spaces. Default: all."""
    runs: Path | None = None
    """Draw from the finished runs in a folder, without training.
    The folder holds records or run folders."""
    short: bool = False
    """Train only the corners of the grids of hyper-parameters."""
    out: Path | None = None
    """Folder of the figures and of the runs trained for them. Default: figures/DATA."""
    overwrite: bool = False
    """Replace files of other programs that have a figure's name."""
    quiet: bool = False
    """Print only errors."""

    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[DATA]")] = ""
    """digits, digits-many, voc, coco, nuswide, cub, or a file's path. With --runs only figure f
    needs it."""

    def run(self) -> None:
        """Train missing runs, draw the figures, and report those that cannot be drawn."""
        from spml.analysis.figures import Source, draw, refuse_foreign
        from spml.analysis.sensitivity import STUDIES, short_form

        wanted = self._wanted()
        impure = any(figure.name not in PURE for figure in wanted)
        if not self.data and self.runs is None and impure:
            raise UserError("give DATA, such as digits; or --runs FOLDER, whose runs are drawn")
        self._check_counts("jobs")
        out = self.out or Path("figures") / (Path(self.data).stem if self.data else "runs")
        for figure in wanted:
            if not self.overwrite:
                refuse_foreign(figure, out)
        studies = short_form() if self.short else STUDIES
        experiment = self._experiment(wanted)
        runs, counts = self._runs(wanted, studies, out, experiment)
        source = Source(runs, studies, self._filter(), experiment)
        undrawn = []
        for figure in wanted:
            try:
                note = draw(figure, source, out)
            except UserError as error:
                undrawn.append(figure)
                log(f"{figure.name} is not drawn: {error}")
                continue
            if not self.quiet:
                print(f"{out / figure.name}.svg, .png, .json" + (f": {note}" if note else ""))
        if undrawn == wanted:
            raise SystemExit(1)
        if counts:
            self.report_open(*counts)

    def _wanted(self) -> list[Figure]:
        from spml.analysis.figures import FIGURES

        by_name = {figure.name: figure for figure in FIGURES.values()} | FIGURES
        names = [name for text in self.only for name in text.split(",") if name] or list(FIGURES)
        unknown = [name for name in names if name not in by_name]
        if unknown:
            known = ", ".join(f"{letter} {figure.name}" for letter, figure in FIGURES.items())
            raise UserError(f"--only {unknown[0]}: no such figure; figures: {known}")
        return list(dict.fromkeys(by_name[name] for name in names))

    def _experiment(self, wanted: list[Figure]) -> Experiment | None:
        """Load the data, if runs need them or a figure draws them."""
        names = {figure.name for figure in wanted}
        if not self.data or names <= set(PURE) or (self.runs and "classes" not in names):
            return None
        try:
            return self.load(self.data, self.observe_seed, self.split_seed)
        except UserError as error:
            if self.runs is None:
                raise
            log(str(error))  # the other figures do not need the data
            return None

    def _runs(
        self,
        wanted: list[Figure],
        studies: Sequence[Study],
        out: Path,
        experiment: Experiment | None,
    ) -> tuple[list[FinishedRun], tuple[dict[str, int], RunStore] | None]:
        """Return the finished runs, and the counts and store of the runs that were trained."""
        from spml.analysis.archive import find
        from spml.bench.plan import Plan
        from spml.bench.store import RunStore

        if self.runs is not None:
            runs, problems = find(self.runs)
            for problem in problems:
                log(f"left out: {problem}")
            return runs, None
        cases = [case for figure in wanted for case in figure.cases(studies)]
        if not cases or experiment is None:
            return [], None
        plan = Plan("figures", self.data, tuple(cases), (self.seed,), self.changed_settings()[0])
        first: dict[str, Case] = {}
        for run, case in zip(plan.runs(lambda name: None), cases, strict=True):
            first.setdefault(run.id, case)
        plan = replace(plan, cases=tuple(first.values()))
        store = RunStore(out)
        counts = self.train_all(plan, store, experiment, quiet=self.quiet)
        return [run for run in find(out)[0] if run.name in first], (counts, store)

    def _filter(self) -> dict[str, Any]:
        """Return the settings by which runs of --runs are selected."""
        if self.runs is None:
            return {}
        settings = self.changed_settings()[0]
        settings.pop("weights", None)  # weight files may have any name
        named = {"data": self.data} if self.data and not Path(self.data).suffix else {}
        return settings | named | ({"seed": self.seed} if self.seed else {})
