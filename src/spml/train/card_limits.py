"""What a model is not fit for, in sentences that follow from the run's facts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from spml.model.store import ModelInfo

Counts = tuple[
    npt.NDArray[Any], int
]  # negatives, unknown, positives by class in training; rows of validation
FEW = 10  # known positives in training below which a class is named
NAMED = 20  # of such classes


def limits(
    config: Mapping[str, Any],
    result: Mapping[str, Any],
    info: ModelInfo,
    counts: Counts | None,
) -> Iterator[str]:
    """One sentence each."""
    yield f"It knows its {len(info.classes)} classes and nothing else; what shows none of them may still be given one."
    if (config.get("side_information") or {}).get("training_labels") == "complete":
        yield "It was trained on complete labels: an upper bound, not what single positives give."
    elif counts is not None and counts[0][1].any():
        share = counts[0][1].sum() / counts[0].sum()
        yield (
            f"Of the labels it was trained from, {100 * share:.1f} % are unknown: how likely it holds a class to be "
            "depends on what the method takes these for."
        )
    if info.calibration is None:
        yield "Its probabilities are not calibrated: 0.8 does not mean four in five. See `spml calibrate`."
    if info.calibration is None and set(info.thresholds) == {0.5}:
        yield "Thresholds are 0.5 for every class, which nobody has chosen for these data."
    yield from _about_figures(config, result)
    if counts is not None:
        yield from _few(info.classes, counts[0][2])
    if config.get("weights") == "pretrained":
        yield "Its backbone began with pretrained weights, and what these have learned, good or bad, is part of it."
    if info.preprocessing["kind"] == "pictures":
        size = info.preprocessing["size"]
        yield f"Pictures are squeezed to {size} × {size} pixels: what is tiny, or much wider than high, may be lost."


def _about_figures(config: Mapping[str, Any], result: Mapping[str, Any]) -> Iterator[str]:
    if config.get("selection") == "complete" and result.get("val_map") is not None:
        yield "Complete validation labels chose its epoch, which those who have single positives alone cannot repeat."
    if result.get("test_map") is None:
        yield "How good it is on new items has not been measured against complete labels."
    ap = result.get("per_class_ap") or {}
    absent = [name for name, value in ap.items() if value == 0]
    if absent:
        yield f"Classes with an AP of 0, most likely absent from the test split: {_listed(absent)}."


def _few(classes: list[str], positives: npt.NDArray[Any]) -> Iterator[str]:
    few = [classes[i] for i in np.flatnonzero(positives < FEW)]
    if few:
        yield f"Classes with fewer than {FEW} known positives in training, hardly learned: {_listed(few)}."


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return ", ".join(plain(name) for name in names[:NAMED]) + more


def plain(value: Any) -> str:
    """Text on one line in which Markdown sees no mark of its own."""
    text = " ".join(str(value).split())
    return "".join(f"\\{sign}" if sign in "\\`*_[]|<>#" else sign for sign in text)
