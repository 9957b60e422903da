"""Resolve the settings of a run, and check all parts before anything is decoded or written."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spml import losses
from spml.data import Experiment
from spml.data.images.store import default_folder
from spml.data.readers.digits import SETTINGS as DIGITS_NAMES
from spml.data.readers.read import is_named
from spml.errors import UserError
from spml.losses.registry import REQUIRED, as_python
from spml.machine import launched
from spml.model import Classifier
from spml.runs.settings import AUTO, Resolved, Settings
from spml.train.device import uses_cuda

# Pictures trained on: with fewer, compiling costs more than it saves. On an H200 it saved 8.3 s in
# 36,592 pictures and took 36 s longer to start: even at about 160,000 (benchmarks/results/
# kernel-choice-h200.json, EfficientNet-Lite0).
COMPILE_FROM = 200_000
EVAL_BATCH_ON_GPU = 128  # smallest default
POSITIVE = (
    *("epochs", "batch_size", "lr", "head_lr", "size", "linear_lr", "linear_batch_size"),
    *("devices", "nodes", "eval_batch_size", "checkpoint_minutes"),
)
NOT_NEGATIVE = ("race_budget", "seed", "linear_init", "weight_decay", "patience_drop")
# docs/selection.md shows the runs behind these values.
FEW_CLASSES = 20  # most classes, and
MANY_POSITIVES = 40  # fewest observed positives of a class, at which pictures take GR_FLAT
GR_FLAT: dict[str, Any] = {"w": [0.0, 2.0], "b": [-2.0, -2.0]}  # published for VOC
GR_STEEP: dict[str, Any] = {"w": [0.0, 10.0], "b": [-2.0, -8.0]}  # published for 80 classes or more
COUNT = "expected_positives"
COUNTS = {"pictures": 1.5, "vectors": 2.9}  # for one observed positive; published for VOC and COCO
FROM_DATA = {"gr": tuple(GR_FLAT), "epr": (COUNT,)}  # options of a method that own data decide


@dataclass(frozen=True)
class DataDefaults:
    """Defaults of the settings that depend on the kind of data; size None keeps an array's own."""

    backbone: str
    weights: str
    size: int | None
    epochs: int
    batch_size: int
    lr: float
    flip: bool
    head_lr: float = 10.0


# docs/faq.md and docs/digits.md say how the learning rates were chosen
PICTURES = DataDefaults("resnet50", "pretrained", 448, epochs=10, batch_size=16, lr=5e-5, flip=True)
OWN = replace(PICTURES, backbone="tf_efficientnet_lite0")  # its weights are a dependency
DIGITS = DataDefaults("tiny", "none", None, epochs=10, batch_size=32, lr=3e-3, flip=False)
DIGITS_QUERY = replace(DIGITS, lr=1e-3, head_lr=1.0)  # a transformer fails at 3e-2: docs/methods.md
FEATURES = DataDefaults("linear", "none", None, epochs=30, batch_size=64, lr=2e-4, flip=False)
FEATURES_BATCH = 16, 128  # bounds; between them an epoch has 50 steps
# A run of fewer steps than these needs a higher rate, up to three times (docs/selection.md).
ENOUGH_STEPS = 1500


