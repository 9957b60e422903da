"""The classes that a model overlooks most, and what it tags in their place."""

from __future__ import annotations

from typing import Any

import numpy as np

from spml.report.model import Model
from spml.report.text import NONE, count, percent
from spml.runs.run import Run

SHOWN = 12  # classes
INSTEAD = 3  # other classes named for each


def most_missed(run: Run, model: Model) -> dict[str, Any] | None:
    """Known positives that get no tag, by class; None without scores. `rows` is empty where none is missed."""
    scored = run.scored
    if scored is None or not scored.usable:
        return None
    positive, tagged = scored.truth == 1, model.tagged(scored.logits)
    missed = positive & ~tagged
    counts, total = missed.sum(axis=0), positive.sum(axis=0)
    order = sorted(np.flatnonzero(counts).tolist(), key=lambda c: (-counts[c], total[c], c))[:SHOWN]
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
