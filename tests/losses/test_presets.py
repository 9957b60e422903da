"""Published settings: complete, sourced, valid, and equal to the sources."""

from dataclasses import fields

import pytest

from spml import losses
from spml.data.benchmarks import NAMES as DATASETS
from spml.losses.registry import GR_TRAINING
from spml.runs.settings import Settings

from .common import NAMES


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dataset", DATASETS)
def test_every_method_has_settings_for_every_benchmark(name, dataset):
    preset = losses.preset(name, dataset)
    options, settings = (
        {option.name for option in losses.options(name)},
        {field.name for field in fields(Settings)},
    )
    assert set(preset.options) <= options
    assert {"lr", "batch_size", "epochs", "head_lr"} <= set(preset.training) <= settings
    assert set(preset.search) <= options | settings
    searched = {f"search.{key}" for key in preset.search}
    assert set(preset.sources) == set(preset.options) | set(preset.training) | searched
    assert all(preset.sources.values())
    losses.check_options(name, preset.options)
    Settings(method=name, **preset.training)
    if not losses.needs(name):
        losses.create(name, **preset.options)


def test_every_method_has_its_own_published_values():
    for name in NAMES:
        sources = [
            source
            for dataset in DATASETS
            for source in losses.preset(name, dataset).sources.values()
        ]
        assert any(source != GR_TRAINING for source in sources), f"{name}: nothing but the protocol"


@pytest.mark.parametrize(
    ("dataset", "batch_size", "lr", "epochs", "q3", "w", "b"),
    [
        ("voc", 8, 1e-5, 8, 1, 2, -2),
        ("coco", 16, 1e-5, 8, 1, 10, -8),
        ("nuswide", 16, 1e-5, 10, 1, 10, -8),
        ("cub", 8, 5e-5, 10, 1.5, 10, -8),
    ],
)
def test_gr_has_the_papers_table(dataset, batch_size, lr, epochs, q3, w, b):
    preset = losses.preset("gr", dataset)
    options = {"q2": 0.01, "q3": q3, "w": (0, w), "b": (-2, b), "mu": (0.5, 0.8), "sigma": (2, 0.5)}
    assert preset.options == options
    expected = {
        "batch_size": batch_size,
        "lr": lr,
        "epochs": epochs,
        "head_lr": 10,
        "patience_drop": 2,
    }
    assert preset.training == expected


@pytest.mark.parametrize(
    ("name", "option", "values"),
    [
        ("an_ls", "smoothing", (0.1,) * 4),
        ("epr", "expected_positives", (1.5, 2.9, 1.9, 31.4)),
        ("role", "expected_positives", (1.5, 2.9, 1.9, 31.4)),
        ("focal", "gamma", (2,) * 4),
        ("asl", "gamma_neg", (4,) * 4),
        ("asl", "gamma_pos", (1, 0, 1, 1)),
        ("asl", "clip", (0.05,) * 4),
        ("hill", "lam", (1.5,) * 4),
        ("hill", "margin", (1,) * 4),
        ("hill", "gamma", (2,) * 4),
        ("splc", "tau", (0.6,) * 4),
        ("splc", "margin", (1,) * 4),
        ("splc", "gamma", (2,) * 4),
        ("splc", "from_epoch", (2,) * 4),
        ("em", "alpha", (0.2, 0.1, 0.1, 0.01)),
        ("em_apl", "alpha", (0.2, 0.1, 0.1, 0.01)),
        ("em_apl", "beta", (0.02, 0.9, 0.2, 0.4)),
        ("em_apl", "warmup", (5, 5, 4, 3)),
        ("em_apl", "theta", (0.9,) * 4),
        ("ll_r", "delta", (0.002, 0.004, 0.004, 0.004)),
        ("ll_ct", "delta", (0.002, 0.002, 0.002, 0.004)),
        ("ll_cp", "delta", (0.001, 0.002, 0.002, 0.002)),
        ("boostlu", "delta", (0.005,) * 4),
        ("crisp", "tau", (0.01,) * 4),
        ("crisp", "delta", (0.01,) * 4),
        ("en", "expected_positives", (1.5, 2.9, 1.9, 31.4)),
        ("en", "momentum", (0.8,) * 4),
        ("en", "power", (2,) * 4),
        ("gce", "q", (0.7,) * 4),
        ("sce", "alpha", (0.1,) * 4),
        ("sce", "beta", (1,) * 4),
        ("sce", "A", (-4,) * 4),
        ("taylor_ce", "order", (2,) * 4),
    ],
)
def test_published_values_of_the_others(name, option, values):
    assert tuple(losses.preset(name, dataset).options[option] for dataset in DATASETS) == values


