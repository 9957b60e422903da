"""A method with two stages: the second starts from the best epoch of the first."""

from dataclasses import replace

import torch

from spml.losses.cross_entropy import an
from spml.losses.framework import Method
from spml.model import load_model
from spml.train.step import one_cycle
from tests.conftest import assert_resumes

FIRST = 3


class Forgetting(Method):
    """Learns in two epochs, unlearns in a third, and then learns nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.loss = an(reduction="none")

    def stage(self, epoch, epochs):
        return (FIRST, epochs) if epoch > FIRST else (0, FIRST)

    def entries(self, logits, context):
        sign = {1: 1.0, 2: 1.0, 3: -9.0}.get(context.epoch, 0.0)
        return sign * self.loss.entries(logits, context)


NAME = "tests.train.test_stages:Forgetting"


def test_the_second_stage_starts_from_the_best_epoch_with_a_new_optimiser(train, tmp_path):
    """Momentum or weights of the last epoch would move the parameters further."""
    result = train(method=NAME, epochs=5, lr=3e-3, frozen_norm=True)
    assert result["best_epoch"] < FIRST
    best = load_model(tmp_path / "run")[0].state_dict()
    last = torch.load(tmp_path / "run" / "last.ckpt", weights_only=True)["model"]
    assert all(torch.equal(last[name], best[name]) for name in best)


def test_each_stage_has_a_cycle_of_rates(train, monkeypatch):
    seen = []
    monkeypatch.setattr(
        "spml.train.step.one_cycle", lambda done: seen.append(done) or one_cycle(done)
    )
    train(method=NAME, epochs=5, schedule="one-cycle")
    assert seen == [step / 12 for step in range(12)] + [step / 8 for step in range(8)]


def test_a_run_interrupted_before_the_second_stage_resumes_to_the_same_bytes(
    scenes, quick, tmp_path, monkeypatch
):
    monkeypatch.setattr("tests.train.test_stages.FIRST", 2)
    assert_resumes(scenes, replace(quick, method=NAME, ema=0.9), tmp_path)
