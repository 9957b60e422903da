"""Write docs/reproduction.md's generated parts, figures and list of runs, and README's table.

All numbers come from the recorded runs on VOC2012.

python benchmarks/reproduction.py               # the page and the figures a to e
python benchmarks/reproduction.py --root VOC    # figure f too, which needs the labels of VOC2012
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from claims import claims, main_table
from figure_blocks import classes, confidences, quoted, sensitivity
from from_scores import SURE, Family
from plans import FRESH, LR, ONE_RATE, cost
from recorded import (
    OPEN,
    Recorded,
    interval,
    markdown,
    measured,
    result_table,
    runs_csv,
    shell_function,
    trial_state,
)
from render import render
from scipy.stats import ttest_ind
from verdicts import BUDGETS, DRAWS, NO, YES
from voc_plan import BACKBONES, REFERENCE, STUDIED

from spml.analysis.archive import find
from spml.analysis.confidences import (
    Assumptions,
    Distinguishability,
    assumptions,
    distinguishability,
)
from spml.analysis.figures import FIGURES, Source, draw
from spml.analysis.sensitivity import STUDIES
from spml.bench.plan import Case
from spml.errors import UserError
from spml.metrics.bootstrap import Comparison
from spml.report.format import signed

PAGE = Path(__file__).parents[1] / "docs" / "reproduction.md"
README = PAGE.parents[1] / "README.md"
RUNS = PAGE.parent / "voc2012-runs.csv"
COVERAGE = Path(__file__).parent / "results" / "verdict-coverage.json"
FIGURE_FOLDER = PAGE.parent / "figures"
NEAR = 0.5
SWITCHED = {  # row of the plan: the paper, the released code
    "one schedule, t/T": (
        "one schedule t/T for β and α",
        "β one epoch late: it never reaches its end",
    ),
    "q1 = 0.01": ("L1 with q1 = 0.01", "−log p"),
    "b(0) of Assumption 1": ("b(0) by Assumption 1, −3.70 on VOC", "b(0) = −2"),
    "as written": ("all of: one schedule, q1 = 0.01, sum over classes", "as released"),
    "one learning rate": ("one learning rate", "the head learns ten times as fast"),
    "early stop": ("not mentioned", "stops when validation falls 2 points below its best"),
}


class Page:
    """The blocks of the page; each depends only on the recorded runs."""

    def __init__(self, known: Recorded) -> None:
        self.known = known

    @cached_property
    def source(self) -> Source:
        return Source(find(self.known.store.home)[0], settings=STUDIED)

    @cached_property
    def apart(self) -> list[Distinguishability]:
        try:
            return [distinguishability(unknown) for unknown in self.source.scored()]
        except UserError:
            return []

    @cached_property
    def families(self) -> list[Family]:
        try:
            return [Family.of(unknown) for unknown in self.source.scored()]
        except UserError:
            return []

    @cached_property
    def ends(self) -> list[Assumptions]:
        try:
            return [
                assumptions(unknown, unknown.observed_share) for unknown in self.source.scored()
            ]
        except UserError:
            return []

    def blocks(self) -> dict[str, Callable[[], str]]:
        names = (
            "state",
            "claims",
            "table_a",
            "table_b",
            "new_runs",
            "query_heads",
            "table_3",
            "switches",
            "below_an",
            "pixels",
        )
        own = {
            name.replace("_", "-"): getattr(self, name)
            for name in (*names, "best_of_grids", "backbones")
        }
        return own | {
            "rule": rule_coverage,
            "command": lambda: f"```\n{shell_function()}\n```",
            "sensitivity": lambda: sensitivity(self.known),
            "confidences": lambda: confidences(self.known, self.apart, self.ends),
            "classes": lambda: classes(FIGURE_FOLDER / "classes.json"),
            "quoted": quoted,
        }

    def state(self) -> str:
        lines = [["table", "runs recorded"], ["---"] * 2]
        for plan in self.known.every:
            done, every = self.known.done(plan)
            lines.append([plan.table, f"{done} of {every}"])
        return markdown(lines)

    def claims(self) -> str:
        lines = [["the paper", "here", ""], ["---"] * 3]
        verdicts = list(claims(self.known, self.families))
        lines += [[claim.paper, claim.here, claim.verdict] for claim in verdicts]
        count = {
            verdict: sum(claim.verdict == verdict for claim in verdicts)
            for verdict in (YES, NO, OPEN)
        }
        rest = len(verdicts) - sum(count.values())
        summary = (
            f"The recorded runs support {count[YES]} of {len(verdicts)} statements and do not "
            f"support {count[NO]}; {rest} are supported in part or undecided, "
            f"{count[OPEN]} wait for runs."
        )
        return f"{summary}\n\n{markdown(lines)}"

    def table_a(self) -> str:
        plan = self.known.plan("Table A")
        lines = [["method", "test mAP", "reference", "difference"], ["---"] * 4]
        differences = {}
        for case in plan.cases:
            (run,) = self.known.finals(plan, case)
            record, other = self.known.record(run), REFERENCE[case.method]
            own = None if record is None else record["result"]["test_map"]
            if own is not None:
                differences[case.method] = own - other
            cells = [f"{OPEN} (0 of 1)", f"{other:.2f}", ""] if own is None else _beside(own, other)
            lines.append([case.label, *cells])
        far = [
            f"{name} ({signed(value)})" for name, value in differences.items() if abs(value) > NEAR
        ]
        near = len(differences) - len(far)
        text = f"{near} of {len(differences)} finished methods lie within {NEAR} of the reference"
        text += f"; not {', '.join(far)}." if far else "."
        text += "".join(self._more_seeds(method) for method in ("an", "gr"))
        text += self._looked_for() if "an" in differences and abs(differences["an"]) > NEAR else ""
        return "\n\n".join([text, markdown(lines)])

    def _seeds(self, method: str) -> list[float]:
        """Test mAP of Table A's settings with all seeds; most runs are from the study of pixels."""
        plans = [self.known.plan("Table A"), self.known.plan(f"pixels, {method}")]
        runs = [
            run for plan in plans for case in plan.cases for run in self.known.finals(plan, case)
        ]
        same = {run.id: run for run in runs if run.method == method and run.data == plans[0].data}
        return [
            record["result"]["test_map"]
            for run in same.values()
            if (record := self.known.record(run))
        ]

    def _more_seeds(self, method: str) -> str:
        maps = self._seeds(method)
        if len(maps) < 2:
            return ""
        spread = f"{statistics.mean(maps):.2f} ± {statistics.stdev(maps):.2f}"
        span = f"from {min(maps):.2f} to {max(maps):.2f}"
        return f" With {len(maps)} seeds {method} has {spread}, {span}."

    def _looked_for(self) -> str:
        """Possible reasons for the difference of AN from the reference, tested by runs."""
        tuned = self.known.plan("Table B")
        own = next(case for case in tuned.cases if case.label == "an")
        trials = [
            run for run in tuned.trials(own, self.known.store.outcome) if run.settings["lr"] == LR
        ]
        tried = {bool(run.options): record for run in trials if (record := self.known.record(run))}
        pictures = self.known.row("pixels, an", "an, original")
        seeds = self._seeds("an")
        if len(tried) < 2 or not pictures.seeds or len(seeds) < 3:
            return ""
        # pooled, so that the one run has our deviation
        chance = float(ttest_ind([REFERENCE["an"]], seeds).pvalue)
        changed = {
            "the original pictures": pictures.test.mean or 0.0,
            "ε = 1e-5 inside the logarithm, as its code has it": tried[True]["result"]["test_map"],
        }
        off = abs(tried[False]["result"]["test_map"] - REFERENCE["an"])
        nearer = [what for what, figure in changed.items() if abs(figure - REFERENCE["an"]) < off]
        maps = [line["val_map"] for line in tried[False]["history"][1:]]
        listed = "; ".join(f"{what} ({figure:.2f})" for what, figure in changed.items())
        near = f"nearer to {REFERENCE['an']:.2f}: {' and '.join(nearer) or 'neither'}"
        return (
            f" The difference of an {'can' if chance > SURE else 'can hardly'} be chance:"
            f" a t-test of one run at {REFERENCE['an']:.2f} against our {len(seeds)} seeds"
            f" has p = {chance:.2f}."
            f" Also tried: {listed}; {near}. an overfits: its validation mAP falls by"
            f" {max(maps) - maps[-1]:.1f} from the best epoch to the last, so its figure depends"
            " strongly on the chosen epoch. The reference run has no history."
        )

    def table_b(self) -> str:
        plan = self.known.plan("Table B")
        return (
            result_table(self.known, plan, quoted=True, thirds=True)
            + "\n\n"
            + trial_state(self.known, plan)
        )

    def new_runs(self) -> str:
        """The tables with equal budgets and several draws, as far as they are run."""
        parts = []
        for name in (BUDGETS, DRAWS):
            plan = self.known.plan(name)
            done, every = self.known.done(plan)
            if done < every:
                parts.append(f"{name}: {OPEN} ({done} of {every}).")
            else:
                parts.append(f"{name}:\n\n{result_table(self.known, plan)}")
        left = cost(self.known.setup, self.known.every, self.known.store)
        parts.append(f"Open in all tables (`python benchmarks/voc_plan.py`): at most {left}.")
        return "\n\n".join(parts)

    def in_short(self) -> str:
        """The complete rows of Table B, the best first."""
        rows = [
            row
            for row in self.known.table(self.known.plan(main_table(self.known)), "an").rows
            if row.seeds == row.wanted and row.label not in ONE_RATE
        ]
        rows.sort(key=lambda row: -(row.test.mean or 0.0))
        lines = [["method", "test mAP", "− an"], ["---"] * 3]
        lines += [
            [f"`{r.label}`", measured(r), "" if r.versus is None else interval(r.versus)]
            for r in rows
        ]
        bound = (
            "\n\n`full` sees every label and is the upper bound."
            if "full" in {row.label for row in rows}
            else ""
        )
        return markdown(lines) + bound + self._at_one_rate() + self._by_backbone()

    def _at_one_rate(self) -> str:
        """A sentence on methods with a query head: their figures at the rate of the backbone."""
        rows = {
            row.label: row
            for row in self.known.table(self.known.plan("query heads")).rows
            if row.seeds
        }
        slower = {method: rows[label] for method, label in ONE_RATE.items() if label in rows}
        if not slower:
            return ""
        figures = " and ".join(
            f"`{method}` has {measured(row)} (one run)" for method, row in slower.items()
        )
        return (
            f" Not listed: {' and '.join(f'`{method}`' for method in slower)}, whose transformers"
            " fail where all heads learn ten times as fast as the backbone, as here; at one rate"
            f" for both {figures} ([more](docs/reproduction.md#query-heads))."
        )

    def _by_backbone(self) -> str:
        """A sentence on the difference of GR and AN with other backbones."""
        rows = {name: self.known.row(f"backbone, {name}", "an") for name in BACKBONES}
        text = "; ".join(
            f"{name} {interval(row.versus, -1)}"
            for name, row in rows.items()
            if row.versus is not None
        )
        where = "[other backbones](docs/reproduction.md#other-backbones)"
        return text and f"\n\n`gr` − `an` with {where}: {text}. Begin with pretrained weights."

    def table_3(self) -> str:
        plan = self.known.plan("Table 3")
        return result_table(self.known, plan, quoted=True) + "\n\n" + trial_state(self.known, plan)

    def switches(self) -> str:
        plan = self.known.plan("switches")
        rows = {row.label: row for row in self.known.table(plan).rows}
        lines = [["the paper", "the released code", "measured effect of the change"], ["---"] * 3]
        for label, (paper, code) in SWITCHED.items():
            row = rows[label]
            effect = f"{OPEN} ({row.seeds} of {row.wanted})"
            if row.versus is not None:
                v = row.versus
                effect = f"{interval(v)}, {v.seeds} of {row.wanted} seeds"
            lines.append([paper, code, effect])
        return "\n\n".join([markdown(lines), *self._stopped()])

    def _stopped(self) -> list[str]:
        """A sentence on how many of the runs that may stop early did so."""
        plan = self.known.plan("switches")
        case = next(case for case in plan.cases if case.label == "early stop")
        done = [
            record for run in self.known.finals(plan, case) if (record := self.known.record(run))
        ]
        if not done:
            return []
        maps = [[line["val_map"] for line in record["history"]] for record in done]
        fall = max(max(some[: at + 1]) - value for some in maps for at, value in enumerate(some))
        ended = sum(
            len(some) - 1 < record["config"]["epochs"]
            for some, record in zip(maps, done, strict=True)
        )
        if ended:
            return [f"{ended} of {len(done)} runs stopped early."]
        return [
            f"No run stopped early: validation mAP is never more than {fall:.2f} below its best. "
            "The last row above therefore shows how much equal runs differ on a GPU."
        ]

    def below_an(self) -> str:
        plan = self.known.plan("below an on digits")
        return result_table(self.known, plan, thirds=True, base="none")

    def query_heads(self) -> str:
        return result_table(self.known, self.known.plan("query heads"))

    def pixels(self) -> str:
        parts = []
        for method in ("an", "gr"):
            plan = self.known.plan(f"pixels, {method}")
            other = self.known.table(plan).rows[1]
            v, text = other.versus, f"{OPEN} (0 of {len(FRESH)} pairs)."
            if v is not None:
                text = f"{interval(v)}, {v.seeds} of {len(FRESH)} pairs."
            parts += [
                f"{method}, copy minus original: {text}",
                result_table(self.known, plan),
            ]
        return "\n\n".join(parts)

    def best_of_grids(self) -> str:
        """The setting of all grids with the best validation mAP, next to published GR and EM."""
        plans = [self.known.plan(f"sensitivity, {study.name}") for study in STUDIES]
        runs = [
            (case, run)
            for plan in plans
            for case in plan.cases
            for run in self.known.finals(plan, case)
        ]
        done = [
            (record["result"]["val_map"], case)
            for case, run in runs
            if (record := self.known.record(run))
        ]
        if not done:
            return f"{OPEN} (0 of {len(runs)})"
        best = max(done, key=lambda pair: pair[0])[1]
        cases = (Case("gr", "gr"), replace(best, label=f"gr, {best.label}"), Case("em", "em"))
        return result_table(self.known, replace(plans[0], table="best of the grids", cases=cases))

    def backbones(self) -> str:
        plans = {name: self.known.plan(f"backbone, {name}") for name in BACKBONES}
        lines = [
            ["backbone", "full", "em", "gr", "an", "gr − an", "gr − em", "gr, by the intervals"],
            ["---"] * 8,
        ]
        for name, plan in plans.items():
            rows = {row.label: row for row in self.known.table(plan).rows}
            figures = [
                measured(rows[label]) if rows[label].seeds else OPEN
                for label in ("full", "em", "gr", "an")
            ]
            over = {label: v for label in ("an", "em") if (v := rows[label].versus)}
            sides = ", ".join(f"{_side(v)} {label}" for label, v in over.items())
            lines.append(
                [
                    name,
                    *figures,
                    *(interval(over[n], -1) if n in over else "" for n in ("an", "em")),
                    sides,
                ]
            )
        return markdown(lines)