@pytest.mark.parametrize(
    ("name", "setting", "values"),
    [
        ("em_apl", "batch_size", (8, 16, 16, 8)),
        ("em_apl", "lr", (1e-5, 1e-5, 1e-5, 1e-4)),
        ("em_apl", "epochs", (10,) * 4),
        ("em_apl", "head_lr", (1,) * 4),
        ("ll_ct", "batch_size", (16,) * 4),
        ("ll_ct", "lr", (5e-3, 1e-5, 1e-5, 7.5e-5)),
        ("ll_ct", "epochs", (10,) * 4),
        ("ll_ct", "head_lr", (10,) * 4),
        ("ll_ct", "optimizer", ("sgd", "adam", "adam", "adam")),
        ("ll_ct", "weight_decay", (1e-3, 0, 0, 0)),
        ("ll_ct", "patience_drop", (3,) * 4),
        ("boostlu", "batch_size", (16,) * 4),
        ("boostlu", "lr", (1e-5,) * 4),
        ("boostlu", "epochs", (10,) * 4),
        ("boostlu", "head_lr", (10,) * 4),
        ("crisp", "epochs", (10,) * 4),
    ],
)
def test_published_training(name, setting, values):
    assert tuple(losses.preset(name, dataset).training[setting] for dataset in DATASETS) == values


def test_training_settings_of_em_and_large_loss():
    cub = {"batch_size": 8, "lr": 1e-4, "epochs": 10, "head_lr": 1}
    assert losses.preset("em", "cub").training == {**cub, "patience_drop": 0}
    assert losses.preset("em_apl", "cub").training == cub
    voc = losses.preset("ll_r", "voc").training
    assert (voc["optimizer"], voc["lr"], voc["weight_decay"], voc["batch_size"]) == (
        "sgd",
        5e-3,
        1e-3,
        16,
    )
    assert (
        voc["patience_drop"] == 3
        and "patience_drop" not in losses.preset("boostlu", "voc").training
    )


@pytest.mark.parametrize("name", ["an", "an_ls", "wan", "epr", "role", "full"])
def test_the_first_methods_were_searched_over_rates_and_batches(name):
    preset = losses.preset(name, "coco")
    assert preset.search == {"lr": (1e-2, 1e-3, 1e-4, 1e-5), "batch_size": (8, 16)}
    assert preset.training["epochs"] == 10


@pytest.mark.parametrize(
    ("name", "lr", "batch_sizes"), [("an_ls", 1e-4, (8, 8, 16, 8)), ("role", 1e-3, (16, 16, 16, 8))]
)
def test_settings_of_linear_init(name, lr, batch_sizes):
    training = [losses.preset(name, dataset).training for dataset in DATASETS]
    assert {each["linear_lr"] for each in training} == {lr}
    assert tuple(each["linear_batch_size"] for each in training) == batch_sizes
    assert all("linear_init" not in each for each in training)  # the user asks for it


@pytest.mark.parametrize(("name", "epochs"), [("asl", 40), ("hill", 31), ("splc", 31)])
def test_the_recipe_for_coco_comes_with_its_sum(name, epochs):
    coco = losses.preset(name, "coco")
    recipe = {
        "batch_size": 128,
        "lr": 1e-4,
        "head_lr": 1,
        "schedule": "one-cycle",
        "weight_decay": 1e-4,
    }
    assert coco.training == {**recipe, "epochs": epochs} and coco.options["reduction"] == "sum"
    voc = losses.preset(name, "voc")
    assert "reduction" not in voc.options and voc.training == losses.preset("focal", "voc").training


def test_settings_of_mime():
    common = {"lr": 1e-4, "epochs": 10, "head_lr": 10, "optimizer": "adamax", "frozen_norm": True}
    for dataset, batch_size, warmup in zip(DATASETS, (32, 32, 16, 16), (2, 2, 2, 5), strict=True):
        preset = losses.preset("mime", dataset)
        assert preset.options == {"theta": 0.95, "warmup": warmup, "beta": 1e-4}
        assert preset.training == {**common, "batch_size": batch_size, "head": "query-normal"}
        Settings(method="mime", **preset.training)  # all of them are settings of a run


def test_learned_gr_starts_where_its_code_does():
    coco = losses.preset("gr_learnable", "coco")
    gr = {
        name: value
        for name, value in losses.preset("gr", "coco").options.items()
        if name not in ("w", "b")
    }
    own = {"own_lr": 0.1, "own_momentum": 0.9, "own_decay": 1e-3}
    assert coco.options == {**gr, "w": 0.0, "b": -2.0, **own}
    assert coco.training == losses.preset("gr", "coco").training


def test_unknown_names_are_refused():
    with pytest.raises(
        ValueError, match="presets exist for voc, coco, nuswide, cub, not 'imagenet'"
    ):
        losses.preset("gr", "imagenet")
    with pytest.raises(ValueError, match=r"no method 'grr'; 'gr'\?"):
        losses.preset("grr", "voc")
