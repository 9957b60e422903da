"""How good the ranking and the tags of a run are: by class, and as thresholds move."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from spml.errors import UserError
from spml.metrics.scores import num_reached, ratio, sigmoid
from spml.report.figures import COLOURS, INK, draw
from spml.report.format import NONE, count, percent
from spml.report.probabilities import Array, Model
from spml.runs.names import RESULT
from spml.runs.run import Run, Scored

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ON_TEST, ON_VAL = "on the test set", "on the validation set"
ON_OBSERVED = (
    "on observed labels only, with every unknown label as negative: "
    "for comparing models, not as a level"
)

_TAGS = (
    ("CP", "precision, mean over classes"),
    ("CR", "recall, mean over classes"),
    ("CF1", "harmonic mean of the two"),
    ("macro_f1", "F1, mean over classes"),
    ("OP", "precision, all labels together"),
    ("OR", "recall, all labels together"),
    ("OF1", "harmonic mean of the two"),
)

GRID = np.arange(1, 100) / 100  # thresholds
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
    recorded = (run.result or {}).get("per_class_ap")
    if recorded:
        if not isinstance(recorded, dict) or not all(
            isinstance(v, int | float | None) for v in recorded.values()
        ):
            raise UserError(
                f"{run.folder / RESULT}: 'per_class_ap' must give a number for each class"
            )
        values = {str(name): float(value) for name, value in recorded.items() if value is not None}
        basis = ON_TEST if run.outcome("test_map") is not None else _validation(run)
        return ClassPrecision(
            {name: value for name, value in values.items() if np.isfinite(value)}, basis
        )
    scored = run.scored
    if scored is None or not scored.usable:
        return None
    from spml.metrics import average_precision, observed_average_precision

    measure = average_precision if scored.complete else observed_average_precision
    computed = 100 * measure(scored.logits, scored.truth)
    values = {
        name: float(value)
        for name, value in zip(run.classes, computed, strict=True)
        if np.isfinite(value)
    }
    basis = (ON_TEST if scored.split == "test" else ON_VAL) if scored.complete else ON_OBSERVED
    return ClassPrecision(values, basis)


def _validation(run: Run) -> str:
    return ON_OBSERVED if run.fact("selection") == "observed" else ON_VAL


def threshold_table(run: Run) -> list[tuple[str, str, str]]:
    """Name, meaning and percent of each metric of the tags at 0.5, if labels are complete."""
    scored = run.scored
    if scored is None or not scored.complete or not scored.usable:
        return []
    from spml.metrics import threshold_metrics

    metrics = threshold_metrics(scored.logits, scored.truth, threshold=0.5)
    return [
        (name.replace("_f", " F"), meaning, percent(100 * getattr(metrics, name)))
        for name, meaning in _TAGS
    ]


@dataclass(frozen=True, eq=False)
class Sweep:
    """Counts of the tags of each class at each threshold.

    Attributes:
        hits: right tags (thresholds, classes); expected numbers if only chances are known.
        chosen: all tags, of the same shape.
        total: positives of each class.
    """

    hits: Array
    chosen: Array
    total: Array

    def macro(self) -> tuple[Array, Array, Array]:
        """Precision, recall and F1, averaged over classes."""
        f1 = ratio(2 * self.hits, self.chosen + self.total)
        return tuple(part.mean(axis=-1) for part in (*self.ratios(), f1))

    def micro(self) -> tuple[Array, Array, Array]:
        """Precision, recall and F1 of all tags together."""
        hits, chosen, total = self.hits.sum(axis=-1), self.chosen.sum(axis=-1), self.total.sum()
        return ratio(hits, chosen), ratio(hits, total), ratio(2 * hits, chosen + total)

    def ratios(self) -> tuple[Array, Array]:
        """Precision and recall of each class."""
        return ratio(self.hits, self.chosen), ratio(self.hits, self.total)


def sweep(logits: Array, chances: Array) -> Sweep:
    """Counts at each threshold of GRID, from calibrated logits and the chance of each label."""
    rows = len(GRID) + 1
    hits, chosen = np.zeros((2, rows, logits.shape[1]))
    for c in range(logits.shape[1]):
        place = num_reached(logits[:, c], GRID)
        chosen[:, c] = np.bincount(place, minlength=rows)
        hits[:, c] = np.bincount(place, chances[:, c], minlength=rows)
    above = [np.cumsum(part[::-1], axis=0)[::-1][1:] for part in (hits, chosen)]
    return Sweep(above[0], above[1], chances.sum(axis=0))


def at_thresholds(tagged: npt.NDArray[np.bool_], chances: Array) -> Sweep:
    """Counts of tags decided before: one row."""
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
    logits = model.rule.logits(scored.logits)
    if not scored.complete and not model.calibrated:
        return _known_alone(scored, logits, model)
    chances = (scored.truth == 1).astype(np.float64) if scored.complete else sigmoid(logits)
    moved, own = sweep(logits, chances), at_thresholds(model.rule.tagged(scored.logits), chances)
    parts = (
        ("macro", "mean over classes", moved.macro()),
        ("micro", "all tags together", moved.micro()),
    )
    figures = [
        _figure([100 * line for line in lines], name, f"{words}, %", model)
        for name, words, lines in parts
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
    macro, micro = moved.macro(), moved.micro()
    best = int(macro[2].argmax())
    half = int(np.argmin(np.abs(GRID - 0.5)))
    lines = [
        (f"{GRID[place]:.2f} for all{words}", [part[place] for part in (*macro, *micro)])
        for place, words in ((half, ""), (best, ", the best single one here"))
    ]
    if model.chosen:
        lines.append(("stored, one per class", [part[0] for part in (*own.macro(), *own.micro())]))
    return [(name, [percent(100 * float(value), 1) for value in values]) for name, values in lines]


def _measured(run: Run, own: Sweep, model: Model) -> dict[str, Any]:
    precision, recall = (part[0] for part in own.ratios())
    f1 = ratio(2 * own.hits[0], own.chosen[0] + own.total)
    rows = [
        (
            name,
            [
                f"{model.thresholds[c]:.3f}",
                percent(100 * precision[c], 1) if own.chosen[0, c] else NONE,
                *(percent(100 * part[c], 1) if own.total[c] else NONE for part in (recall, f1)),
                count(own.chosen[0, c]),
                count(own.total[c]),
            ],
        )
        for c, name in sorted(enumerate(run.classes), key=lambda pair: -f1[pair[0]])
    ]
    return {
        "heads": ["threshold", "precision, %", "recall, %", "F1, %", "tags given", "positives"],
        "rows": rows,
    }


def _estimated(model: Model) -> dict[str, Any] | None:
    """Estimates of each class from calibration.json, with ranges."""
    if model.record is None:
        return None
    untagged = model.record.get("untagged", [])  # without tags there is no precision
    rows = [
        (
            str(one["name"]),
            [
                f"{one['threshold']['value']:.3f}",
                NONE if one["name"] in untagged else _range(one["precision"]),
                *(_range(one[key]) for key in ("recall", "f1")),
                count(one["known_positives"]),
            ],
        )
        for one in sorted(model.record["classes"], key=lambda one: -one["f1"]["value"])
    ]
    return {
        "heads": ["threshold", "precision, %", "recall, %", "F1, %", "known positives"],
        "rows": rows,
    }


def _range(figure: dict[str, float]) -> str:
    low, value, high = (100 * figure[key] for key in ("low", "value", "high"))
    return f"{value:.0f} ({low:.0f} to {high:.0f})"


def _known_alone(scored: Scored, logits: Array, model: Model) -> dict[str, Any]:
    """Share of known positives that are tagged, and tags per item, without complete labels."""
    moved = sweep(logits, (scored.truth == 1).astype(np.float64))
    recall, tags = 100 * moved.micro()[1], moved.chosen.sum(axis=1) / len(logits)
    half = int(np.argmin(np.abs(GRID - 0.5)))
    return {
        "figures": [
            _figure([recall], "known", "known positives tagged, %", model),
            _figure([tags], "tags", "tags per item", model, top=None),
        ],
        "kind": "known",
        "rows": [("0.50 for all", [percent(recall[half], 1), f"{tags[half]:.2f}"])],
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
            ax.vlines(
                model.thresholds,
                0,
                0.07,
                color=COLOURS[2],
                linewidth=1.4,
                transform=ax.get_xaxis_transform(),
            )
        ax.set_xlim(0, 1)
        ax.set_ylim(0, top)
        ax.set_xlabel("threshold")
        ax.set_ylabel(words)
        if len(lines) > 1:
            ax.legend(
                loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderpad=0, handlelength=1.8
            )

    return draw(paint, name=f"threshold-{name}", label=f"{words} by threshold", height=280)


def most_missed(run: Run, model: Model) -> dict[str, Any] | None:
    """Known positives that get no tag, by class; None without scores, no rows if none is missed."""
    scored = run.scored
    if scored is None or not scored.usable:
        return None
    positive, tagged = scored.truth == 1, model.rule.tagged(scored.logits)
    missed = positive & ~tagged
    counts, total = missed.sum(axis=0), positive.sum(axis=0)
    order = sorted(np.flatnonzero(counts).tolist(), key=lambda c: (-counts[c], total[c], c))[
        :MISSED
    ]
    others = tagged & ~positive
    nothing = ~tagged.any(axis=1)
    rows = []
    for c in order:
        items = missed[:, c]
        instead = others[items].sum(axis=0)
        likeliest = [
            i for i in np.argsort(-instead, kind="stable")[:INSTEAD].tolist() if instead[i]
        ]
        share = counts[c] / total[c]
        rows.append(
            {
                "name": run.classes[c],
                "missed": count(counts[c]),
                "total": count(total[c]),
                "share": percent(100 * share, 1),
                "width": round(100 * float(share), 1),
                "instead": ", ".join(f"{run.classes[i]} ({count(instead[i])})" for i in likeliest)
                or NONE,
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