def rule_coverage() -> str:
    """How often the intervals of equal methods hold 0, by what varies."""
    records = json.loads(COVERAGE.read_text(encoding="utf-8"))
    ways = list(dict.fromkeys(record["interval"] for record in records))
    shares: dict[tuple[str, str], list[str]] = {}
    for record in records:
        key = record["design"].replace("x", "×"), record["varies"]
        shares.setdefault(key, []).append(f"{record['coverage']:.1%}")
    lines = [["runs", "what varies", *ways], ["---"] * (2 + len(ways))]
    return markdown(lines + [[*key, *cells] for key, cells in shares.items()])


def _side(v: Comparison) -> str:
    """Whether the base row is above or below the compared row."""
    return {-1: "above", 1: "below", 0: "undecided against"}[v.sign]


def _beside(own: float, other: float) -> list[str]:
    return [f"{own:.2f}", f"{other:.2f}", signed(own - other)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, help="folder that holds VOCdevkit, for figure f")
    options = parser.parse_args()
    page = Page(Recorded.read())
    experiment = None
    if options.root is not None:
        from spml.data import load

        experiment = load("voc", options.root)
    source = replace(page.source, experiment=experiment)
    for letter, figure in FIGURES.items():
        if letter != "f" or experiment is not None:
            print(figure.name, draw(figure, source, FIGURE_FOLDER))
    RUNS.write_text(runs_csv(page.known), encoding="utf-8")
    for file, blocks in ((PAGE, page.blocks()), (README, {"voc": page.in_short})):
        file.write_text(render(file.read_text(encoding="utf-8"), blocks), encoding="utf-8")


if __name__ == "__main__":
    main()
