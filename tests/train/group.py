"""Train every method in a group of processes and write the losses; used by test_distributed."""

import json
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import torch

from spml import losses
from spml.data import load
from spml.train import Settings, fit
from spml.train.step import LossWatch

OPTIONS = {  # use all parts of a method within two epochs, without random draws
    "em_apl": {"warmup": 1},
    "crisp": {"warmup": 1},
    "ll_r": {"delta": 0.05},
    "ll_ct": {"delta": 0.05},
    "ll_cp": {"delta": 0.05},
    "boostlu": {"delta": 0.05},
    "mime": {"warmup": 1, "theta": 0.5, "sample": False},
    "smile": {"sample": False},
    "en": {"cl": 1.0, "scl": 1.0, "grid": 6},
}


def run_all(scenes: str, names: list[str]) -> dict[str, dict[str, list[float]]]:
    settings = Settings(
        backbone="tiny",
        epochs=2,
        batch_size=6,
        lr=0.01,
        head_lr=1,
        optimizer="sgd",
        flip=False,
        frozen_norm=True,
    )
    settings = replace(settings, accelerator="cpu", eval_batch_size=10)
    experiment = load(Path(scenes), labels="complete")
    outcome = {}
    add = LossWatch.add
    for name in names:
        seen: list[float] = []

        def noted(self, loss, logits, rows, where, seen=seen):
            seen.append(loss.item())
            add(self, loss, logits, rows, where)

        LossWatch.add = noted
        folder = Path(os.environ["RUNS"]) / name
        result = fit(
            experiment,
            replace(settings, method=name),
            folder,
            options=OPTIONS.get(name),
            quiet=True,
        )
        outcome[name] = {"losses": seen, "maps": [result["val_map"], result["test_map"]]}
    return outcome


if __name__ == "__main__":
    torch.set_num_threads(1)
    scenes, out = sys.argv[1:3]
    names = sys.argv[3:] or losses.names()
    with tempfile.TemporaryDirectory() as here:
        os.environ.setdefault("RUNS", here)
        outcome = run_all(scenes, names)
    if os.environ.get("RANK", "0") == "0":
        Path(out).write_text(json.dumps(outcome))
