"""Table A of docs/reproduction.md: runs beside figures of runs made before this project."""

from __future__ import annotations

import statistics

from from_scores import SURE
from plans import LR
from recorded import OPEN, Recorded, markdown
from scipy.stats import ttest_ind
from voc_plan import REFERENCE

from spml.report.format import signed

NEAR = 0.5


def reference_table(known: Recorded) -> str:
    """The runs beside the figures, and possible reasons for differences."""
    plan = known.plan("Table A")
    lines = [["method", "test mAP", "reference", "difference"], ["---"] * 4]
    differences = {}
    for case in plan.cases:
        (run,) = known.finals(plan, case)
        record, other = known.record(run), REFERENCE[case.method]
        own = None if record is None else record["result"]["test_map"]
        if own is not None:
            differences[case.method] = own - other
        cells = [f"{OPEN} (0 of 1)", f"{other:.2f}", ""] if own is None else _beside(own, other)
        lines.append([case.label, *cells])
    far = [f"{name} ({signed(value)})" for name, value in differences.items() if abs(value) > NEAR]
    near = len(differences) - len(far)
    text = f"{near} of {len(differences)} finished methods lie within {NEAR} of the reference"
    text += f"; not {', '.join(far)}." if far else "."
    text += "".join(_more_seeds(known, method) for method in ("an", "gr"))
    text += _looked_for(known) if "an" in differences and abs(differences["an"]) > NEAR else ""
    return "\n\n".join([text, markdown(lines)])


def _seeds(known: Recorded, method: str) -> list[float]:
    """Test mAP of Table A's settings with all seeds; most runs are from the study of pixels."""
    plans = [known.plan("Table A"), known.plan(f"pixels, {method}")]
    runs = [run for plan in plans for case in plan.cases for run in known.finals(plan, case)]
    same = {run.id: run for run in runs if run.method == method and run.data == plans[0].data}
    return [record["result"]["test_map"] for run in same.values() if (record := known.record(run))]


def _more_seeds(known: Recorded, method: str) -> str:
    maps = _seeds(known, method)
    if len(maps) < 2:
        return ""
    spread = f"{statistics.mean(maps):.2f} ± {statistics.stdev(maps):.2f}"
    span = f"from {min(maps):.2f} to {max(maps):.2f}"
    return f" With {len(maps)} seeds {method} has {spread}, {span}."


def _looked_for(known: Recorded) -> str:
    """Possible reasons for the difference of AN from the reference, tested by runs."""
    tuned = known.plan("Table B")
    own = next(case for case in tuned.cases if case.label == "an")
    trials = [run for run in tuned.trials(own, known.store.outcome) if run.settings["lr"] == LR]
    tried = {bool(run.options): record for run in trials if (record := known.record(run))}
    pictures = known.row("pixels, an", "an, original")
    seeds = _seeds(known, "an")
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


def _beside(own: float, other: float) -> list[str]:
    return [f"{own:.2f}", f"{other:.2f}", signed(own - other)]
