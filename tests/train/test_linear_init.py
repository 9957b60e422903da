import os
import signal
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from spml import losses
from spml.data import load
from spml.keyed import key
from spml.model import Classifier
from spml.train import fit
from spml.train.fitting import make_model
from spml.train.linear_init import LinearInit
from spml.train.resolve import resolve
from tests.conftest import checkpoint, contents, failing, history, outcome, refused, same
from tests.train.test_loop import noisy

MOMENTS = [  # during the initialisation, after it, and later
    ("spml.train.linear_init.seed_all", 2),
    ("spml.train.loop.epoch_order", 1),
    ("spml.train.loop.epoch_order", 2),
]
OPTIONS = {"em_apl": {"warmup": 1}, "ll_cp": {"delta": 0.01}}
EVERYTHING = ("config.json", "report.html", "last.ckpt", "result.json")


@pytest.fixture(scope="module")
def quick(quick):
    return replace(quick, epochs=2, linear_init=3)


@pytest.fixture
def after_stage(train, tmp_path):
    """A function that returns the checkpoint written before the first epoch."""

    def run(**settings):
        with failing(1):
            train(**settings)
        return checkpoint(tmp_path / "run")

    return run


def built(monkeypatch):
    """The models that are built from now on."""
    models, build = [], Classifier.build
    monkeypatch.setattr(Classifier, "build", lambda *a: models.append(build(*a)) or models[-1])
    return models


def test_only_the_head_changes(after_stage, scenes, quick):
    torch.manual_seed(key(quick.seed, 0))
    before = make_model(scenes, resolve(quick, scenes)).state_dict()
    after = after_stage()["model"]
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"head.weight", "head.bias"}
    # The statistics of batch norm stay as well.
    assert any("running_mean" in name for name in before)


def test_it_trains_a_linear_model_on_the_features_of_the_backbone(after_stage, scenes, quick):
    one_step = {"linear_lr": 0.01, "linear_batch_size": 10**6, "optimizer": "sgd"}
    state = after_stage(method="an", linear_init=1, **one_step)["model"]
    torch.manual_seed(key(quick.seed, 0))
    model = make_model(scenes, resolve(quick, scenes)).eval()
    train = scenes.observed.take(scenes.train_rows)
    with torch.no_grad():
        features = model.features(torch.from_numpy(train.x)).mean(dim=(2, 3))
    logits = features @ model.head.weight.T + model.head.bias
    losses.create("an")(logits, torch.from_numpy(train.labels)).backward()
    for name, own in model.head.named_parameters():
        torch.testing.assert_close(state[f"head.{name}"], own - 0.01 * own.grad)


def test_history_records_it_and_epoch_0_starts_from_its_best(
    after_stage, train, tmp_path, monkeypatch
):
    figures, heads, models = iter([40.0, 60.0, 50.0]), [], built(monkeypatch)

    def scored(*args):
        heads.append(models[0].head.weight.detach().clone())
        return next(figures)

    monkeypatch.setattr("spml.train.linear_init.validation_map", scored)
    state = after_stage()
    assert torch.equal(state["model"]["head.weight"], heads[1])
    assert not torch.equal(heads[1], heads[2])
    assert state["epoch"] == 0
    assert state["history"][0]["linear_init"] == {"epoch": 2, "val_map": 60.0}
    train(resume=True)
    lines = history(tmp_path / "run")
    assert [line["epoch"] for line in lines] == [0, 1, 2] and "linear_init" not in lines[1]


def test_its_figure_is_the_figure_of_epoch_0(train, tmp_path):
    train()
    line = history(tmp_path / "run")[0]
    assert line["linear_init"]["val_map"] == pytest.approx(line["val_map"])


