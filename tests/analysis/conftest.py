"""A run folder whose unknown labels are known."""

import json

import numpy as np
import pytest

CONFIG = {
    "data": "toy",
    "options": {},
    "epochs": 2,
    "lr": 0.1,
    "backbone": "tiny",
    "weights": "none",
}


def write_run(folder, method="gr", seed=0, truth=None, logits=None, **config):
    """A finished run of two epochs on eight rows and three classes."""
    rng = np.random.default_rng(3)
    rows, classes = 8, 3
    complete = np.where(rng.random((rows, classes)) < 0.5, 1, -1)
    if truth is not None:
        complete = np.asarray(truth)
    complete[:, 0] = np.where((complete == 1).any(axis=1), complete[:, 0], 1)
    observed = np.zeros_like(complete)
    observed[np.arange(rows), (complete == 1).argmax(axis=1)] = 1
    (folder / "scores").mkdir(parents=True)
    for epoch in range(3):
        values = complete * epoch if logits is None else logits[epoch]
        np.savez(folder / "scores" / f"val-{epoch:02d}.npz", logits=np.asarray(values, np.float16))
    everything = np.concatenate([np.zeros((2, classes)), observed]).astype(np.int8)
    val_rows = np.arange(2, 2 + rows)
    arrays = {"observed": everything, "train_rows": np.arange(2), "val_rows": val_rows}
    np.savez(folder / "observed.npz", **arrays, sha256=np.array(""))
    names = np.array(["a", "b", "c"])
    np.savez(folder / "labels.npz", classes=names, val_truth=complete.astype(np.int8))
    result = {"method": method, "best_epoch": 2, "selection": "complete"}
    result |= {"val_map": 50.0 + seed, "test_map": 40.0 + seed}
    config = {**CONFIG, "method": method, "seed": seed, **config}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "result.json").write_text(json.dumps(result))
    lines = [{"epoch": epoch, "val_map": 10.0 * epoch} for epoch in range(3)]
    (folder / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.fixture
def make(tmp_path):
    def of(name="gr-0", **options):
        return write_run(tmp_path / name, **options)

    return of
