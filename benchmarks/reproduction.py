"""Write docs/reproduction.md's generated parts, figures and list of runs, and README's table.

All numbers come from the recorded runs on VOC2012.

python benchmarks/reproduction.py               # the page and the figures a to e
python benchmarks/reproduction.py --root VOC    # figure f too, which needs the labels of VOC2012
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from claims import claims
from figure_blocks import classes, confidences, quoted, sensitivity
from from_scores import Family
from plans import FRESH, cost
from readme_table import readme_table
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
from reference_table import reference_table
from render import render
from verdicts import BUDGETS, DRAWS, NO, YES
from voc_plan import BACKBONES, STUDIED

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

PAGE = Path(__file__).parents[1] / "docs" / "reproduction.md"
README = PAGE.parents[1] / "README.md"
RUNS = PAGE.parent / "voc2012-runs.csv"
COVERAGE = Path(__file__).parent / "results" / "verdict-coverage.json"
FIGURE_FOLDER = PAGE.parent / "figures"
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
        return reference_table(self.known)

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
    for file, blocks in (
        (PAGE, page.blocks()),
        (README, {"voc": lambda: readme_table(page.known)}),
    ):
        file.write_text(render(file.read_text(encoding="utf-8"), blocks), encoding="utf-8")


if __name__ == "__main__":
    main()
