"""Heat maps of pictures that are cut and mirrored, against their definition."""

import numpy as np
import pytest
import torch
from scipy.ndimage import map_coordinates

from spml.methods.parts.heatmaps import HeatMaps, whole
from spml.train.augment import boxes, cut
from tests.losses.common import random_batch
from tests.methods.test_en import CALL, method


def sampled(image, x, y):
    """Values at points of a picture with sides of 1; constant beyond the outermost centres."""
    height, width = image.shape
    places = np.broadcast_arrays(y * height - 0.5, x * width - 0.5)
    return map_coordinates(image, places, order=1, mode="nearest")


def centres(count):
    return (np.arange(count) + 0.5) / count


class Definition:
    """Heat maps of one item."""

    def __init__(self, classes, grid, momentum):
        self.maps, self.seen = np.zeros((classes, grid, grid)), np.zeros((grid, grid))
        self.momentum = momentum

    def cost(self, maps, box, power):
        """Cost of each class, before the maps are written."""
        left, top, right, bottom = box
        x = left + centres(maps.shape[2])[None, :] * (right - left)
        y = top + centres(maps.shape[1])[:, None] * (bottom - top)
        share = sampled(self.seen, x, y)
        known = share >= 0.5
        past = np.stack([sampled(stored, x, y) for stored in self.maps]) / np.where(known, share, 1)
        return (np.abs(maps - past) ** power * known).sum(axis=(1, 2)) / max(known.sum(), 1)

    def write(self, maps, box):
        left, top, right, bottom = box
        at = centres(len(self.seen))
        x, y = (at[None, :] - left) / (right - left), (at[:, None] - top) / (bottom - top)
        inside = (x >= 0) & (x <= 1) & (y >= 0) & (y <= 1)
        new = np.stack([sampled(each, x, y) for each in maps])
        mean = self.momentum * self.maps + (1 - self.momentum) * new
        mixed = np.where(self.seen > 0, mean, new).astype(np.float16)
        self.maps = np.where(inside, mixed, self.maps)
        self.seen[inside] = 1.0


@pytest.mark.parametrize(("grid", "height", "width"), [(5, 3, 4), (3, 5, 5), (4, 4, 4), (6, 1, 2)])
def test_heat_maps_of_cut_and_mirrored_pictures_follow_the_definition(grid, height, width):
    table = random_batch(6, 3, seed=2)[1]
    loss = method(table, scl=0.7, power=2.0, momentum=0.6, grid=grid, reduction="none")
    plain = method(table, reduction="none")
    items = [Definition(3, grid, 0.6) for _ in range(6)]
    generator = torch.Generator().manual_seed(1)
    partly = 0
    for epoch in range(1, 5):
        for index in torch.randperm(6, generator=generator).split(4):
            logits = torch.randn(len(index), 3, generator=generator, dtype=torch.float64)
            features = torch.randn(len(index), 3, height, width, generator=generator) * 2
            seen = boxes(index, 3, epoch, crop=0.2, flip=True)
            call = {"epoch": epoch, "epochs": 4, "index": index}
            base = plain(logits, table[index], **call)
            loss.see(seen)
            costs = loss(logits, table[index], **call, features=features) - base
            for place, i in enumerate(index.tolist()):
                maps, box = features[place].sigmoid().double().numpy(), seen[place].tolist()
                expected = 0.7 * items[i].cost(maps, box, 2.0) * (table[i] != -1).numpy()
                assert costs[place].tolist() == pytest.approx(expected.tolist(), abs=1e-3)
                items[i].write(maps, box)
                partly += 0 < items[i].seen.sum() < grid**2
        maps = np.stack([each.maps for each in items])
        np.testing.assert_allclose(loss.heat.maps.double().numpy(), maps, atol=2e-3, rtol=0)
        assert (loss.heat.seen.numpy() == np.stack([each.seen for each in items])).all()
    mirrored = boxes(torch.arange(6), 3, 1, crop=0.2, flip=True)
    assert partly and 0 < (mirrored[:, 0] > mirrored[:, 2]).sum() < 6


def picture(size):
    """A slope down and across, (1, 2, size, size), in 0..1."""
    at = (torch.arange(size) + 0.5) / size
    return torch.stack(
        [0.2 + 0.6 * at[None, :].expand(size, size), 0.9 - 0.5 * at[:, None] + 0.05 * at]
    )[None]


MIRRORED = torch.tensor([[0.9, 0.15, 0.3, 0.75]])


def test_a_map_of_the_whole_picture_is_read_as_training_cuts_it():
    heat, row = HeatMaps(3, 2, 16, 0.8), torch.tensor([1])
    heat.write(row, whole(1, row.device), picture(16))
    for box in (whole(1, row.device), MIRRORED, torch.tensor([[0.1, 0.3, 0.6, 0.9]])):
        values, known = heat.read(row, box, 16, 16)
        assert known.all()
        torch.testing.assert_close(values, cut(picture(16), box), atol=1e-3, rtol=0)
    assert not heat.seen[[0, 2]].any() and not heat.maps[[0, 2]].any()


def test_without_boxes_a_batch_counts_as_whole_pictures():
    logits, table = random_batch(4, 3)
    loss = method(table, scl=1.0, grid=6)
    call = {**CALL, "index": torch.arange(4), "features": torch.zeros(4, 3, 3, 3)}
    loss.see(MIRRORED.expand(4, -1))
    loss(logits, table, **call)
    assert 0 < loss.heat.seen.float().mean() < 0.5
    loss(logits, table, **call)
    assert loss.heat.seen.all()
