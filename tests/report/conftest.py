"""Fabricated run folders, as training would leave them."""

import hashlib
import html
import json
import re

import numpy as np
import pytest

from spml.files import write_json
from spml.report import write_report
from spml.runs.run import Run
from tests.conftest import stored

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
SKILL = {"an": 1.2, "gr": 2.1, "role": 1.7, "full": 2.5}
OPTIONS = {
    "an": {},
    "gr": {"variant": "official", "q3": 1.5, "w": [0, 10], "b": [-2, -8]},
    "role": {"expected_positives": 1.46, "lr_factor": 10.0},
}


def average_precision(logits, truth):
    from spml import metrics

    return 100 * metrics.average_precision(logits, truth)


def fabricate(
    folder,
    method="gr",
    seed=0,
    *,
    classes=DIGITS,
    items=(60, 30, 40),
    epochs=2,
    selection="complete",
    observe_seed=1200,
    data="digits",
    **config,
):
    """A finished run; `config` adds or replaces settings."""
    labels = np.random.default_rng((observe_seed, len(classes)))
    rng = np.random.default_rng((seed, sum(map(ord, method)), len(classes)))
    width, (train, val, test) = len(classes), items
    shares = np.clip(0.35 / np.arange(1, width + 1) ** 0.7, 0.01, 1)
    hard = labels.normal(0, 0.6, width)
    truth = [
        np.where(labels.random((n, width)) < shares, 1, -1).astype(np.int8)
        for n in (train + val, val, test)
    ]
    observed = np.zeros((train + val, width), np.int8)
    observed[
        np.arange(train + val),
        np.where(truth[0] == 1, labels.random(truth[0].shape), -1).argmax(axis=1),
    ] = 1
    rows = labels.permutation(train + val)
    train_rows, val_rows = np.sort(rows[:train]), np.sort(rows[train:])
    val_truth = truth[0][val_rows] if selection == "complete" else observed[val_rows]

    def logits(known, progress):
        signal = known * np.maximum(SKILL.get(method, 1.5) + hard, 0.1) * progress
        return (signal + rng.normal(0, 1.3, known.shape) - 2.2).astype(np.float16)

    (folder / "scores").mkdir(parents=True)
    history, best = [], (0, -1.0)
    for epoch in range(epochs + 1):
        progress = (1 - np.exp(-epoch / 2)) * (1 - 0.03 * max(0, epoch - 5))
        scores = logits(truth[0][val_rows], progress)
        np.savez_compressed(folder / "scores" / f"val-{epoch:02d}.npz", logits=scores)
        val_map = float(average_precision(scores, np.where(val_truth == 1, 1, -1)).mean())
        best = max(best, (epoch, val_map), key=lambda pair: pair[1])
        loss = {} if epoch == 0 else {"loss": 0.08 + 0.3 * np.exp(-epoch / 2) + 0.01 * rng.random()}
        history.append({"epoch": epoch, **loss, "val_map": val_map, "seconds": 4.25})
    scores = logits(truth[2], 0.95)
    np.savez_compressed(folder / "scores" / "test.npz", logits=scores)
    ap = dict(zip(classes, average_precision(scores, truth[2]).tolist(), strict=True))
    positives = (observed == 1).astype(np.uint8)
    sha256 = hashlib.sha256(positives.tobytes()).hexdigest()
    np.savez_compressed(
        folder / "observed.npz",
        observed=observed,
        train_rows=train_rows,
        val_rows=val_rows,
        sha256=np.array(sha256),
    )
    np.savez_compressed(
        folder / "labels.npz", classes=np.array(classes), val_truth=val_truth, test_truth=truth[2]
    )
    settings = {
        "data": data,
        "method": method,
        "options": OPTIONS.get(method, {}),
        "backbone": "tiny",
        "weights": "none",
        "size": 40,
        "epochs": epochs,
        "batch_size": 32,
        "lr": 0.001,
        "seed": seed,
        "observe_seed": observe_seed,
        "split_seed": 1200,
        "selection": selection,
        "device": {"kind": "cpu", "precision": "32-true"},
        "side_information": {"mean_positives": 1.46} if method == "role" else {},
        "versions": {"spml": "0.1.0", "torch": "2.14.1", "numpy": "2.4.6"},
        "command": f"spml train {data} --method {method} --seed {seed} --out runs/{method}-{seed}",
    } | config
    result = {
        key: settings[key]
        for key in ("method", "options", "data", "backbone", "seed", "epochs", "selection")
    }
    test_map = float(np.mean(list(ap.values())))
    result |= {"best_epoch": best[0], "val_map": best[1], "test_map": test_map}
    result |= {"per_class_ap": ap, "images_per_second": 5321.4 + seed, "seconds": 95.25}
    write_json(folder / "config.json", settings)
    write_json(folder / "result.json", result)
    (folder / "history.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in history), encoding="utf-8"
    )
    return folder


def outcome(run, key):
    return stored(run / "result.json")[key]


def page(*runs, **options):
    """The page of one run or of a comparison."""
    folder = runs[0] if len(runs) == 1 else runs[0].parent
    return write_report(runs, folder / "report.html", **options).read_text(encoding="utf-8")


def text(document):
    """The visible text, in one line."""
    visible = re.sub(r"<style>.*?</style>", "", document, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", visible)).split())


def section(document, heading):
    """The visible text of one section, in one line."""
    parts = re.findall(r"<section>.*?</section>", document, re.DOTALL)
    (match,) = [part for part in parts if f"<h2>{heading}" in part]
    return text(match)


def assert_self_contained(document):
    bare = re.sub(r'xmlns(:\w+)?="[^"]*"', "", document)
    assert not re.search(r"https?:|//\w|@import|<script|<link|<iframe|<object", bare)
    assert all(target.startswith("#") for target in re.findall(r'(?:href|src)="([^"]*)"', bare))
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", bare))
    known = re.findall(r' id="([^"]*)"', bare)
    assert len(known) == len(set(known))
    assert set(re.findall(r'(?:href="|url\()#([^")]*)', bare)) <= set(known)


def images(document):
    return re.findall(r'<img src="([^"]*)"', document)


def with_values(run, **values):
    """The same run with other values than its folder holds."""
    other = Run(run.folder)
    vars(other).update(values)
    return other


@pytest.fixture
def make_run(tmp_path):
    def make(name="run", *args, **keywords):
        return fabricate(tmp_path / name, *args, **keywords)

    return make


@pytest.fixture
def runs(make_run):
    return [
        make_run(f"{method}-{seed}", method, seed)
        for method in ("an", "gr", "role")
        for seed in range(3)
    ]
