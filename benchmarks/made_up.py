"""Generated pictures with random labels, split like VOC2012, for timing without data."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from spml.data import Experiment, LabelTable

VOC = {"train": 4574, "val": 1143, "test": 5823}  # rows; generated data have the same shares
CLASSES = 20


def generate(path: Path, seed: int) -> None:
    """Write a JPEG of 500 x 375 with shapes and noise, about as large as a photograph."""
    rng = np.random.default_rng(seed)
    image = Image.new("RGB", (500, 375), tuple(rng.integers(0, 256, 3).tolist()))
    draw = ImageDraw.Draw(image)
    for _ in range(12):
        x, y, width, height = (
            int(value) for value in rng.integers((0, 0, 20, 20), (450, 330, 200, 150))
        )
        shape = draw.ellipse if rng.random() < 0.5 else draw.rectangle
        shape((x, y, x + width, y + height), fill=tuple(rng.integers(0, 256, 3).tolist()))
    noisy = np.asarray(image, np.int16) + rng.normal(0, 12, (375, 500, 1)).astype(np.int16)
    Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(path, quality=90)


def fake(folder: Path, count: int) -> Experiment:
    """Generate pictures with random labels, split like VOC."""
    folder.mkdir(parents=True)
    names = [f"{row}.jpg" for row in range(count)]
    with ThreadPoolExecutor() as pool:
        list(pool.map(generate, (folder / name for name in names), range(count)))
    rng = np.random.default_rng(0)
    classes = [f"class {column}" for column in range(CLASSES)]
    complete = np.where(rng.random((count, CLASSES)) < 0.03, 1, -1).astype(np.int8)
    observed = np.zeros((count, CLASSES), np.int8)
    rows = np.arange(count)
    complete[rows, rows % CLASSES] = observed[rows, rows % CLASSES] = 1
    ends = np.cumsum([round(count * part / sum(VOC.values())) for part in VOC.values()])

    def table(labels: np.ndarray, part: slice) -> LabelTable:
        return LabelTable(names[part], classes, labels[part], root=folder)

    listed = slice(0, int(ends[1]))
    return Experiment(
        name="fake",
        classes=classes,
        observed=table(observed, listed),
        complete=table(complete, listed),
        train_rows=np.arange(ends[0]),
        val_rows=np.arange(ends[0], ends[1]),
        test=table(complete, slice(int(ends[1]), count)),
        label_kind="complete",
    )
