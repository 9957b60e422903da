"""Precision of the first suggestions on validation rows of recorded VOC runs.

python benchmarks/review_scores.py --root DIR --json benchmarks/results/review-validation.json

DIR holds VOCdevkit. No run was trained on these rows. The order is that of `spml review`; complete
labels are used only to count the right suggestions.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from spml.data import load
from spml.use.review.ranking import fit_scale, likeliest

RESULTS = Path(__file__).parent / "results" / "voc2012-lite0"
DEPTHS = (100, 250, 500)


def examined(name: str, observed: np.ndarray, complete: np.ndarray) -> dict[str, Any]:
    """Precision of the first suggestions of a run, at each depth."""
    run = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    with np.load(
        RESULTS / "scores" / name / "scores" / f"val-{run['result']['best_epoch']:02d}.npz"
    ) as file:
        logits = file[file.files[0]].astype(np.float32)
    rows, columns = likeliest(fit_scale(logits, observed), logits, observed, max(DEPTHS))
    right = complete[rows, columns] == 1
    precision = {str(depth): float(right[:depth].mean()) for depth in DEPTHS}
    missing = int(((complete == 1) & (observed == 0)).sum())
    unknown = int((observed == 0).sum())
    return {
        "run": name,
        "method": run["method"],
        "missing": missing,
        "unknown": unknown,
        "precision": precision,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, required=True, help="the folder that holds VOCdevkit")
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    experiment = load("voc", options.root)
    assert experiment.complete is not None
    tables = [
        table.take(experiment.val_rows).labels
        for table in (experiment.observed, experiment.complete)
    ]
    records = [examined(folder.name, *tables) for folder in sorted((RESULTS / "scores").iterdir())]
    options.json.write_text(json.dumps(records, indent=1) + "\n")


if __name__ == "__main__":
    main()
