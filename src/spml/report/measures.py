"""Quality of a run's ranking and tags, by class and by threshold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup
from matplotlib.axes import Axes

from spml.files import number
from spml.metrics import average_precision, observed_average_precision
from spml.metrics.scores import HIGHEST, num_reached, precision_recall_f1
from spml.report.figures import ABOVE, COLOURS, INK, draw
from spml.report.format import NONE, count, percent
from spml.report.probabilities import Array, Model
from spml.runs.names import RESULT
from spml.runs.run import Run, Scored

ON_TEST, ON_VAL = "on the test set", "on the validation set"
ON_OBSERVED = (
    "on observed labels only, with every unknown label as negative: "
    "for comparing models, not as a level"
)

GRID = np.arange(1, 100) / 100  # thresholds
HALF = 49  # the place of 0.5
HEADS = ["threshold", "precision, %", "recall, %", "F1, %"]
CURVES = ("precision", "recall", "F1")
LOOKS = ((COLOURS[0], "-"), (COLOURS[1], "--"), (INK, "-."))
MISSED = 12  # classes in the table of missed positives
INSTEAD = 3  # other classes named for each


@dataclass(frozen=True)
class ClassPrecision:
    """Average precision of each class in percent, and the labels that it was measured on."""

    values: Mapping[str, float]
    basis: str


def class_precision(run: Run) -> ClassPrecision | None:
    """The recorded AP of each class, or else that of the stored scores; None without either."""
    recorded, scored = (run.result or {}).get("per_class_ap"), run.scored
    if recorded:
        tested = run.outcome("test_map") is not None
        complete = tested or run.fact("selection") != "observed"
        values = {name: number(recorded, name, run.folder / RESULT) for name in recorded}
    elif scored is None or not scored.usable:
        return None
    else:
        tested, complete = scored.split == "test", scored.complete
        measure = average_precision if complete else observed_average_precision
        computed = (100 * measure(scored.logits, scored.truth)).tolist()
        values = dict(zip(run.classes, computed, strict=True))
    known = {name: value for name, value in values.items() if value is not None}
    basis = ON_TEST if tested else ON_VAL
    return ClassPrecision(
        {name: value for name, value in known.items() if isfinite(value)},
        basis if complete else ON_OBSERVED,
    )


@dataclass(frozen=True, eq=False)
class Sweep:
    """Correct tags and all tags by (threshold, class), and the positives of each class.

    If only probabilities of labels are known, correct tags and positives are expected numbers.
    """

    hits: Array
    chosen: Array
    total: Array

    def macro(self) -> tuple[Array, ...]:
        """Precision, recall and F1, averaged over classes."""
        return tuple(part.mean(axis=-1) for part in self.ratios())

    def micro(self) -> tuple[Array, ...]:
        """Precision, recall and F1 of all tags together."""
        hits, chosen = self.hits.sum(axis=-1), self.chosen.sum(axis=-1)
        return precision_recall_f1(hits, chosen, self.total.sum())

    def ratios(self) -> tuple[Array, Array, Array]:
        """Precision, recall and F1 of each class."""
        return precision_recall_f1(self.hits, self.chosen, self.total)


def sweep(logits: Array, chances: Array) -> Sweep:
    """Counts at each threshold of GRID; `chances` are the probabilities of the labels."""
    rows = len(GRID) + 1
    hits, chosen = np.zeros((2, rows, logits.shape[1]))
    for c in range(logits.shape[1]):
        place = num_reached(logits[:, c], GRID)
        chosen[:, c] = np.bincount(place, minlength=rows)
        hits[:, c] = np.bincount(place, chances[:, c], minlength=rows)
    above = [np.cumsum(part[::-1], axis=0)[::-1][1:] for part in (hits, chosen)]
    return Sweep(above[0], above[1], chances.sum(axis=0))


def at_thresholds(tagged: npt.NDArray[np.bool_], chances: Array) -> Sweep:
    """Counts of tags that are already decided, as one row."""
    return Sweep(
        (tagged * chances).sum(axis=0)[None],
        tagged.sum(axis=0)[None].astype(float),
        chances.sum(axis=0),
    )


def threshold_effects(run: Run, model: Model) -> dict[str, Any] | None:
    """Figures and tables from complete labels, calibrated probabilities or known positives."""
    scored = run.scored
    if scored is None or not scored.usable:
        return None
    if not scored.complete and not model.calibrated:
        return _known_alone(scored, model)
    logits, chances = scored.logits.astype(np.float64), (scored.truth == 1).astype(np.float64)
    if not scored.complete:  # the chances from which spml calibrate estimates
        from spml.use.calibrate.estimates import Evidence

        inside = np.clip(logits, -HIGHEST, HIGHEST)
        positives = (model.record or {}).get("positives_per_item_given")
        evidence = Evidence.of_observed(inside, scored.truth, positives)
        logits, chances = evidence.logits, evidence.chances
    own = at_thresholds(model.rule.tagged(logits), chances)
    moved = sweep(model.rule.logits(logits), chances)
    curves = {"mean over classes": moved.macro(), "all tags together": moved.micro()}
    figures = [
        _figure([100 * line for line in lines], f"threshold-{number}", f"{words}, %", model)
        for number, (words, lines) in enumerate(curves.items())
    ]
    return {
        "figures": figures,
        "kind": "complete" if scored.complete else "estimated",
        "rows": _rows(moved, own, model),
        "classes": _measured(run, own, model) if scored.complete else _estimated(model),
        "marked": model.chosen,
    }


def _rows(moved: Sweep, own: Sweep, model: Model) -> list[tuple[str, list[str]]]:
    """Metrics at 0.5, at the best single threshold, and at the stored ones."""
    every = (*moved.macro(), *moved.micro())
    best = int(every[2].argmax())
    places = ((HALF, ""), (best, ", the best single one here"))
    lines = [
        (f"{GRID[place]:.2f} for all{words}", [part[place] for part in every])
        for place, words in places
    ]
    if model.chosen:
        lines.append(("stored, one per class", [part[0] for part in (*own.macro(), *own.micro())]))
    return [(name, [percent(100 * float(value), 1) for value in values]) for name, values in lines]


def _measured(run: Run, own: Sweep, model: Model) -> dict[str, Any]:
    precision, recall, f1 = (part[0] for part in own.ratios())
    rows = []
    for c in np.argsort(-f1, kind="stable").tolist():
        shares = [
            percent(100 * precision[c], 1) if own.chosen[0, c] else NONE,
            *(percent(100 * part[c], 1) if own.total[c] else NONE for part in (recall, f1)),
        ]
        counts = [count(own.chosen[0, c]), count(own.total[c])]
        rows.append((run.classes[c], [f"{model.thresholds[c]:.3f}", *shares, *counts]))
    return {"heads": [*HEADS, "tags given", "positives"], "rows": rows}


def _estimated(model: Model) -> dict[str, Any] | None:
    """Estimates of each class from calibration.json, with ranges."""
    if model.record is None:
        return None
    untagged = model.record.get("untagged", [])  # without tags there is no precision
    rows = []
    for one in sorted(model.record["classes"], key=lambda one: -one["f1"]["value"]):
        shares = [_range(one[key]) for key in ("precision", "recall", "f1")]
        if one["name"] in untagged:
            shares[0] = NONE
        threshold = f"{one['threshold']['value']:.3f}"
        rows.append((str(one["name"]), [threshold, *shares, count(one["known_positives"])]))
    return {"heads": [*HEADS, "known positives"], "rows": rows}


def _range(figure: dict[str, float]) -> str:
    low, value, high = (100 * figure[key] for key in ("low", "value", "high"))
    return f"{value:.0f} ({low:.0f} to {high:.0f})"


def _known_alone(scored: Scored, model: Model) -> dict[str, Any]:
    """Share of known positives that are tagged, and tags per item, without complete labels."""
    moved = sweep(model.rule.logits(scored.logits), (scored.truth == 1).astype(np.float64))
    recall, tags = 100 * moved.micro()[1], moved.chosen.sum(axis=1) / len(scored.logits)
    return {
        "figures": [
            _figure([recall], "threshold-known", "known positives tagged, %", model),
            _figure([tags], "threshold-tags", "tags per item", model, top=None),
        ],
        "kind": "known",
        "rows": [("0.50 for all", [percent(recall[HALF], 1), f"{tags[HALF]:.2f}"])],
        "classes": None,
        "marked": model.chosen,
    }


def _figure(
    lines: list[Array], name: str, words: str, model: Model, top: float | None = 100
) -> Markup:
    """Curves over the threshold, with the stored thresholds as ticks at the bottom."""

    def paint(ax: Axes) -> None:
        for line, part, (colour, style) in zip(lines, CURVES, LOOKS, strict=False):
            ax.plot(GRID, line, color=colour, linestyle=style, label=part)
        if model.chosen:
            ticks: Any = {"color": COLOURS[2], "linewidth": 1.4}
            ax.vlines(model.thresholds, 0, 0.07, transform=ax.get_xaxis_transform(), **ticks)
        ax.set_xlim(0, 1)
        ax.set_ylim(0, top)
        ax.set_xlabel("threshold")
        ax.set_ylabel(words)
        if len(lines) > 1:
            ax.legend(ncols=3, handlelength=1.8, **ABOVE)

    return draw(paint, name=name, label=f"{words} by threshold", height=280)


def most_missed(run: Run, model: Model) -> dict[str, Any] | None:
    """Known positives that get no tag, by class; None without scores, no rows if none is missed."""
    scored = run.scored
    if scored is None or not scored.usable:
        return None
    positive, tagged = scored.truth == 1, model.rule.tagged(scored.logits)
    missed = positive & ~tagged
    counts, total = missed.sum(axis=0), positive.sum(axis=0)
    order = sorted(np.flatnonzero(counts).tolist(), key=lambda c: (-counts[c], total[c], c))
    others = tagged & ~positive
    nothing = ~tagged.any(axis=1)
    rows = []
    for c in order[:MISSED]:
        items = missed[:, c]
        instead = others[items].sum(axis=0)
        likeliest = np.argsort(-instead, kind="stable")[:INSTEAD].tolist()
        named = [f"{run.classes[i]} ({count(instead[i])})" for i in likeliest if instead[i]]
        share = 100 * float(counts[c] / total[c])
        rows.append(
            {
                "name": run.classes[c],
                "missed": count(counts[c]),
                "total": count(total[c]),
                "share": percent(share, 1),
                "width": round(share, 1),
                "instead": ", ".join(named) or NONE,
                "nothing": count((items & nothing).sum()),
            }
        )
    return {
        "rows": rows,
        "complete": scored.complete,
        "split": scored.split,
        "missed": count(counts.sum()),
        "total": count(total.sum()),
        "classes": count((counts > 0).sum()),
    }
