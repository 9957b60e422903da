import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from lightning.fabric import Fabric
from lightning.fabric.plugins import MixedPrecision

from spml.files import read_json
from spml.keyed import key
from spml.model import Classifier, load_model
from spml.train.fitting import make_model
from spml.train.resolve import resolve
from spml.train.step import make_optimizer, one_cycle, set_rates, take_step
from tests.conftest import assert_resumes, checkpoint, refused
from tests.train.settings import resolved

ONE_CYCLE = resolved(schedule="one-cycle")


def groups():
    return [
        {"params": [torch.nn.Parameter(torch.ones(2))], "lr": 0.1},
        {"params": [torch.nn.Parameter(torch.ones(3))], "lr": 1.0},
        {"params": []},
    ]


@pytest.mark.parametrize(
    "kind", [torch.optim.Adam, torch.optim.AdamW, torch.optim.Adamax, torch.optim.SGD]
)
def test_the_named_optimiser_is_built(kind):
    name = kind.__name__.lower()
    optimizer = make_optimizer(groups(), 0.5, resolved(optimizer=name, weight_decay=0.01))
    assert type(optimizer) is kind
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 1.0]
    assert all(group["weight_decay"] == 0.01 for group in optimizer.param_groups)
    assert name != "sgd" or all(group["momentum"] == 0.9 for group in optimizer.param_groups)
    plain = make_optimizer([{"params": groups()[0]["params"]}], 0.5, resolved(optimizer=name))
    assert [group["lr"] for group in plain.param_groups] == [0.5]


@pytest.mark.parametrize(
    ("name", "buffer"),
    [
        *(("adam", "exp_avg_sq"), ("adamw", "exp_avg_sq")),
        *(("adamax", "exp_inf"), ("sgd", "momentum_buffer")),
    ],
)
def test_a_run_uses_the_named_optimiser(train, tmp_path, name, buffer):
    train(optimizer=name, epochs=1, lr=1e-3)
    state = checkpoint(tmp_path / "run")["optimizers"][0]["state"]
    assert state and all(buffer in values for values in state.values())
    assert read_json(tmp_path / "run" / "config.json")["optimizer"] == name


def test_a_cycle_rises_over_a_fifth_and_falls_to_zero():
    expected = {0.0: 1 / 25, 0.1: (1 / 25 + 1) / 2, 0.2: 1, 0.6: 0.5, 1.0: 0}
    assert {done: one_cycle(done) for done in expected} == pytest.approx(expected, abs=1e-12)
    steps = [one_cycle(i / 1000) for i in range(1001)]
    assert all(a < b for a, b in pairwise(steps[:201]))
    assert all(a > b for a, b in pairwise(steps[200:]))


def test_rates_are_multiples_of_the_initial_ones():
    optimizer = make_optimizer(groups(), 0.5, ONE_CYCLE)
    for done in (0.1, 0.6, 0.2):
        set_rates([optimizer], ONE_CYCLE, (0, 1), done)
        rates = [group["lr"] for group in optimizer.param_groups]
        assert rates == pytest.approx([0.1 * one_cycle(done), one_cycle(done)])
    set_rates([optimizer], ONE_CYCLE, (0, 1), 0.6)
    again = make_optimizer(groups(), 0.5, ONE_CYCLE)
    again.load_state_dict(optimizer.state_dict())  # in the middle of a cycle
    set_rates([again], ONE_CYCLE, (0, 1), 0.2)
    assert [group["lr"] for group in again.param_groups] == pytest.approx([0.1, 1.0])


def test_a_run_goes_through_one_cycle(train, monkeypatch):
    seen = []
    monkeypatch.setattr(
        "spml.train.step.one_cycle", lambda done: seen.append(done) or one_cycle(done)
    )
    train(schedule="one-cycle", epochs=5)
    assert seen == [step / 20 for step in range(20)]  # batches of 32 of 128 items