class Watching(losses.Method):
    """A loss that records its calls."""

    needs = frozenset({"items", "index", "pass"})

    def __init__(self, items=0, classes=0, observed=None):
        super().__init__()
        self.calls = CALLS
        self.register_buffer("seen", torch.zeros(items, dtype=torch.int64))

    def begin_epoch(self, epoch, epochs):
        self.calls.append(("begin", epoch, epochs))

    def take_scores(self, logits, index):
        self.seen[index] += 1

    def end_epoch(self, epoch, epochs):
        self.calls.append(("end", epoch, epochs, self.seen.unique().tolist()))

    def carry_over(self):
        self.calls.append(("carry",))

    def forward(self, logits, observed, *, epoch, epochs, index, **more):
        assert not more
        return torch.nn.functional.softplus(-logits * observed).mean()


CALLS = []


def test_the_method_passes_through_both_stages(train):
    CALLS.clear()
    train(method="tests.train.test_linear_init:Watching", linear_init=2, epochs=1)
    stage = [("begin", 1, 2), ("end", 1, 2, [1]), ("begin", 2, 2), ("end", 2, 2, [2])]
    assert CALLS[:5] == [*stage, ("carry",)] and CALLS[5] == ("begin", 1, 1)


def test_roles_labels_are_carried_over_within_bounds(after_stage):
    state = after_stage(method="role", linear_lr=3.0)["method"]["label_logits"]
    bound = torch.logit(torch.tensor(1 - 1e-5, dtype=torch.float64)).item()
    assert state.abs().max().item() == pytest.approx(bound, rel=1e-6)


@pytest.mark.parametrize("method", ["gr", "role", "ll_cp", "em_apl", "boostlu"])
@pytest.mark.parametrize(("where", "call"), MOMENTS)
def test_an_interrupted_run_resumes_to_the_same_bytes(train, tmp_path, method, where, call):
    own = {"method": method, "options": OPTIONS.get(method)}
    train("whole", **own)
    with failing(call, where=where):
        train("cut", **own)
    assert (tmp_path / "cut" / "last.ckpt").exists() == ("loop" in where)
    train("cut", resume=True, **own)
    same(tmp_path / "cut", tmp_path / "whole")
    cut, whole = checkpoint(tmp_path / "cut")["method"], checkpoint(tmp_path / "whole")["method"]
    assert all(torch.equal(cut[name], whole[name]) for name in whole)


def test_with_observed_selection_unobserved_labels_change_nothing(train, scenes, tmp_path):
    for name, data in {"true": scenes, "noise": noisy(scenes, 7)}.items():
        train(name, data, selection="observed")
    assert contents(tmp_path / "true", EVERYTHING) == contents(tmp_path / "noise", EVERYTHING)
    assert outcome(tmp_path / "true") == outcome(tmp_path / "noise")


def features_of_method(logits, observed, *, features, epoch):
    assert features.shape[1:] == (10, 6, 6)
    return torch.nn.functional.softplus(-logits * observed).mean() + 0 * features.mean()


features_of_method.needs = frozenset({"features"})
two_views = lambda logits, observed, *, views: logits.mean()  # noqa: E731
two_views.needs = frozenset({"views"})


def test_a_method_that_needs_features_gets_them(after_stage):
    assert after_stage(method="tests.train.test_linear_init:features_of_method")["epoch"] == 0


def test_the_head_is_in_training_mode_while_it_is_trained(after_stage, monkeypatch):
    modes, build = set(), Classifier.build

    def watched(*args):
        model = build(*args)

        def note(*_):
            parts = model.head.training, model.backbone.training
            modes.add((*parts, torch.is_grad_enabled()))

        model.head.encoder.register_forward_hook(note)
        return model

    monkeypatch.setattr(Classifier, "build", watched)
    after_stage(options={"warmup": 1}, method="mime", lr=1e-3, head_lr=1, linear_init=2)
    assert modes == {(True, False, True), (False, False, False)}


def stage(model, method, settings):
    """Build LinearInit without a device."""
    fabric = SimpleNamespace(setup_optimizers=lambda optimizer: optimizer)
    return LinearInit(model, method, settings, fabric, None, None)


