"""Compare SinglePositiveClassifier with one logistic regression per class on single positives.

The features are normal and the true labels are thresholded noisy linear scores, which favours
linear models. --features adds a file of real features, as benchmarks/voc_features.py writes it.

Run: python benchmarks/estimator.py [--features FILE.npz] [--json benchmarks/results/estimator.json]
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, f1_score
from sklearn.multiclass import OneVsRestClassifier

from spml import SinglePositiveClassifier

SIZES = ((400, 64, 10), (2000, 128, 10), (10000, 512, 20))  # items, features, classes
TEST = 4000


def real(path: Path) -> tuple[tuple[int, int, int], np.ndarray, np.ndarray]:
    """Read size, features and complete labels, the test items last."""
    with np.load(path, allow_pickle=False) as file:
        order = np.argsort(file["split"] == "test", kind="stable")
        x, truth = file["x"][order], (file["labels"][order] == 1).astype(np.int8)
        return (int((file["split"] != "test").sum()), x.shape[1], truth.shape[1]), x, truth


def generated(items: int, features: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Generate features and complete labels, the test items last."""
    random = np.random.default_rng(0)
    weights = 2 * random.normal(size=(features, classes)) / np.sqrt(features)
    x = random.normal(size=(items + TEST, features)).astype(np.float32)
    scores = x @ weights - 2 + 0.7 * random.normal(size=(items + TEST, classes))
    truth = (scores > 0).astype(np.int8)
    truth[np.arange(len(truth)), scores.argmax(axis=1)] = 1
    return x, truth


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--features", type=Path, help="real features: .npz with x, labels and split"
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    models: dict[str, Any] = {
        "one logistic regression per class, scikit-learn": OneVsRestClassifier(
            LogisticRegression(max_iter=200)
        ),
        '`SinglePositiveClassifier("an")`': SinglePositiveClassifier(
            "an", random_state=0, device="cpu"
        ),
        '`SinglePositiveClassifier("gr")`': SinglePositiveClassifier(
            "gr", random_state=0, device="cpu"
        ),
    }
    rows = []
    # load all libraries before timing
    SinglePositiveClassifier(epochs=1).fit(np.eye(20, dtype=np.float32), np.arange(20) % 2)
    sets = [("made up", size, *generated(*size)) for size in SIZES]
    sets += (
        [] if options.features is None else [("VOC2012, frozen features", *real(options.features))]
    )
    for kind, size, x, truth in sets:
        train, test = slice(0, size[0]), slice(size[0], None)
        single = np.where(truth == 1, np.random.default_rng(1).random(truth.shape), -1).argmax(
            axis=1
        )
        for name, model in models.items():
            start = time.perf_counter()
            model.fit(x[train], single[train])
            seconds = time.perf_counter() - start
            figure = float(average_precision_score(truth[test], model.decision_function(x[test])))
            chosen = (
                model.predict_proba(x[test]) >= 0.5
                if "Single" in name
                else model.decision_function(x[test]) >= 0
            )
            f1 = float(f1_score(truth[test], chosen, average="macro"))
            rows.append(
                {
                    "data": kind,
                    "size": size,
                    "model": name,
                    "seconds": seconds,
                    "map": 100 * figure,
                    "f1": 100 * f1,
                }
            )
            print(
                f"{kind} {size}: {name}: {seconds:.2f} s, "
                f"test mAP {100 * figure:.2f}, F1 at 0.5 {100 * f1:.2f}"
            )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
