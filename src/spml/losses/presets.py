"""Published hyper-parameters of each method on each benchmark, with where each comes from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

DATASETS = ("voc", "coco", "nuswide", "cub")
GR_PAPER = "Chen et al., IJCAI 2024, hyper-parameter table"
GR_CODE = "yan4xi1/GRLoss, defaults"
AEVLP = "Fsoft-AIC/AEVLP, which builds on GR's code; the paper gives no initial values beyond VOC"
EM_CODE = "Correr-Zhou/SPML-AckTheUnknown, settings per data set"
BOOSTLU_CODE = "youngwk/BridgeGapExplanationPAMC, defaults"
LL_ISSUE = "snucml/LargeLossMatters, issue 4"
ROLE_PAPER = "Cole et al., CVPR 2021"
CRISP_PAPER = "Liu et al., CRISP; its training settings are a search's, so the protocol's stand"
SMILE_IMAGE = (
    "SMILE on pictures as in the development repository of MIME's author; the released code has feature data only"
)
GR_TRAINING = "the GR Loss setting for this data, where the method's own source gives none under this protocol"


@dataclass(frozen=True)
class Preset:
    """What to pass to create(), how to train, and the source of every value."""

    options: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)


Values = dict[str, tuple[Any, str]]


def preset(name: str, dataset: str) -> Preset:
    """Published options and training settings of a method on voc, coco, nuswide or cub.

    A method's options that no source sets for that data keep the defaults of its signature.
    """
    from spml.losses.registry import options

    if dataset not in DATASETS:
        raise ValueError(f"presets exist for {', '.join(DATASETS)}, not {dataset!r}")
    known = {option.name for option in options(name)}  # raises for an unknown method
    values = {**_training("gr", dataset, GR_TRAINING), **PRESETS.get(name, {}).get(dataset, {})}
    split = {True: {}, False: {}}  # type: dict[bool, dict[str, Any]]
    for key, (value, _) in values.items():
        split[key in known][key] = value
    return Preset(split[True], split[False], {key: source for key, (_, source) in values.items()})


def _training(name: str, dataset: str, source: str) -> Values:
    table = TRAINING[name]
    return {key: (value[DATASETS.index(dataset)], source) for key, value in table.items()}


TRAINING: dict[str, dict[str, tuple[Any, ...]]] = {
    "gr": {
        "batch_size": (8, 16, 16, 8),
        "lr": (1e-5, 1e-5, 1e-5, 5e-5),
        "epochs": (8, 8, 10, 10),
        "head_lr": (10, 10, 10, 10),
    },
    "em": {
        "batch_size": (8, 16, 16, 8),
        "lr": (1e-5, 1e-5, 1e-5, 1e-4),
        "epochs": (10, 10, 10, 10),
        "head_lr": (1, 1, 1, 1),
    },
    "ll": {
        "batch_size": (16, 16, 16, 16),
        "lr": (5e-3, 1e-5, 1e-5, 7.5e-5),
        "epochs": (10, 10, 10, 10),
        "head_lr": (10, 10, 10, 10),
        "optimizer": ("sgd", "adam", "adam", "adam"),
        "weight_decay": (1e-3, 0, 0, 0),
    },
    "boostlu": {
        "batch_size": (16, 16, 16, 16),
        "lr": (1e-5, 1e-5, 1e-5, 1e-5),
        "epochs": (10, 10, 10, 10),
        "head_lr": (10, 10, 10, 10),
    },
    "smile": {
        "batch_size": (8, 16, 16, 8),
        "lr": (1e-5, 1e-5, 1e-5, 1e-5),
        "epochs": (10, 10, 10, 20),
        "optimizer": ("adam", "adam", "adam", "adam"),
    },
}


def _gr(dataset: str) -> Values:
    voc, cub = dataset == "voc", dataset == "cub"
    start = GR_CODE if voc else AEVLP
    beta = f"{GR_PAPER}; start: {start}"
    return {
        **_training("gr", dataset, GR_PAPER),
        "head_lr": (10, GR_CODE),
        "q2": (0.01, GR_PAPER),
        "q3": (1.5 if cub else 1.0, GR_PAPER),
        "w": ((0.0, 2.0 if voc else 10.0), beta),
        "b": ((-2.0, -2.0 if voc else -8.0), beta),
        "mu": ((0.5, 0.8), beta),
        "sigma": ((2.0, 0.5), beta),
    }


def _gr_learnable(dataset: str) -> Values:
    learned = {"w": 0.0, "b": -2.0, "own_lr": 0.1, "own_momentum": 0.9, "own_decay": 1e-3}
    return {**_gr(dataset), **{option: (value, GR_CODE) for option, value in learned.items()}}


def _per_dataset(option: str, values: tuple[Any, ...], source: str) -> dict[str, Values]:
    return {dataset: {option: (value, source)} for dataset, value in zip(DATASETS, values, strict=True)}


def _with_training(base: dict[str, Values], name: str, source: str) -> dict[str, Values]:
    return {dataset: {**_training(name, dataset, source), **values} for dataset, values in base.items()}


def _merged(*tables: dict[str, Values]) -> dict[str, Values]:
    return {dataset: {key: value for table in tables for key, value in table[dataset].items()} for dataset in DATASETS}


SMILE = {"alpha": 0.1, "beta": 0.01, "theta": 0.01, "kl_embedding": 1e-5, "kl_beta": 1e-5, "warmup": 2}
EXPECTED = _per_dataset("expected_positives", (1.5, 2.9, 1.9, 31.4), ROLE_PAPER)
EM = _with_training(_per_dataset("alpha", (0.2, 0.1, 0.1, 0.01), EM_CODE), "em", EM_CODE)
PRESETS: dict[str, dict[str, Values]] = {
    "gr": {dataset: _gr(dataset) for dataset in DATASETS},
    "gr_learnable": {dataset: _gr_learnable(dataset) for dataset in DATASETS},
    "crisp": _merged(
        _per_dataset("delta", (0.01,) * 4, CRISP_PAPER),
        _per_dataset("tau", (0.01,) * 4, CRISP_PAPER),
        _per_dataset("epochs", (10,) * 4, CRISP_PAPER),
    ),
    "smile": _with_training(
        _merged(
            _per_dataset("lam", (0.1, 0.01, 0.1, 0.001), SMILE_IMAGE),
            _per_dataset("head", tuple(f"query-normal:{size}" for size in (128, 64, 128, 128)), SMILE_IMAGE),
            *(_per_dataset(option, (value,) * 4, SMILE_IMAGE) for option, value in SMILE.items()),
        ),
        "smile",
        SMILE_IMAGE,
    ),
    "epr": EXPECTED,
    "role": EXPECTED,
    "em": EM,
    "em_apl": _merged(
        EM,
        _per_dataset("beta", (0.02, 0.9, 0.2, 0.4), EM_CODE),
        _per_dataset("warmup", (5, 5, 4, 3), EM_CODE),
        _per_dataset("theta", (0.9,) * 4, EM_CODE),
    ),
    "ll_r": _with_training(_per_dataset("delta", (0.002, 0.004, 0.004, 0.004), LL_ISSUE), "ll", LL_ISSUE),
    "boostlu": _with_training(_per_dataset("delta", (0.005,) * 4, BOOSTLU_CODE), "boostlu", BOOSTLU_CODE),
    "ll_ct": _with_training(_per_dataset("delta", (0.002, 0.002, 0.002, 0.004), LL_ISSUE), "ll", LL_ISSUE),
    "ll_cp": _with_training(_per_dataset("delta", (0.001, 0.002, 0.002, 0.002), LL_ISSUE), "ll", LL_ISSUE),
}