def test_the_parameters_of_a_method_learn_head_lr_times_as_fast(scenes, quick):
    settings = resolve(replace(quick, linear_lr=0.02, head_lr=7.0), scenes)
    model = Classifier.build("tiny", 3)
    data = {"items": 5, "classes": 3, "observed": torch.zeros(5, 3)}
    (only,) = stage(model, losses.create("role", **data), settings).optimizers()
    assert [group["lr"] for group in only.param_groups] == [0.02, pytest.approx(0.14)]
    assert [p.shape for p in only.param_groups[0]["params"]] == [(3, 64), (3,)]
    both = stage(model, losses.create("gr_learnable", **data), settings).optimizers()
    assert len(both) == 2 and isinstance(both[1], torch.optim.SGD)


def test_a_stop_request_is_noticed_even_if_every_batch_is_skipped(train, tmp_path):
    CALLS.clear()
    with pytest.raises(KeyboardInterrupt):
        train(method="tests.train.test_linear_init:never_finite", on_nan="skip")
    assert CALLS == ["stop"] and not (tmp_path / "run").exists()


def never_finite(logits, observed):
    CALLS.append("stop")
    os.kill(os.getpid(), signal.SIGINT)
    return logits.mean() * torch.nan


never_finite.needs = frozenset({"index"})  # not called by check_method


def test_without_validation_rows_the_last_epoch_is_the_best(scenes, quick, tmp_path, capsys):
    unseen = replace(scenes, val_rows=scenes.val_rows[:0])
    result = fit(unseen, quick, tmp_path / "run")
    first = history(tmp_path / "run")[0]
    assert first == {"epoch": 0, "linear_init": {"epoch": 3, "val_map": None}, "val_map": None}
    assert result["best_epoch"] == 2 and "linear init: epoch 3 of 3\n" in capsys.readouterr().out


SEEN: list[torch.dtype] = []


def noting(logits, observed):
    SEEN.append(logits.dtype)
    return (logits - observed).square().mean()


def test_a_custom_loss_gets_float32_logits_as_in_later_epochs(train):
    SEEN.clear()
    train(method="tests.train.test_linear_init:noting", precision="bf16-mixed", epochs=1)
    assert set(SEEN) == {torch.float32}


def test_defaults_follow_the_head(scenes, quick):
    settings = resolve(quick, scenes)
    assert (settings.linear_lr, settings.linear_batch_size) == (pytest.approx(3e-2), 32)
    explicit = resolve(replace(quick, linear_lr=0.5, linear_batch_size=4), scenes)
    assert (explicit.linear_lr, explicit.linear_batch_size) == (0.5, 4)
    assert resolve(replace(quick, linear_init=0), scenes).as_config()["linear_lr"] is None


def test_impossible_requests_are_refused_before_anything_is_written(
    train, features_file, tmp_path, monkeypatch
):
    own = "tests.train.test_linear_init:two_views"
    for message, data, settings in (
        ("backbone 'linear' has no parameters: leave it out", load(features_file), {}),
        ("linear_init must not be negative, as -1 is", None, {"linear_init": -1}),
        ("two_views needs two: leave it out", None, {"method": own}),
    ):
        backbone = "tiny" if data is None else "linear"
        with refused(message):
            train(data=data, **{"backbone": backbone, "linear_init": 3, **settings})
    monkeypatch.setattr("spml.train.linear_init.free_memory", lambda device: 1000)
    with refused(r"keeps features of 64, 45 kB in all, but only 1 kB of memory are free"):
        train(linear_init=3)
    assert not (tmp_path / "run").exists()


def test_the_size_is_printed_first(scenes, quick, tmp_path, capsys):
    fit(scenes, replace(quick, linear_init=1, epochs=1, head="boostlu"), tmp_path / "run")
    lines = capsys.readouterr().out.splitlines()
    assert "features of 36 x 64 for each item take" in lines[1]
    assert lines[2].startswith("linear init: epoch 1 of 1")
