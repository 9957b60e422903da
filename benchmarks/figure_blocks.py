"""The parts of docs/reproduction.md next to its figures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from claims import studies
from recorded import OPEN, Recorded, doubts, markdown, quoted_figure

from spml.analysis.confidences import FEWEST, Assumptions, Distinguishability
from spml.analysis.plots import figure_of
from spml.bench.published import paper_quote
from spml.bench.rows import paper_methods
from spml.data.benchmarks import BENCHMARKS

QUOTED = ("coco", "nuswide", "cub")


def sensitivity(known: Recorded) -> str:
    """Progress of each grid, and the span of its test mAP."""
    summary = []
    for study in studies(known):
        done = [value for point in study.done if (value := figure_of(point, True)) is not None]
        span = f", test mAP from {min(done):.2f} to {max(done):.2f}" if len(done) > 1 else ""
        summary.append(
            f"{study.name}: {len(study.done)} of {len(study.points)} settings run{span}."
        )
    return "  \n".join(summary)


def confidences(
    known: Recorded, apart: Sequence[Distinguishability], ends: Sequence[Assumptions]
) -> str:
    """Distances by epoch, and the tests of the assumptions."""
    if not apart:
        return f"{OPEN} (runs of gr and an with scores: 0 of 2)"
    lines = [
        ["epoch", *(f"{one.method.upper()}, distance" for one in apart)],
        ["---"] * (1 + len(apart)),
    ]
    for place, epoch in enumerate(apart[0].epochs):
        best = [" (best)" if one.best_epoch == epoch else "" for one in apart]
        lines.append(
            [
                str(epoch),
                *(
                    f"{one.distances[place]:.3f}{mark}"
                    for one, mark in zip(apart, best, strict=True)
                ),
            ]
        )
    head = [
        "FN/(FN+TN)",
        "of all",
        "χ² p, one share",
        "rank correlation",
        "mean distance to k̂",
        "k̂ in the interval",
    ]
    after = [head, ["---"] * len(head)]
    for one in ends:
        for ratios in (one.before, one.after):
            rank = "" if ratios.rank_correlation is None else f"{ratios.rank_correlation:.2f}"
            when = f"after epoch {ratios.epoch}" if ratios.epoch else "before training"
            chance = f"{ratios.constant_p:.2f}" if ratios.constant_p > 0.01 else "below 0.01"
            cells = [f"{ratios.share:.4f}", chance, rank, f"{ratios.distance:.3f}"]
            counted = sum(labels >= FEWEST for labels in ratios.labels)
            after.append(
                [f"{one.method.upper()}, {when}", *cells, f"{ratios.within:.0%} of {counted} bins"]
            )
    link = f"../benchmarks/results/{known.setup.results.name}"
    files = ", ".join(f"[{one.run}]({link}/scores/{one.run}/config.json)" for one in apart)
    return "\n\n".join([f"From the scores of {files}.", markdown(lines), markdown(after)])


def classes(path: Path) -> str:
    """The counts behind the figure of the classes."""
    stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["study"]
    images = stored["images"]
    counts = sorted((row["seen"], row["name"]) for row in stored["classes"])
    (fewest, rare), (most, common) = counts[0], counts[-1]
    return (
        f"{images['train']:,} training, {images['val']:,} validation and "
        f"{images['test']:,} test images, {stored['positives_per_image']:.2f} positives "
        "per training image. A class has from "
        f"{fewest:,} ({rare}) to {most:,} ({common}) observed positives. "
        f"{stored['missing_positives']:,} of {stored['unknown_labels']:,} "
        f"unknown labels are positive: Remark 1's constant is {stored['constant']:.4f}, "
        f"and b(0) by Assumption 1 is {stored['logit']:.2f}."
    )


def quoted() -> str:
    """The columns of the paper that are not run here."""
    lines = [
        ["method", *(f"{BENCHMARKS[name].title}, quoted, not run" for name in QUOTED)],
        ["---"] * 4,
    ]
    notes: dict[str, int] = {}
    for method in paper_methods():
        cells = [quoted_figure(paper_quote(method, name), notes, "not printed") for name in QUOTED]
        lines.append([method, *cells])
    return markdown(lines) + doubts(notes)