def test_an_interrupted_cycle_resumes_to_the_same_bytes(scenes, quick, train, tmp_path):
    assert_resumes(scenes, replace(quick, schedule="one-cycle"), tmp_path)
    with refused("begun with schedule = 'one-cycle', not 'constant'"):
        train("cut", resume=True)


NORMS = {
    f"backbone.{layer}.{part}"
    for layer in (1, 4, 7, 10)
    for part in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
}


@pytest.mark.parametrize("frozen", [True, False])
def test_frozen_batch_norm_keeps_its_statistics_scale_and_shift(
    scenes, quick, train, tmp_path, frozen
):
    train(frozen_norm=frozen, epochs=2, weight_decay=0.1, optimizer="adamw")
    torch.manual_seed(key(quick.seed, 0))
    before = make_model(scenes, resolve(quick, scenes)).state_dict()
    after = load_model(tmp_path / "run")[0].state_dict()
    changed = {name for name in after if not torch.equal(after[name], before[name])}
    assert set(after) >= NORMS
    assert not changed & NORMS if frozen else changed >= NORMS
    assert {"backbone.0.weight", "backbone.9.weight", "head.weight", "head.bias"} <= changed


def test_frozen_batch_norm_stays_frozen_in_every_mode():
    model = Classifier.build("resnet18", 2)
    model.frozen_norm = True
    norms = [
        module for module in model.backbone.modules() if isinstance(module, torch.nn.BatchNorm2d)
    ]
    for mode in (model.train, model.eval, model.train):
        mode()
        assert norms and all(not norm.training for norm in norms)
        assert all(not p.requires_grad for norm in norms for p in norm.parameters())
    assert model.training and model.head.training
    assert all(p.requires_grad for p in model.head.parameters())


def in_half(*_, **__):
    """Build Fabric with the gradient scaler of 16-mixed, which it otherwise has on GPUs only."""
    return Fabric(accelerator="cpu", plugins=MixedPrecision("16-mixed", "cpu"))


@pytest.mark.parametrize("linear_init", [0, 1])
def test_float16_unscales_gradients_for_the_optimiser_of_a_method(
    train, tmp_path, monkeypatch, linear_init
):
    settings = {"method": "gr_learnable", "epochs": 1, "linear_init": linear_init}
    train("whole", **settings)
    monkeypatch.setattr("spml.train.fitting.make_fabric", in_half)
    train("half", **settings)
    whole, half = (checkpoint(tmp_path / name)["method"] for name in ("whole", "half"))
    for name, learned in whole.items():
        assert (learned - learned[0]).any() and torch.allclose(half[name], learned, atol=2e-3), name


def test_in_float16_the_optimiser_of_a_method_skips_missing_and_infinite_gradients():
    used, unused, other = (torch.nn.Parameter(torch.ones(())) for _ in range(3))
    fabric = in_half()
    common = fabric.setup_optimizers(torch.optim.SGD([other], lr=1.0))
    optimizers = [common, torch.optim.SGD([used], lr=1.0), torch.optim.SGD([unused], lr=1.0)]
    for factor, after in ((math.inf, 1.0), (0.25, 0.75)):
        used.grad = other.grad = None
        fabric.backward(factor * used + other)
        take_step(optimizers, fabric)
        assert used.item() == after and unused.item() == 1.0


def test_a_run_in_float16_resumes_with_its_scale(scenes, quick, tmp_path, monkeypatch):
    def far_too_high(*_, **__):
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**30)
        return Fabric(accelerator="cpu", plugins=MixedPrecision("16-mixed", "cpu", scaler))

    monkeypatch.setattr("spml.train.fitting.make_fabric", far_too_high)
    settings = replace(quick, method="hill", epochs=6)
    assert_resumes(scenes, settings, tmp_path, {"reduction": "sum"})
    assert checkpoint(tmp_path / "whole")["precision"]["scale"] < 2**30
