"""What thresholds do: precision, recall and F1 as one threshold moves, and of each class at its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from spml.metrics.thresholds import ratio
from spml.report.model import Array, Model
from spml.report.svg import COLOURS, INK, draw
from spml.report.text import NONE, count, percent
from spml.runs.run import Run, Scored

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GRID = np.arange(1, 100) / 100  # thresholds
NAMES = ("precision", "recall", "F1")
LOOKS = ((COLOURS[0], "-"), (COLOURS[1], "--"), (INK, "-."))


@dataclass(frozen=True, eq=False)
class Sweep:
    """Right and given tags of each class, at each threshold.

    Attributes:
        hits: (thresholds, classes); expected ones where labels are known by their chances.
        chosen: of the same shape.
        total: positives of each class.
    """

    hits: Array
    chosen: Array
    total: Array

    def macro(self) -> tuple[Array, Array, Array]:
        """Precision, recall and F1, means over classes."""
        f1 = ratio(2 * self.hits, self.chosen + self.total)
        return tuple(part.mean(axis=-1) for part in (*self.ratios(), f1))

    def micro(self) -> tuple[Array, Array, Array]:
        """Precision, recall and F1 of all tags together."""
        hits, chosen, total = self.hits.sum(axis=-1), self.chosen.sum(axis=-1), self.total.sum()
        return ratio(hits, chosen), ratio(hits, total), ratio(2 * hits, chosen + total)

    def ratios(self) -> tuple[Array, Array]:
        """Precision and recall of each class."""
        return ratio(self.hits, self.chosen), ratio(self.hits, self.total)


def sweep(probabilities: Array, chances: Array) -> Sweep:
    """At each threshold of GRID, from probabilities and the chance of each label."""
    rows = len(GRID) + 1
    hits, chosen = np.zeros((2, rows, probabilities.shape[1]))
    for c in range(probabilities.shape[1]):
        place = np.searchsorted(
            GRID, probabilities[:, c], side="right"
        )  # thresholds that it reaches
        chosen[:, c] = np.bincount(place, minlength=rows)
        hits[:, c] = np.bincount(place, chances[:, c], minlength=rows)
    above = [np.cumsum(part[::-1], axis=0)[::-1][1:] for part in (hits, chosen)]
    return Sweep(above[0], above[1], chances.sum(axis=0))


def at_thresholds(tagged: npt.NDArray[np.bool_], chances: Array) -> Sweep:
    """Of given tags: one row."""
    return Sweep(
        (tagged * chances).sum(axis=0)[None],
        tagged.sum(axis=0)[None].astype(float),
        chances.sum(axis=0),
    )


def threshold_effects(run: Run, model: Model) -> dict[str, Any] | None:
    """Figures and tables, from complete labels, from calibrated probabilities, or from known positives alone."""
    scored = run.scored
    if scored is None or not scored.usable:
        return None
    p = model.probabilities(scored.logits)
    if not scored.complete and not model.calibrated:
        return _known_alone(scored, p, model)
    chances = (scored.truth == 1).astype(np.float64) if scored.complete else p
    moved, own = sweep(p, chances), at_thresholds(model.tagged(scored.logits), chances)
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
        "classes": _measured(run, own, model) if scored.complete else _told(model),
        "marked": model.chosen,
    }


def _rows(moved: Sweep, own: Sweep, model: Model) -> list[tuple[str, list[str]]]:
    """0.5, the best single threshold, and those that are stored."""
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


def _told(model: Model) -> dict[str, Any] | None:
    """What calibration has estimated of each class, with ranges."""
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


def _range(told: dict[str, float]) -> str:
    low, value, high = (100 * told[key] for key in ("low", "value", "high"))
    return f"{value:.0f} ({low:.0f} to {high:.0f})"


def _known_alone(scored: Scored, p: Array, model: Model) -> dict[str, Any]:
    """Where nothing tells what unknown labels are: known positives that are tagged, and tags per item."""
    found = sweep(p, (scored.truth == 1).astype(np.float64))
    recall, tags = 100 * found.micro()[1], found.chosen.sum(axis=1) / len(p)
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
    """Lines over the threshold; the stored thresholds are ticks at the bottom."""

    def paint(ax: Axes) -> None:
        for line, part, (colour, style) in zip(lines, NAMES, LOOKS, strict=False):
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
