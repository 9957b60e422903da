"""Write docs/coco.md's generated parts, figures and list of runs, and README's table of COCO.

All numbers come from the recorded runs on COCO.

python benchmarks/coco_page.py
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cached_property, partial

from coco_plan import COCO, REFERENCE, STUDIED
from plans import HERE, cost
from recorded import (
    OPEN,
    Recorded,
    interval,
    markdown,
    measured,
    progress,
    result_table,
    runs_csv,
    shell_function,
    trial_state,
)
from reference_table import NEAR
from reproduction import PAGE, README, Page, render

from spml.analysis.archive import find
from spml.analysis.figures import FIGURES, Source, draw
from spml.report.format import signed

COCO_PAGE = PAGE.parent / "coco.md"
RUNS = PAGE.parent / "coco-runs.csv"
FIGURE_FOLDER = PAGE.parent / "figures" / "coco"
DRAWN = {"distinguishability": "d", "assumptions": "e"}


class CocoPage(Page):
    """The blocks of the page; each depends only on the recorded runs."""

    @cached_property
    def source(self) -> Source:
        home = self.known.store.home
        return Source(find(home)[0] if home.is_dir() else (), settings=STUDIED)

    def blocks(self) -> dict[str, Callable[[], str]]:
        own = {
            "coco-claims": self.claims,
            "coco-state": self.state,
            "coco-cost": self.cost,
            "coco-reader": self.reader,
            "coco-table-a": self.table_a,
            "coco-command": lambda: f"```\n{shell_function(self.known.setup)}\n```",
        }
        tables: dict[str, Callable[[], str]] = {
            "as published": lambda: self._table("as published", quoted=True, thirds=True),
            "equal budgets": self.equal_budgets,
            "Table 3": self.table_3,
            "whole": lambda: self._table("whole", quoted=True, thirds=True),
        }
        for name, block in tables.items():
            marker = f"coco-{name.lower().replace(' ', '-')}"
            own[marker] = block if self._begun(name) else partial(self._waiting, name)
        return own | {"coco-figures": self.figures}

    def _table(self, name: str, **columns: bool) -> str:
        return result_table(self.known, self.known.plan(name), **columns)

    def equal_budgets(self) -> str:
        plan = self.known.plan("equal budgets")
        table = self._table(plan.table, quoted=True, thirds=True)
        return f"{table}\n\n{trial_state(self.known, plan)}"

    def in_short(self) -> str:
        """README's table, once the comparison has complete rows."""
        plan = self.known.plan("equal budgets")
        rows = [row for row in self.known.table(plan, "an").rows if row.seeds == row.wanted]
        rows.sort(key=lambda row: -(row.test.mean or 0.0))
        lines = [["method", "test mAP on [COCO-22k](docs/coco.md)", "− an"], ["---"] * 3]
        for row in rows:
            versus = "" if row.versus is None else interval(row.versus)
            lines.append([f"`{row.label}`", measured(row), versus])
        return markdown(lines) if rows else ""

    def _begun(self, name: str) -> bool:
        return self.known.done(self.known.plan(name))[0] > 0

    def _waiting(self, name: str) -> str:
        done, every = self.known.done(self.known.plan(name))
        return f"{done} of {every} runs recorded."

    def cost(self) -> str:
        return f"Open: at most {cost(self.known.setup, self.known.every, self.known.store)}."

    def reader(self) -> str:
        """What was read on real pictures."""
        stored = json.loads((HERE / "results" / "coco-reader.json").read_text(encoding="utf-8"))
        lines = [
            ["list", "training", "validation", "test", "positives", "exactly one"],
            ["---"] * 6,
        ]
        for name, one in stored.items():
            counts = [f"{one['pictures'][part]:,}" for part in ("train", "val", "test")]
            positives = f"{one['positives']['train']:.2f}"
            lines.append([name, *counts, positives, f"{one['one_positive']['train']:.0%}"])
        return markdown(lines)

    def table_a(self) -> str:
        """The reference runs next to the figures of earlier ones."""
        plan = self.known.plan("Table A")
        lines = [["run", "test mAP", "reference", "difference"], ["---"] * 4]
        differences = {}
        for case in plan.cases:
            (run,) = self.known.finals(plan, case)
            record, other = self.known.record(run), REFERENCE[case.label]
            if record is None:
                lines.append([case.label, progress(self.known, plan, case), f"{other:.2f}", ""])
                continue
            own = record["result"]["test_map"]
            differences[case.label] = own - other
            lines.append([case.label, f"{own:.2f}", f"{other:.2f}", signed(own - other)])
        far = [name for name, value in differences.items() if abs(value) > NEAR]
        text = f"{len(differences) - len(far)} of {len(differences)} recorded runs lie within "
        text += f"{NEAR} of the reference"
        return f"{text}{': not ' + ', '.join(far) if far else ''}.\n\n{markdown(lines)}"

    def figures(self) -> str:
        """The drawn figures; open without the scores of GR and AN."""
        if not self.apart:
            return f"{OPEN} (runs of gr and an with scores: 0 of 2)"
        drawn = [f"![{name}](figures/coco/{name}.svg)" for name in DRAWN]
        return "\n".join([*drawn, "", self.blocks_of_scores()])

    def blocks_of_scores(self) -> str:
        from figure_blocks import confidences

        return confidences(self.known, self.apart, self.ends)


def write() -> None:
    """Draw the figures that have their runs, and write the list of runs and the page."""
    page = CocoPage(Recorded.read(setup=COCO))
    if page.apart:
        for letter in DRAWN.values():
            print("COCO", FIGURES[letter].name, draw(FIGURES[letter], page.source, FIGURE_FOLDER))
    RUNS.write_text(runs_csv(page.known), encoding="utf-8")
    for file, blocks in ((COCO_PAGE, page.blocks()), (README, {"coco": page.in_short})):
        file.write_text(render(file.read_text(encoding="utf-8"), blocks), encoding="utf-8")


if __name__ == "__main__":
    write()