def data_defaults(experiment: Experiment, head: str = "linear") -> DataDefaults:
    """Return the defaults of the data: a benchmark's protocol, or those of its kind."""
    query = head.startswith("query")
    if experiment.name in DIGITS_NAMES:
        return DIGITS_QUERY if query else DIGITS
    x, items = experiment.observed.x, len(experiment.train_rows)
    if x is not None and x.ndim == 2:
        defaults = replace(FEATURES, batch_size=int(np.clip(items // 50, *FEATURES_BATCH)))
    elif experiment.name in losses.datasets():
        # the paper trains every method with the protocol of its own
        training = losses.preset("gr", experiment.name).training
        return replace(
            PICTURES, **{name: training[name] for name in ("epochs", "batch_size", "lr")}
        )
    else:
        steps = OWN.epochs * items / OWN.batch_size
        more = float(np.clip(ENOUGH_STEPS / max(steps, 1), 1, 3))
        defaults = replace(OWN, lr=float(f"{OWN.lr * more:.2g}"))
        if x is not None:
            # a model has one height and width, so arrays that are not square are resized
            height, width = x.shape[-2:]
            defaults = replace(defaults, size=None if height == width else max(height, width))
    return replace(defaults, head_lr=1.0) if query else defaults  # docs/faq.md


def default_method(data: str) -> str:
    """Return the method that trains if none is named: a race, unless the data are a benchmark."""
    return "gr" if is_named(data) else AUTO


def resolve(settings: Settings, experiment: Experiment) -> Resolved:
    """Decide every setting that the user left open; raise UserError for impossible ones."""
    values: dict[str, Any] = {
        item.name: as_python(getattr(settings, item.name)) for item in fields(Settings)
    }
    values["method"] = values["method"] or default_method(experiment.name)
    x = experiment.observed.x
    vectors = x is not None and x.ndim == 2
    if values["head"] is None:
        named = values["method"] != AUTO
        own = losses.head(values["method"], pictures=not vectors) if named else None
        values["head"] = own or "linear"
    rate, frozen = losses.published_training(values["method"], experiment.name)
    _fill(values, vars(data_defaults(experiment, values["head"])) | rate)
    if settings.weights is None and values["backbone"] in ("tiny", "linear"):
        values["weights"] = "none"  # there are no pretrained ones
    selection = "complete" if experiment.validates_completely else "observed"
    frozen = frozen and values["weights"] != "none"
    _fill(values, {"selection": selection, "frozen_norm": frozen})

    _check_values(values, experiment)
    if vectors:
        for name in ("size", "flip", "crop"):
            if getattr(settings, name):
                raise UserError(
                    f"{name} is for pictures, but the data are feature vectors; leave it out"
                )
    linear = {
        "linear_lr": values["lr"] * values["head_lr"],
        "linear_batch_size": values["batch_size"],
    }
    if values["linear_init"]:
        _check_linear_init(values)
        _fill(values, linear)

    unset = frozenset(name for name, value in values.items() if value is None)
    own_size = 0 if x is None or vectors else int(x.shape[-1])
    _fill(values, linear | {"size": own_size, "crop": 1.0, "patience_drop": math.inf})
    _resolve_execution(values, experiment)
    return Resolved(**values, unset=unset)


def _fill(values: dict[str, Any], defaults: Mapping[str, Any]) -> None:
    """Replace the values that are None by their defaults."""
    values.update({name: value for name, value in defaults.items() if values[name] is None})


def _check_values(values: Mapping[str, Any], experiment: Experiment) -> None:
    """Raise UserError for values out of range; None is not yet decided."""
    selection = values["selection"]
    if selection not in ("complete", "observed"):
        raise UserError(f"selection must be 'complete' or 'observed', not {selection!r}")
    if selection == "complete" and not experiment.validates_completely:
        raise UserError(
            "selection 'complete' needs complete validation labels, which these data lack; "
            "use 'observed'"
        )
    for name in POSITIVE:
        if values[name] is not None and not values[name] > 0:
            raise UserError(f"{name} must be above 0, not {values[name]}")
    if not 0 <= values["ema"] < 1:
        raise UserError(f"ema is a decay, from 0 to below 1, not {values['ema']}")
    crop = values["crop"]
    if crop is not None and not 0 < crop < 1:
        raise UserError(f"crop is a share of the area, above 0 and below 1, not {crop}")
    for name in NOT_NEGATIVE:
        if values[name] is not None and not values[name] >= 0:
            raise UserError(f"{name} must not be negative, as {values[name]} is")


def _check_linear_init(values: Mapping[str, Any]) -> None:
    if values["backbone"] == "linear":
        raise UserError(
            "--linear-init trains the head before the backbone, "
            "but backbone 'linear' has no parameters: leave it out"
        )
    if values["method"] != AUTO and "views" in losses.needs(values["method"]):
        raise UserError(
            f"--linear-init has one view of each picture, but {values['method']} needs two: "
            "leave it out"
        )


def _resolve_execution(values: dict[str, Any], experiment: Experiment) -> None:
    """Decide the settings that depend on the machine, and that change no result but precision."""
    cuda, files = uses_cuda(values["accelerator"]), experiment.observed.x is None
    values["devices"], values["nodes"] = launched() or (values["devices"], values["nodes"])
    eval_batch = 4 * values["batch_size"]  # no gradient is stored
    defaults = {
        "precision": "bf16-mixed" if cuda else "32-true",
        "eval_batch_size": max(eval_batch, EVAL_BATCH_ON_GPU) if cuda else eval_batch,
        "cache": "device" if cuda else "disk",
        "cache_dir": default_folder() if files else Path(),  # arrays are not cached
    }
    _fill(values, defaults)
    if values["compile"] == "auto":
        single = values["devices"] * values["nodes"] == 1
        values["compile"] = "none"
        if cuda and single and values["size"]:
            pictures = values["epochs"] * len(experiment.train_rows)
            values["compile"] = "compile" if pictures >= COMPILE_FROM else "graphs"


def method_options(
    method: str, data: str | Experiment, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Complete the options of a method by the values for the data, then by defaults.

    The values for a benchmark are published; an experiment of the user decides some itself.
    """
    every = losses.options(method)
    defaults = {option.name: option.default for option in every if option.default is not REQUIRED}
    name = data.name if isinstance(data, Experiment) else data
    published = (
        losses.preset(method, name).options
        if name in losses.datasets() and method in losses.names()
        else {}
    )
    if isinstance(data, Experiment):
        published = {**published, **options_from_data(method, data, options)}
    plain = {name: as_python(value) for name, value in options.items()}
    for key, value in plain.items():
        try:
            json.dumps(value)
        except TypeError as error:
            raise UserError(
                f"option {key} cannot be stored in config.json; "
                "use numbers, text, or lists of them, not arrays"
            ) from error
    return {**defaults, **published, **plain}


def options_from_data(
    method: str, experiment: Experiment, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the options that the data decide; none for a benchmark, which has published values.

    Args:
        method: name of the method.
        experiment: the data; only observed labels of the training rows are counted.
        options: set by the user.
    """
    names = FROM_DATA.get(method, ())
    if is_named(experiment.name) or not names or set(names) & set(options):
        return {}
    positives, classes = _observed_positives(experiment), len(experiment.classes)
    x = experiment.observed.x
    vectors = x is not None and x.ndim == 2
    if method == "gr":
        few = classes <= FEW_CLASSES and positives >= MANY_POSITIVES * classes
        return GR_FLAT if vectors or few else GR_STEEP
    shown = max(positives / max(len(experiment.train_rows), 1), 1.0)
    return {COUNT: round(min(COUNTS["vectors" if vectors else "pictures"] * shown, classes), 2)}


def decided_text(method: str, experiment: Experiment, options: Mapping[str, Any]) -> str:
    """Describe the options that the data decided, for the first line of a run; "" for none."""
    own = options_from_data(method, experiment, {})
    if not own or any(options[name] != value for name, value in own.items()):
        return ""
    values = ", ".join(f"{name} {_range_text(value)}" for name, value in own.items())
    counted = (
        f"{len(experiment.classes)} classes, {_observed_positives(experiment):,} observed positives"
    )
    return f" ({values} for {counted})"


def _observed_positives(experiment: Experiment) -> int:
    values = experiment.observed.sparse.take(experiment.train_rows).values
    return int((values == 1).sum())


def _range_text(value: Any) -> str:
    if isinstance(value, list):
        return " to ".join(f"{number:g}" for number in value)
    return f"{value:g}"


def check_model(
    model: Classifier, method: losses.Method, example: Tensor, name: str, backbone: str
) -> None:
    """Raise UserError for a size that the backbone, or features that the method, cannot use."""
    if "views" in method.needs and example.ndim != 4:
        raise UserError(
            f"{name} needs views: two augmentations of a picture, and the data are feature vectors"
        )
    try:
        with torch.inference_mode():
            features = model.eval().features(example)
    except (AssertionError, RuntimeError) as error:
        size = example.shape[-1]
        raise UserError(
            f"{backbone} cannot take pictures of {size} px ({_short(error)}); give another --size"
        ) from error
    if "features" in method.needs:
        with torch.inference_mode():
            _, shown = model.detailed(features)
        try:
            method.prepare(shown.float().clone())
        except ValueError as error:
            raise UserError(str(error)) from error


def check_single_item(model: Classifier, example: Tensor, backbone: str) -> None:
    """Raise UserError if batch norm cannot train on a batch of one item; the model is unchanged."""
    buffers = [buffer.clone() for buffer in model.buffers()]
    try:
        with torch.inference_mode():
            model.train().features(example)
    except ValueError as error:
        raise UserError(
            f"batch norm of {backbone} cannot learn from one picture of {example.shape[-1]} px, "
            "and the last batch, or a process's share of it, has one; "
            "give another --batch-size, a larger --size, or --frozen-norm"
        ) from error
    finally:
        for buffer, value in zip(model.eval().buffers(), buffers, strict=True):
            buffer.copy_(value)


def check_method(method: losses.Method, name: str, classes: int, epochs: int) -> None:
    """Raise UserError for options that do not fit the data, and a loss that is not one number."""
    ours = name in losses.names()
    not_reduced = f"{name} returns no single number to minimise; reduce the loss over its batch"
    if ours and getattr(method, "reduction", None) == "none":
        raise UserError(not_reduced)
    if (method.needs and not ours) or method.needs & {"features", "views"}:
        return  # a call would change its state, or its inputs are not available yet
    zeros, rows = torch.zeros(2, classes), torch.zeros(2, dtype=torch.int64)
    method.train(not ours)  # in evaluation mode, our methods do not change their state
    try:
        value = method(zeros, zeros.to(torch.int8), epoch=1, epochs=epochs, index=rows)
    except (RuntimeError, TypeError, IndexError) as error:
        raise UserError(
            f"{name} cannot be used with these options on {classes} classes ({_short(error)})"
        ) from error
    finally:
        method.train()
    if not isinstance(value, Tensor) or value.ndim:
        raise UserError(not_reduced)


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:150]
