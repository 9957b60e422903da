"""Labels that are probably missing from the run's validation rows, by the ranking of `spml review`."""

from __future__ import annotations

from typing import Any

import numpy as np

from spml.metrics.inputs import HIGHEST
from spml.report.model import Model
from spml.report.pictures import Pictures
from spml.runs.run import Run

SHOWN = 12
SHARE = 0.25  # of the unknown labels, at most: of few items, few are suspects
PER_CLASS = 3  # at most, so that one class does not fill the page


def suspects(run: Run, model: Model, pictures: Pictures) -> dict[str, Any] | None:
    """The unknown labels that are likeliest positives; None where the run has no scores of rows with observed labels.

    Only observed labels are read to rank them. Where complete ones chose the epoch, these say which are there.
    """
    held = run.held_out
    if held is None or not held.usable:
        return None
    from spml.use.review.ranking import fit_scale, likeliest

    logits = np.clip(held.logits, -HIGHEST, HIGHEST)
    wanted = min(SHOWN, int((held.truth == 0).sum() * SHARE))
    rows, columns = likeliest(
        fit_scale(logits, held.truth), logits, held.truth, wanted, per_class=PER_CLASS
    )
    known = run.val_truth if run.fact("selection") == "complete" else None
    known = known if known is not None and known.shape == logits.shape and known.all() else None
    cards = []
    for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
        cards.append(
            {
                "uri": pictures.uri("validation", row),
                "item": pictures.name("validation", row),
                "name": run.classes[column],
                "probability": float(model.probabilities(logits[row : row + 1])[0, column]),
                "observed": [run.classes[c] for c in np.flatnonzero(held.truth[row] == 1).tolist()],
                "there": None if known is None else bool(known[row, column] == 1),
            }
        )
    return {
        "cards": cards,
        "per_class": PER_CLASS,
        "pictured": any(card["uri"] for card in cards),
        "confirmed": None if known is None else sum(card["there"] for card in cards),
        "num_items": len(logits),
        "folder": str(run.folder),
    }
