"""`digits`: scenes of handwritten digits, a small multi-label data set that needs no download.

Each scene shows one to five different digits on a noisy canvas; its labels are the digits it shows.
The digits are the 1,797 real ones that ship with scikit-learn. No digit image is used in two
splits. The parameters come from PASCAL VOC 2012 (its train list) and were fixed before any method
was compared on the result:

- labels per image: VOC's shares of 1 to 5 labels (mean 1.46);
- class frequencies: those of every second VOC class by rank (the first is 12 times the last);
- co-occurrence: one class that goes with everything (VOC's "person") and three groups of three
  that seldom mix (VOC's indoor things, vehicles, animals): lift about 1.5 within a group and 0.15
  across.

`digits-many` is the other regime: two to five labels, strongly correlated.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from spml.data.table import SPLITS, LabelTable

Pixels = npt.NDArray[np.uint8]
CLASSES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


@dataclass(frozen=True)
class Scenes:
    """Parameters of the scenes."""

    counts: tuple[float, ...] = (0.6524, 0.2580, 0.0724, 0.0142, 0.0030)  # shares of 1 to 5 labels
    frequencies: tuple[float, ...] = (
        *(0.3488, 0.1032, 0.0943, 0.0638, 0.0507),
        *(0.0471, 0.0469, 0.0455, 0.0415, 0.0299),
    )
    affinity: float = 3.0  # factor on the chance of a class of the same group; 1 is neutral
    aversion: float = 0.25  # the same for a class of another group
    noise: float = 24.0  # standard deviation of the background, in grey levels
    size: int = 40  # height and width of the canvas
    sizes: tuple[int, int, int] = (3000, 750, 2000)  # scenes in train, val and test
    seed: int = 1200


SETTINGS = {
    "digits": Scenes(),
    "digits-many": Scenes(counts=(0.0, 0.25, 0.35, 0.25, 0.15), affinity=8.0, aversion=0.15),
}
_SHARES = (0.6, 0.15)  # of the digit images in train and val; the rest are in test


def read_digits(scenes: Scenes = SETTINGS["digits"]) -> dict[str, LabelTable]:
    """Return complete tables of the three splits; `x` holds uint8 pictures of equal channels."""
    return dict(_tables(scenes))


@lru_cache(maxsize=2)
def _tables(scenes: Scenes) -> dict[str, LabelTable]:
    from sklearn.datasets import load_digits

    data = load_digits()
    glyphs, digit = data.images.astype(np.float32) / 16, data.target
    tables = {}
    for number, (split, count) in enumerate(zip(SPLITS, scenes.sizes, strict=True)):
        rng = np.random.default_rng((scenes.seed, number))
        pool = _pool(digit, number, scenes.seed)
        labels = _label_sets(scenes, count, rng)
        pictures = np.stack(
            [_compose(scenes, np.flatnonzero(row), glyphs, pool, rng) for row in labels]
        )
        items = [f"{split}/{i:05d}" for i in range(count)]
        x = np.repeat(pictures[:, None], 3, axis=1)
        tables[split] = LabelTable(items, CLASSES, np.where(labels, 1, -1).astype(np.int8), x=x)
    return tables


def _pool(digit: npt.NDArray[np.int64], split: int, seed: int) -> list[npt.NDArray[np.int64]]:
    """Return the digit images of each class that this split may use."""
    rng = np.random.default_rng((seed, len(SPLITS)))
    pools = []
    for value in range(len(CLASSES)):
        images = rng.permutation(np.flatnonzero(digit == value))
        cuts = np.cumsum([round(share * len(images)) for share in _SHARES])
        pools.append(np.split(images, cuts)[split])
    return pools


def _label_sets(scenes: Scenes, count: int, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Draw classes one by one: by frequency, then by frequency and affinity to those drawn."""
    group = np.array([0, 1, 1, 1, 2, 2, 2, 3, 3, 3])  # class zero goes with everything
    same = group[:, None] == group[None, :]
    lift = np.where(same, scenes.affinity, scenes.aversion)
    lift[0, :] = lift[:, 0] = 1.0
    frequencies, shares = np.array(scenes.frequencies), np.array(scenes.counts)
    labels = np.zeros((count, len(CLASSES)), bool)
    for row in labels:
        weights = frequencies.copy()
        for _ in range(1 + rng.choice(len(shares), p=shares / shares.sum())):
            chosen = rng.choice(len(CLASSES), p=weights / weights.sum())
            row[chosen] = True
            weights = np.where(row, 0, weights * lift[chosen])
    return labels


def _compose(
    scenes: Scenes,
    classes: npt.NDArray[np.int64],
    glyphs: npt.NDArray[np.float32],
    pool: list[npt.NDArray[np.int64]],
    rng: np.random.Generator,
) -> Pixels:
    """Draw one digit of each class with random size, brightness and place, and little overlap."""
    canvas = np.abs(rng.normal(0, scenes.noise, (scenes.size, scenes.size)))
    occupied = np.zeros_like(canvas, dtype=bool)
    for value in rng.permutation(classes):
        side = int(rng.integers(10, 17))
        glyph = _enlarge(glyphs[rng.choice(pool[value])], side) * rng.uniform(110, 255)
        places = rng.integers(0, scenes.size - side + 1, (20, 2))
        overlaps = [occupied[top : top + side, left : left + side].mean() for top, left in places]
        top, left = places[int(np.argmin(overlaps))]
        window = canvas[top : top + side, left : left + side]
        np.maximum(window, glyph, out=window)
        occupied[top : top + side, left : left + side] = True
    return np.clip(canvas, 0, 255).astype(np.uint8)


def _enlarge(glyph: npt.NDArray[np.float32], side: int) -> npt.NDArray[np.float32]:
    """Resize bilinearly, without a library, so that the pictures are the same everywhere."""
    at = np.clip((np.arange(side) + 0.5) * len(glyph) / side - 0.5, 0, len(glyph) - 1)
    low = np.floor(at).astype(int)
    high = np.minimum(low + 1, len(glyph) - 1)
    part = (at - low).astype(np.float32)
    rows = glyph[low] * (1 - part)[:, None] + glyph[high] * part[:, None]
    return np.asarray(rows[:, low] * (1 - part) + rows[:, high] * part, dtype=np.float32)
