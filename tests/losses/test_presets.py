"""Published settings: complete, sourced, accepted by create, and GR's equal to the paper's table."""

import pytest

from spml import losses
from spml.losses.presets import DATASETS
from spml.train import Settings

from .common import NAMES


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dataset", DATASETS)
def test_every_method_has_settings_for_every_benchmark(name: str, dataset: str) -> None:
    preset = losses.preset(name, dataset)
    assert set(preset.options) <= {option.name for option in losses.options(name)}
    assert {"lr", "batch_size", "epochs", "head_lr"} <= set(preset.training)
    assert set(preset.sources) == set(preset.options) | set(preset.training)
    assert all(preset.sources.values())
    if not losses.needs(name):
        losses.create(name, **preset.options)


@pytest.mark.parametrize(
    ("dataset", "batch_size", "lr", "epochs", "q3", "w", "b"),
    [
        ("voc", 8, 1e-5, 8, 1, 2, -2),
        ("coco", 16, 1e-5, 8, 1, 10, -8),
        ("nuswide", 16, 1e-5, 10, 1, 10, -8),
        ("cub", 8, 5e-5, 10, 1.5, 10, -8),
    ],
)
def test_gr_has_the_papers_table(
    dataset: str, batch_size: int, lr: float, epochs: int, q3: float, w: float, b: float
) -> None:
    preset = losses.preset("gr", dataset)
    options = {"q2": 0.01, "q3": q3, "w": (0, w), "b": (-2, b), "mu": (0.5, 0.8), "sigma": (2, 0.5)}
    assert preset.options == options
    assert preset.training == {"batch_size": batch_size, "lr": lr, "epochs": epochs, "head_lr": 10}


@pytest.mark.parametrize(
    ("name", "option", "values"),
    [
        ("epr", "expected_positives", (1.5, 2.9, 1.9, 31.4)),
        ("em", "alpha", (0.2, 0.1, 0.1, 0.01)),
        ("ll_r", "delta", (0.002, 0.004, 0.004, 0.004)),
        ("ll_ct", "delta", (0.002, 0.002, 0.002, 0.004)),
    ],
)
def test_published_values_of_the_others(name: str, option: str, values: tuple[float, ...]) -> None:
    assert tuple(losses.preset(name, dataset).options[option] for dataset in DATASETS) == values


def test_training_settings_of_em_and_large_loss() -> None:
    assert losses.preset("em", "cub").training == {"batch_size": 8, "lr": 1e-4, "epochs": 10, "head_lr": 1}
    voc = losses.preset("ll_r", "voc").training
    assert (voc["optimizer"], voc["lr"], voc["weight_decay"], voc["batch_size"]) == ("sgd", 5e-3, 1e-3, 16)


def test_settings_of_mime() -> None:
    common = {"lr": 1e-4, "epochs": 10, "head_lr": 10, "optimizer": "adamax", "frozen_norm": True}
    for dataset, batch_size, warmup in zip(DATASETS, (32, 32, 16, 16), (2, 2, 2, 5), strict=True):
        preset = losses.preset("mime", dataset)
        assert preset.options == {"theta": 0.95, "warmup": warmup, "beta": 1e-4}
        assert preset.training == {**common, "batch_size": batch_size, "head": "query-normal"}
        Settings(method="mime", **preset.training)  # all of them are settings of a run


def test_learned_gr_starts_where_its_code_does() -> None:
    coco = losses.preset("gr_learnable", "coco")
    gr = {name: value for name, value in losses.preset("gr", "coco").options.items() if name not in ("w", "b")}
    own = {"own_lr": 0.1, "own_momentum": 0.9, "own_decay": 1e-3}
    assert coco.options == {**gr, "w": 0.0, "b": -2.0, **own}
    assert coco.training == losses.preset("gr", "coco").training


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match="presets exist for voc, coco, nuswide, cub, not 'imagenet'"):
        losses.preset("gr", "imagenet")
    with pytest.raises(ValueError, match=r"no method 'grr'; 'gr'\?"):
        losses.preset("grr", "voc")
