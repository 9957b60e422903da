"""The reference training loop that throughput.py compares with, as in published code.

The workers of a DataLoader open, resize and normalise pictures with Pillow in every epoch. The
model is eager, fp32 and NCHW. The loss is assigned through boolean masks on probabilities.
Evaluation uses the training batch size and scikit-learn's average precision, class by class.
"""

from __future__ import annotations

import copy
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from losses import reference_gr
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import Compose, Normalize, RandomHorizontalFlip, Resize, ToTensor

from spml.data import Experiment, LabelTable

# there may be more workers than cores
warnings.filterwarnings("ignore", "This DataLoader will create")
WORKERS = 4
NORMALISE = Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])


class Files(Dataset):
    """Pictures and labels of a table."""

    def __init__(self, table: LabelTable, labels: np.ndarray, size: int, *, flip: bool) -> None:
        self.root, self.items, self.labels = table.root or Path(), table.items, labels
        augment = [RandomHorizontalFlip()] if flip else []
        self.transform = Compose([Resize((size, size)), *augment, ToTensor(), NORMALISE])

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, row: int) -> tuple[Tensor, np.ndarray]:
        with Image.open(self.root / self.items[row]) as image:
            return self.transform(image.convert("RGB")), self.labels[row]


class Reference:
    """A model with its training and evaluation."""

    def __init__(
        self, classes: int, backbone: str, size: int, batch: int, lr: float, device: torch.device
    ) -> None:
        import timm

        self.size, self.batch, self.device = size, batch, device
        self.model = timm.create_model(backbone, pretrained=False, num_classes=classes).to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=lr)

    def step(self, x: Tensor, observed: Tensor) -> Tensor:
        """Take one step on a batch on the device."""
        self.optimizer.zero_grad()
        loss = reference_gr(torch.sigmoid(self.model(x)), observed)
        loss.backward()
        self.optimizer.step()
        return loss

    def train(self, table: LabelTable) -> None:
        """Train for one epoch."""
        self.model.train()
        for x, observed in self._loader(
            Files(table, table.labels, self.size, flip=True), shuffle=True
        ):
            self.step(
                x.to(self.device, non_blocking=True), observed.to(self.device, non_blocking=True)
            )

    def evaluate(self, table: LabelTable, labels: np.ndarray) -> float:
        """Return the mAP in percent."""
        from sklearn.metrics import average_precision_score

        self.model.eval()
        parts = []
        with torch.no_grad():
            for x, _ in self._loader(Files(table, labels, self.size, flip=False), shuffle=False):
                parts.append(
                    torch.sigmoid(self.model(x.to(self.device, non_blocking=True))).cpu().numpy()
                )
        scores = np.concatenate(parts)
        known = [column for column in range(labels.shape[1]) if (labels[:, column] == 1).any()]
        return 100 * float(
            np.mean([average_precision_score(labels[:, c] == 1, scores[:, c]) for c in known])
        )

    def _loader(self, files: Files, *, shuffle: bool) -> DataLoader:
        pinned = self.device.type == "cuda"
        return DataLoader(
            files, self.batch, shuffle=shuffle, num_workers=WORKERS, pin_memory=pinned
        )


def run(
    experiment: Experiment,
    backbone: str,
    size: int,
    batch: int,
    lr: float,
    epochs: int,
    device: torch.device,
) -> dict[str, object]:
    """Run an experiment; return seconds of the epochs with validation, the test and the whole."""
    began = time.perf_counter()
    train = experiment.observed.take(experiment.train_rows)
    val, truth = (
        experiment.observed.take(experiment.val_rows),
        experiment.validation_labels("complete"),
    )
    reference = Reference(len(experiment.classes), backbone, size, batch, lr, device)
    took, best, best_state, cold = [], -1.0, reference.model.state_dict(), 0.0
    for _ in range(epochs):
        start = time.perf_counter()
        reference.train(train)
        figure = reference.evaluate(val, truth)
        if figure > best:
            best, best_state = figure, copy.deepcopy(reference.model.state_dict())
        took.append(time.perf_counter() - start)
        cold = cold or time.perf_counter() - began
    start = time.perf_counter()
    reference.model.load_state_dict(best_state)
    tested = (
        None
        if experiment.test is None
        else reference.evaluate(experiment.test, experiment.test.labels)
    )
    end = time.perf_counter()
    return {
        "cold": cold,
        "epochs": took,
        "evaluation": end - start,
        "whole": end - began,
        "test_map": tested,
    }
