"""The runs on COCO: the runs of all tables in one plan that can stop and resume anywhere.

python benchmarks/coco_plan.py             # coco-plan.json and counts; trains nothing
python benchmarks/coco_plan.py --tables    # the tables, in Markdown, from the results
python benchmarks/coco_plan.py --data 22k=DIR --data whole=DIR --minutes 8 --jobs 4 --also OUT
python benchmarks/coco_plan.py --data 22k=DIR --rehearse --jobs 4    # tiny runs, kept apart

The third form trains runs. A DIR holds annotations/, train2014/ and val2014/, as `official` of
`stage.py` writes them; 22k has the first 22,000 and 8,000 pictures of the lists. Each run is one
small file in benchmarks/results/coco-lite0; recorded runs are not repeated. Trials are made on 22k
only: runs on the whole lists take the settings chosen there, and join the plan after the trials.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from budget import Budget
from plans import (
    FRESH,
    HERE,
    LR,
    ChosenIn,
    Setup,
    ablation,
    command_line,
    protocol,
    studied,
)
from selection import NARROW
from voc_plan import HEAD_RATES, QUERY_ROWS

from spml.bench.plan import Case, Outcomes, Plan, Run
from spml.bench.rows import method_cases, paper_methods
from spml.train.resolve import GR_FLAT

COMMON = protocol(256, 16)
AT_LR = {**COMMON, "lr": LR}
STUDIED = studied(AT_LR)
VERSIONS = ("22k",)  # of all tables but one, which has the whole lists
TABLE_A: tuple[Case, ...] = (
    Case("an", "an"),
    Case("gr", "gr"),
    Case("full", "full"),
    Case("em, α = 0.2", "em", {"alpha": 0.2}),
    Case("VOC's values", "gr", GR_FLAT),
    Case("VOC's values, narrow v", "gr", NARROW),
    Case("weight average", "gr", settings={"ema": 0.999}),
)
REFERENCE = {  # of runs made before this project, with another draw and split; one seed
    **{"an": 57.76, "gr": 59.44, "full": 65.47, "em, α = 0.2": 57.17, "VOC's values": 57.78},
    **{"VOC's values, narrow v": 58.42, "weight average": 59.94},
}
WHOLE = ("an", "em", "ll_r", "gr", "full")
HEADS = {  # own settings of methods with a transformer as head, as on VOC
    case.method: {**case.settings, "frozen_norm": True, "head_lr": 1.0}
    for case in QUERY_ROWS
    if case.method in ("smile", "mime")
}


@dataclass(frozen=True)
class Trials:
    """Nine trials a row; those of a transformer vary the rates alone."""

    count: ClassVar[int] = 9

    def trials(self, plan: Plan, case: Case, outcomes: Outcomes) -> tuple[list[Run], bool]:
        """Return the trials that are known so far, and whether these are all."""
        search = HEAD_RATES if case.method in HEADS else Budget()
        return search.trials(plan, case, outcomes)


def plans(version: str) -> list[Plan]:
    """Return all tables, in the order in which they are filled."""
    data, whole = f"coco@{version}", "coco@whole"
    tuned = Plan("equal budgets", data, _methods(), FRESH, COMMON, Trials())
    return [
        Plan("Table A", data, TABLE_A, (0,), AT_LR),
        Plan("as published", data, _methods(), (0,), AT_LR),
        tuned,
        ablation(data, COMMON),
        Plan("whole", whole, method_cases(WHOLE, {}), FRESH, COMMON, ChosenIn(tuned)),
    ]


def _methods() -> tuple[Case, ...]:
    """Return the rows of the paper's comparison."""
    cases = method_cases([*paper_methods(), "full"], {})
    return tuple(replace(case, settings=HEADS.get(case.method, {})) for case in cases)


COCO = Setup(
    data="coco",
    versions=VERSIONS,
    plans=plans,
    common=COMMON,
    results=HERE / "results" / "coco-lite0",
    overview=HERE / "coco-plan.json",
    reference=REFERENCE,
    seconds={"22k": 34, "whole": 93},  # of four processes under MPS; by the number of pictures
)


def main() -> None:
    command_line(COCO, __doc__)


if __name__ == "__main__":
    main()
