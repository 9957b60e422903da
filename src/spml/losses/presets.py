"""Published hyper-parameters of each method on each benchmark, with where each comes from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

DATASETS = ("voc", "coco", "nuswide", "cub")
RATES = (1e-2, 1e-3, 1e-4, 1e-5)
SEARCHED = "search."
GR_PAPER = "Chen et al., IJCAI 2024, hyper-parameter table"
GR_CODE = "yan4xi1/GRLoss, defaults"
AEVLP = "Fsoft-AIC/AEVLP, which builds on GR's code; the paper gives no initial values beyond VOC"
EM_CODE = "Correr-Zhou/SPML-AckTheUnknown, settings per data set"
BOOSTLU_CODE = "youngwk/BridgeGapExplanationPAMC, defaults"
LL_ISSUE = "snucml/LargeLossMatters, issue 4"
LL_CODE = "snucml/LargeLossMatters"
ROLE_PAPER = "Cole et al., CVPR 2021"
ROLE_CODE = "elijahcole/single-positive-multi-label"
CRISP_PAPER = "Liu et al., CRISP; its training settings are a search's, so the protocol's stand"
FOCAL_PAPER = "Lin et al., ICCV 2017; what the GR Loss paper's row has is not stated"
ASL_CODE = "Alibaba-MIIL/ASL, class defaults"
ASL_COCO = (
    "Alibaba-MIIL/ASL, its training script for COCO with complete labels; it stops at 40 of a cycle of 80 epochs, and "
    "leaves biases and batch norm out of the weight decay"
)
HILL_CODE = "xinyu1205/robust-loss-mlml"
HILL_COCO = "xinyu1205/robust-loss-mlml, its training script for COCO; it stops after 31 epochs of a longer cycle"
GCE_PAPER = "Zhang & Sabuncu, NeurIPS 2018"
SCE_PAPER = "Wang et al., ICCV 2019, A as it is quoted; common code has log 1e-4"
TAYLOR_PAPER = "Feng et al., IJCAI 2020"
NOT_RUN = "the GR Loss setting for this data: the method was not run on these data by its authors"
LAGC_CODE = "xiemk/SPML-LAC"
LAGC_STAGES = f"{LAGC_CODE}: up to 40 epochs in each of two stages, which are the two halves here"
EN_PAPER = "Verelst et al., WACV 2023, by the account of Chen et al., IJCAI 2024"
EN_DEFAULT = f"default, not published where it could be read: {EN_PAPER}"
MIME_CODE = "palm-biaoliu/mime, the newest of its versions, settings per data set"
SMILE_IMAGE = (
    "SMILE on pictures as in the development repository of MIME's author; "
    "the released code has feature data only"
)
GR_TRAINING = "the GR Loss setting for this data, where the method's own source gives none under this protocol"


@dataclass(frozen=True)
class Preset:
    """Published values.

    Attributes:
        options: to pass to create().
        training: of `spml.train.Settings`; linear_lr and linear_batch_size are of no account without linear_init.
        sources: where each value comes from, by its name; "search." stands before those of `search`.
        search: the values that the source tried, where it chose among several by validation.
    """

    options: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    search: dict[str, Any] = field(default_factory=dict)

    def value(self, key: str) -> Any:
        """Of a key of `sources`."""
        if key.startswith(SEARCHED):
            return self.search[key.removeprefix(SEARCHED)]
        return (self.options if key in self.options else self.training)[key]


Values = dict[str, tuple[Any, str]]


def preset(name: str, dataset: str) -> Preset:
    """Published options and training settings of a method on voc, coco, nuswide or cub.

    A method's options that no source sets for that data keep the defaults of its signature. The eps that published
    code adds inside logs is not among them: it stands in for the exact log, which is the default here.
    """
    from spml.losses.registry import options

    if dataset not in DATASETS:
        raise ValueError(f"presets exist for {', '.join(DATASETS)}, not {dataset!r}")
    known = {option.name for option in options(name)}  # raises for an unknown method
    values = {**_training("gr", dataset, GR_TRAINING), **PRESETS.get(name, {}).get(dataset, {})}
    made = Preset(sources={key: source for key, (_, source) in values.items()})
    for key, (value, _) in values.items():
        if key.startswith(SEARCHED):
            made.search[key.removeprefix(SEARCHED)] = value
        else:
            (made.options if key in known else made.training)[key] = value
    return made


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
    "mime": {
        "batch_size": (32, 32, 16, 16),
        "lr": (1e-4, 1e-4, 1e-4, 1e-4),
        "epochs": (10, 10, 10, 10),
        "head_lr": (10, 10, 10, 10),
        "optimizer": ("adamax",) * 4,
        "frozen_norm": (True,) * 4,
        "head": ("query-normal",) * 4,
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
        "patience_drop": (2, GR_CODE),
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


def _all(source: str, **values: Any) -> dict[str, Values]:
    """The same values for every benchmark."""
    return {
        dataset: {key: (value, source) for key, value in values.items()} for dataset in DATASETS
    }


def _lagc() -> Values:
    training = {
        "optimizer": "adamw",
        "schedule": "one-cycle",
        "lr": 1e-4,
        "head_lr": 1,
        "weight_decay": 1e-2,
        "batch_size": 32,
        "frozen_norm": True,
        "head": "query",
    }
    options = {"tau": 0.6, "tau_second": 0.9, "temperature": 0.5, "queue": 512, "size": 128}
    return {
        **{name: (value, LAGC_CODE) for name, value in {**training, **options}.items()},
        "epochs": (80, LAGC_STAGES),
    }


def _per_dataset(option: str, values: tuple[Any, ...], source: str) -> dict[str, Values]:
    return {
        dataset: {option: (value, source)} for dataset, value in zip(DATASETS, values, strict=True)
    }


def _with_training(base: dict[str, Values], name: str, source: str) -> dict[str, Values]:
    return {
        dataset: {**_training(name, dataset, source), **values} for dataset, values in base.items()
    }


def _merged(*tables: dict[str, Values]) -> dict[str, Values]:
    """Later tables win; a table may leave benchmarks out."""
    names = {dataset: [table.get(dataset, {}) for table in tables] for dataset in DATASETS}
    return {
        dataset: {key: value for part in parts for key, value in part.items()}
        for dataset, parts in names.items()
    }


def _searched(source: str, **values: tuple[Any, ...]) -> dict[str, Values]:
    return _all(source, **{SEARCHED + key: value for key, value in values.items()})


def _recipe(source: str, **values: Any) -> dict[str, Values]:
    """One-cycle training on COCO, whose weight decay belongs to losses that are summed."""
    common = {
        "batch_size": 128,
        "lr": 1e-4,
        "head_lr": 1,
        "schedule": "one-cycle",
        "weight_decay": 1e-4,
    }
    return {
        "coco": {
            key: (value, source) for key, value in {**common, "reduction": "sum", **values}.items()
        }
    }


COLE = _merged(_all(ROLE_CODE, epochs=10), _searched(ROLE_CODE, lr=RATES, batch_size=(8, 16)))


SMILE = {
    "alpha": 0.1,
    "beta": 0.01,
    "theta": 0.01,
    "kl_embedding": 1e-5,
    "kl_beta": 1e-5,
    "warmup": 2,
}
EXPECTED = _per_dataset("expected_positives", (1.5, 2.9, 1.9, 31.4), ROLE_PAPER)
MIME = _merged(
    _per_dataset("theta", (0.95,) * 4, MIME_CODE),
    _per_dataset("warmup", (2, 2, 2, 5), MIME_CODE),
    _per_dataset("beta", (1e-4,) * 4, MIME_CODE),
)
EM = _with_training(_per_dataset("alpha", (0.2, 0.1, 0.1, 0.01), EM_CODE), "em", EM_CODE)
LL = _with_training(_all(LL_CODE, patience_drop=3), "ll", LL_ISSUE)
PRESETS: dict[str, dict[str, Values]] = {
    "an": COLE,
    "an_ls": _merged(
        COLE,
        _all(ROLE_CODE, smoothing=0.1, linear_lr=1e-4),
        _per_dataset("linear_batch_size", (8, 8, 16, 8), ROLE_CODE),
    ),
    "wan": COLE,
    "epr": _merged(COLE, EXPECTED),
    "role": _merged(
        COLE,
        EXPECTED,
        _all(ROLE_CODE, linear_lr=1e-3),
        _per_dataset("linear_batch_size", (16, 16, 16, 8), ROLE_CODE),
    ),
    "full": COLE,
    "focal": _all(FOCAL_PAPER, gamma=2.0),
    "asl": _merged(
        _all(ASL_CODE, gamma_neg=4.0, gamma_pos=1.0, clip=0.05),
        _recipe(ASL_COCO, gamma_pos=0.0, epochs=40),
    ),
    "hill": _merged(_all(HILL_CODE, lam=1.5, margin=1.0, gamma=2.0), _recipe(HILL_COCO, epochs=31)),
    "splc": _merged(
        _all(HILL_CODE, tau=0.6, margin=1.0, gamma=2.0, from_epoch=2), _recipe(HILL_COCO, epochs=31)
    ),
    "gce": _with_training(_all(GCE_PAPER, q=0.7), "gr", NOT_RUN),
    "sce": _with_training(_all(SCE_PAPER, alpha=0.1, beta=1.0, A=-4.0), "gr", NOT_RUN),
    "taylor_ce": _with_training(_all(TAYLOR_PAPER, order=2), "gr", NOT_RUN),
    "gr": {dataset: _gr(dataset) for dataset in DATASETS},
    "gr_learnable": {dataset: _gr_learnable(dataset) for dataset in DATASETS},
    "crisp": _merged(
        _all(CRISP_PAPER, delta=0.01, tau=0.01, epochs=10),
        _searched(CRISP_PAPER, lr=RATES, weight_decay=RATES, batch_size=(8, 16)),
    ),
    "lagc": dict.fromkeys(DATASETS, _lagc()),
    "em": _merged(EM, _all(EM_CODE, patience_drop=0)),
    "smile": _with_training(
        _merged(
            _per_dataset("lam", (0.1, 0.01, 0.1, 0.001), SMILE_IMAGE),
            _per_dataset(
                "head", tuple(f"query-normal:{size}" for size in (128, 64, 128, 128)), SMILE_IMAGE
            ),
            *(_per_dataset(option, (value,) * 4, SMILE_IMAGE) for option, value in SMILE.items()),
        ),
        "smile",
        SMILE_IMAGE,
    ),
    "em_apl": _merged(  # without em's patience_drop, which may end training before the first pseudo-labels
        EM,
        _per_dataset("beta", (0.02, 0.9, 0.2, 0.4), EM_CODE),
        _per_dataset("warmup", (5, 5, 4, 3), EM_CODE),
        _all(EM_CODE, theta=0.9),
    ),
    "ll_r": _merged(LL, _per_dataset("delta", (0.002, 0.004, 0.004, 0.004), LL_ISSUE)),
    "boostlu": _with_training(_all(BOOSTLU_CODE, delta=0.005), "boostlu", BOOSTLU_CODE),
    "ll_ct": _merged(LL, _per_dataset("delta", (0.002, 0.002, 0.002, 0.004), LL_ISSUE)),
    "ll_cp": _merged(LL, _per_dataset("delta", (0.001, 0.002, 0.002, 0.002), LL_ISSUE)),
    "en": _merged(
        EXPECTED,
        *(
            _per_dataset(option, (value,) * 4, EN_DEFAULT)
            for option, value in {
                "count": "observed",
                "momentum": 0.8,
                "start": "observed",
                "power": 2.0,
            }.items()
        ),
    ),
    "mime": _with_training(MIME, "mime", MIME_CODE),
}
