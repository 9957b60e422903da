import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from lightning.fabric import Fabric
from lightning.fabric.plugins import MixedPrecision

from spml.files import read_json
from spml.model import Classifier, load_model
from spml.runs.checkpoint import read_checkpoint
from spml.train import fit
from spml.train.step import make_optimizer, rate, set_rate, take_step
from tests.conftest import assert_resumes, contents, refused
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


@pytest.mark.parametrize("name", ["adam", "adamw", "adamax", "sgd"])
def test_a_run_uses_the_named_optimiser(scenes, quick, tmp_path, name, monkeypatch):
    optimizers = []
    monkeypatch.setattr(
        "spml.train.step.make_optimizer",
        lambda *args: optimizers.append(make_optimizer(*args)) or optimizers[-1],
    )
    settings = replace(quick, optimizer=name, epochs=1, lr=1e-3)
    fit(scenes, settings, tmp_path / "run", quiet=True)
    assert type(optimizers[0]).__name__.lower() == name
    state = read_checkpoint(tmp_path / "run" / "last.ckpt")["optimizers"][0]["state"]
    buffer = {"adamax": "exp_inf", "sgd": "momentum_buffer"}.get(name, "exp_avg_sq")
    assert state and all(buffer in values for values in state.values())
    assert read_json(tmp_path / "run" / "config.json")["optimizer"] == name


def test_a_constant_rate_is_one():
    assert {rate(resolved(), done) for done in (0.0, 0.1, 0.2, 0.7, 1.0)} == {1.0}


def test_a_cycle_rises_over_a_fifth_and_falls_to_zero():
    assert rate(ONE_CYCLE, 0.0) == pytest.approx(1 / 25)
    assert rate(ONE_CYCLE, 0.1) == pytest.approx((1 / 25 + 1) / 2)
    assert rate(ONE_CYCLE, 0.2) == 1
    assert rate(ONE_CYCLE, 0.6) == pytest.approx(0.5)
    assert rate(ONE_CYCLE, 1.0) == pytest.approx(0, abs=1e-12)
    steps = [rate(ONE_CYCLE, i / 1000) for i in range(1001)]
    assert all(a < b for a, b in pairwise(steps[:201])) and all(
        a > b for a, b in pairwise(steps[200:])
    )


def test_the_cycle_equals_torchs():
    """Torch counts steps, and ends at 1 / 250,000 of the rate instead of zero."""
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    steps = 5000
    cycle = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 1.0, total_steps=steps, pct_start=0.2, cycle_momentum=False
    )
    for step in range(steps):
        assert optimizer.param_groups[0]["lr"] == pytest.approx(
            rate(ONE_CYCLE, step / steps), abs=2e-3
        )
        optimizer.step()
        cycle.step()


def test_rates_are_multiples_of_the_initial_ones():
    optimizer = make_optimizer(groups(), 0.5, resolved())
    for factor in (0.5, 0.25, 1.0):
        set_rate(optimizer, factor)
        assert [group["lr"] for group in optimizer.param_groups] == pytest.approx(
            [0.1 * factor, factor]
        )
    set_rate(optimizer, 0.5)
    again = make_optimizer(groups(), 0.5, resolved())
    again.load_state_dict(optimizer.state_dict())  # in the middle of a cycle
    set_rate(again, 1.0)
    assert [group["lr"] for group in again.param_groups] == pytest.approx([0.1, 1.0])


def watch_rates(monkeypatch):
    seen = []
    monkeypatch.setattr("spml.train.step.rate", lambda *args: seen.append(rate(*args)) or seen[-1])
    return seen


def test_a_run_goes_through_one_cycle(scenes, quick, tmp_path, monkeypatch):
    seen = watch_rates(monkeypatch)
    fit(scenes, replace(quick, schedule="one-cycle", epochs=5), tmp_path / "run", quiet=True)
    assert len(seen) == 5 * 4  # batches of 32 of 128 items
    assert seen == [rate(ONE_CYCLE, i / 20) for i in range(20)]
    assert seen[4] == 1 and seen[-1] == pytest.approx((1 + math.cos(math.pi * 15 / 16)) / 2)


@pytest.mark.parametrize("optimizer", ["adam", "adamax"])
def test_an_interrupted_cycle_resumes_to_the_same_bytes(scenes, quick, tmp_path, optimizer):
    settings = replace(quick, schedule="one-cycle", optimizer=optimizer)
    assert_resumes(scenes, settings, tmp_path)
    fit(scenes, replace(settings, schedule="constant"), tmp_path / "constant", quiet=True)
    assert contents(tmp_path / "constant") != contents(tmp_path / "whole")


def test_a_run_cannot_resume_with_another_schedule(scenes, quick, tmp_path):
    settings = replace(quick, epochs=1)
    fit(scenes, settings, tmp_path / "run", quiet=True)
    with refused("begun with schedule = 'constant', not 'one-cycle'"):
        fit(
            scenes,
            replace(settings, schedule="one-cycle"),
            tmp_path / "run",
            resume=True,
            quiet=True,
        )


@pytest.mark.parametrize("frozen", [True, False])
def test_frozen_batch_norm_keeps_its_statistics_scale_and_shift(
    scenes, quick, tmp_path, monkeypatch, frozen
):
    built, build = [], Classifier.build

    def noticed(*args):
        model = build(*args)
        for name, value in model.backbone.state_dict().items():
            if "running" in name or value.ndim == 1:
                value.add_(
                    torch.rand(value.shape, generator=torch.Generator().manual_seed(len(name))) / 10
                )
        built.append({name: value.clone() for name, value in model.state_dict().items()})
        return model

    monkeypatch.setattr(Classifier, "build", noticed)
    settings = replace(quick, frozen_norm=frozen, epochs=2, weight_decay=0.1, optimizer="adamw")
    fit(scenes, settings, tmp_path / "run", quiet=True)
    monkeypatch.undo()
    after = load_model(tmp_path / "run")[0].state_dict()
    changed = {name for name in after if not torch.equal(after[name], built[0][name])}
    layers = (1, 4, 7, 10)
    norms = {
        f"backbone.{i}.{part}"
        for i in layers
        for part in ("weight", "bias", "running_mean", "running_var")
    }
    norms |= {f"backbone.{i}.num_batches_tracked" for i in layers}
    assert norms <= set(after)
    assert not changed & norms if frozen else norms <= changed
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
    scenes, quick, tmp_path, monkeypatch, linear_init
):
    settings = replace(quick, method="gr_learnable", epochs=1, linear_init=linear_init)
    fit(scenes, settings, tmp_path / "whole", quiet=True)
    monkeypatch.setattr("spml.train.fitting.make_fabric", in_half)
    fit(scenes, settings, tmp_path / "half", quiet=True)
    whole, half = (
        read_checkpoint(tmp_path / name / "last.ckpt")["method"] for name in ("whole", "half")
    )
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
    assert read_checkpoint(tmp_path / "whole" / "last.ckpt")["precision"]["scale"] < 2**30
