"""The parts that a run is made of: classifier, optimiser, and what a method is told of its data."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from spml import losses
from spml.data import Experiment, LabelTable
from spml.errors import UserError
from spml.model import Classifier
from spml.runs.settings import Settings
from spml.train.optimizer import make_optimizer


def make_model(experiment: Experiment, settings: Settings) -> Classifier:
    """The classifier that the settings name; feature vectors are standardised by those of the training split."""
    x = experiment.observed.x
    features = int(x.shape[1]) if x is not None and x.ndim == 2 else None
    built = str(settings.backbone), len(experiment.classes), str(settings.weights)
    model = Classifier.build(*built, features, str(settings.head))
    if x is not None and features is not None:
        model.standardise(torch.from_numpy(np.ascontiguousarray(x[experiment.train_rows])))
    model.frozen_norm = settings.frozen_norm
    return model


def example(experiment: Experiment, settings: Settings) -> Tensor:
    """An item of zeros, (1, ...), as training is given them."""
    x = experiment.observed.x
    if x is not None and x.ndim == 2:
        return torch.zeros(1, x.shape[1])
    size = settings.size or (0 if x is None else int(x.shape[-1]))
    return torch.zeros(1, 3, size, size, dtype=torch.uint8)


def train_labels(experiment: Experiment, method: losses.Method, name: str) -> LabelTable:
    """Labels of the training split that the method learns from."""
    labels = experiment.complete if method.trains_on == "complete" else experiment.observed
    if labels is None:
        raise UserError(
            f"{name} trains on complete labels, which these data lack; give another --method"
        )
    return labels.take(experiment.train_rows)


def optimizer_for(
    model: Classifier, method: losses.Method, settings: Settings
) -> torch.optim.Optimizer:
    """Of backbone, head and the method's own parameters."""
    lr = settings.lr or 0.0
    head_lr = lr * (settings.head_lr or 1.0)
    groups: list[dict[str, Any]] = [
        {"params": [p for p in model.backbone.parameters() if p.requires_grad], "lr": lr},
        {"params": list(model.head.parameters()), "lr": head_lr},
        *method.parameter_groups(head_lr),
    ]
    return make_optimizer(groups, lr, settings)


def make_method(experiment: Experiment, name: str, options: dict[str, Any]) -> losses.Method:
    """The method with all its options, told of the training split as far as it needs."""
    return losses.create(name, **options, **given(experiment, name))


def given(experiment: Experiment, method: str) -> dict[str, Any]:
    """What a method that keeps something for every item is told of the training split."""
    if "items" not in losses.needs(method):
        return {}
    table = experiment.observed.take(experiment.train_rows)
    return {"items": len(table), "classes": len(table.classes), "observed": table}


def synchronised(model: Classifier) -> Classifier:
    """The same with batch statistics over all processes."""
    from timm.layers.norm_act import convert_sync_batchnorm

    converted: Classifier = convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
    return converted
