"""Judge criteria and the race of `--method auto` by the pools of `benchmarks/selection.py`.

python benchmarks/selection_judge.py PACKED        # writes results/selection.json

PACKED holds what `selection.py pack` wrote. A criterion is judged by its rank correlation with test
mAP on complete labels over all models of a set, and by its regret: test mAP of the best model less
that of the model it selects. The race is replayed at the usual rate with the scores of the study:
short schedules of one epoch on each half of the rows, and complete ones on the training rows.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spml.metrics import observed_average_precision, selection_score
from spml.metrics.selection import estimated_positives, precisions

HERE = Path(__file__).parent
RECORD = HERE / "results" / "selection.json"
STEM = re.compile(
    r"(?P<name>.+) x(?P<rate>[\d.]+) e(?P<epochs>\d+)(?P<plain> plain)?( half(?P<half>\d))?$"
)
SEEDS = ("ll_r", "em .2")
ENSEMBLE = ("an", "wan", "ll_r", "em .2", "em .05", "gr voc", "gr coco", "gr narrow", "epr 1.5")
LEFT_OUT = ("gce",)  # fails everywhere, and flatters every correlation
Scores = npt.NDArray[np.float32]


class Pool:
    """The models of a set and the labels of its held-out rows."""

    def __init__(self, files: list[Path]) -> None:
        arrays: dict[str, Any] = {}
        for file in files:
            with np.load(file) as stored:
                arrays |= {key: stored[key] for key in stored}
        models: dict[str, dict[str, Any]] = defaultdict(dict)
        for key in [key for key in arrays if key.startswith("models/")]:
            _, stem, name = key.split("/")
            models[stem][name] = arrays.pop(key)
        self.labels = arrays
        self.models = []
        for stem, values in models.items():
            match = STEM.match(stem)
            assert match is not None, stem
            self.models.append({**values, **match.groupdict()})

    def full(self, *, plain: bool = False) -> list[dict[str, Any]]:
        """Models trained on the training rows to the end."""
        return [
            one
            for one in self.models
            if one["half"] is None and bool(one["plain"]) == plain and one["name"] not in LEFT_OUT
        ]

    def usual(self, *, plain: bool = False) -> dict[str, dict[str, Any]]:
        """Models of the usual rate, by name."""
        return {one["name"]: one for one in self.full(plain=plain) if float(one["rate"]) == 1}

    def short(self, epochs: int, half: int) -> dict[str, dict[str, Any]]:
        """Models of a short schedule on a half of the rows, by name."""
        kept = (one for one in self.models if one["half"] == str(half))
        return {one["name"]: one for one in kept if int(one["epochs"]) == epochs}


def scores_of(model: dict[str, Any]) -> Scores:
    return np.asarray(model["val" if "val" in model else "last"], np.float32)


def judged(pool: Pool) -> dict[str, Any]:
    """Rank correlation and regret of each criterion."""
    from scipy.stats import spearmanr

    models, observed = pool.full(), pool.labels["observed"].astype(np.int8)
    truth, logits = [float(one["test_map"]) for one in models], [scores_of(one) for one in models]
    usual = pool.usual()
    counts = estimated_positives(
        [scores_of(usual[name]) for name in ENSEMBLE if name in usual], observed
    )
    true = np.maximum((pool.labels["complete"] == 1).sum(axis=1), 1)
    criteria = {
        "observed AP": lambda z: np.nanmean(observed_average_precision(z, observed)),
        "two positives per item": lambda z: selection_score(z, observed),
        "estimated positives": lambda z: selection_score(z, observed, counts),
        "true positives": lambda z: selection_score(z, observed, true),
    }
    values = {name: [float(rule(z)) for z in logits] for name, rule in criteria.items()}
    values["complete labels"] = [
        float(one["complete"][int(one["best_epoch"]) - 1]) for one in models
    ]
    rows = {
        name: {
            "correlation": float(spearmanr(value, truth)[0]),
            "regret": max(truth) - truth[int(np.argmax(value))],
        }
        for name, value in values.items()
    }
    return {
        "models": len(models),
        "rows": len(observed),
        "observed_per_class": float(np.median((observed == 1).sum(axis=0))),
        "positives": float((pool.labels["complete"] == 1).sum(axis=1).mean()),
        "estimated_positives": float(counts.mean()),
        "criteria": rows,
    }


def replayed(pool: Pool) -> dict[str, Any] | None:
    """Outcome of the race, with the models of the study."""
    usual = pool.usual()
    observed = pool.labels["observed"].astype(np.int8)
    rivals = [name for name in usual if name not in (*SEEDS, "epr 3") and name in ENSEMBLE]
    screened = dict.fromkeys(rivals, 0.0)
    for half in (0, 1):
        short = pool.short(1, half)
        if not set(rivals) <= set(short):
            return None
        held = pool.labels[f"half{half}/observed"].astype(np.int8)
        counts = estimated_positives([scores_of(short[name]) for name in rivals], held)
        for name in rivals:
            screened[name] += selection_score(scores_of(short[name]), held, counts) / 2
    finalists = [*SEEDS, max(rivals, key=lambda name: screened[name])]
    counts = estimated_positives([scores_of(usual[name]) for name in finalists], observed)
    ranked = {name: precisions(scores_of(usual[name]), observed, counts) for name in finalists}
    order = sorted(finalists, key=lambda name: -ranked[name].score)
    lead, error = ranked[order[0]].lead(ranked[order[1]])
    test = {name: float(usual[name]["test_map"]) for name in ENSEMBLE if name in usual}
    return {
        "winner": order[0],
        "finalists": finalists,
        "lead": 100 * lead,
        "error": 100 * error,
        "score": 100 * ranked[order[0]].score,
        "test": test[order[0]],
        "an": test["an"],
        "best": max(test, key=lambda name: test[name]),
        "best_test": max(test.values()),
    }


def record(folder: Path) -> dict[str, Any]:
    """Judge every set of a folder."""
    groups: dict[str, list[Path]] = defaultdict(list)
    for file in sorted(folder.glob("*.npz")):
        groups[re.sub(r"(\.\d)?\.npz$", "", file.name).replace("pct", "%")].append(file)
    sets = {}
    for name, files in groups.items():
        pool = Pool(files)
        if not pool.models:
            continue
        usual = pool.usual()
        plain = {key: float(one["test_map"]) for key, one in pool.usual(plain=True).items()}
        by_rate: dict[str, dict[str, float]] = defaultdict(dict)
        for one in pool.full():
            by_rate[one["name"]][one["rate"]] = round(float(one["test_map"]), 2)
        sets[name] = {
            **judged(pool),
            "race": replayed(pool),
            "test_map": by_rate,
            "average_gain": {key: float(usual[key]["test_map"]) - plain[key] for key in plain},
        }
        print(name, sets[name]["race"], flush=True)
    return {"sets": sets}


def main() -> None:
    content = record(Path(sys.argv[1]))
    RECORD.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
