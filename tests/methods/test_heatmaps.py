"""Heat maps of pictures that are cut and mirrored, against plain loops."""

import numpy as np
import pytest
import torch

from spml.methods.parts.heatmaps import HeatMaps, whole
from spml.train.augment import boxes, cut
from tests.losses.common import random_batch
from tests.methods.test_en import CALL, method


def bilinear(image, x, y):
    """Value at a point of a picture with sides of 1; constant beyond the outermost centres."""
    height, width = len(image), len(image[0])
    column = min(max(x * width - 0.5, 0.0), width - 1.0)
    row = min(max(y * height - 0.5, 0.0), height - 1.0)
    c, r = (
        min(int(column), width - 2) if width > 1 else 0,
        min(int(row), height - 2) if height > 1 else 0,
    )
    total = 0.0
    for i, down in ((r, 1 - (row - r)), (r + 1, row - r)):
        for j, across in ((c, 1 - (column - c)), (c + 1, column - c)):
            if down * across > 0:
                total += down * across * image[i][j]
    return total


class HeatLoops:
    """Heat maps of one item, over lists."""

    def __init__(self, classes, grid, momentum):
        self.maps = [[[0.0] * grid for _ in range(grid)] for _ in range(classes)]
        self.seen = [[0.0] * grid for _ in range(grid)]
        self.grid, self.momentum = grid, momentum

    def cost(self, maps, box, power):
        """Cost of each class, before the maps are written."""
        left, top, right, bottom = box
        height, width = len(maps[0]), len(maps[0][0])
        costs, count = [0.0] * len(maps), 0
        for row in range(height):
            for column in range(width):
                x, y = (
                    left + (column + 0.5) / width * (right - left),
                    top + (row + 0.5) / height * (bottom - top),
                )
                share = bilinear(self.seen, x, y)
                if share >= 0.5:
                    count += 1
                    for c, stored in enumerate(self.maps):
                        costs[c] += (
                            abs(maps[c][row][column] - bilinear(stored, x, y) / share) ** power
                        )
        return [cost / max(count, 1) for cost in costs]

    def write(self, maps, box):
        left, top, right, bottom = box
        for row in range(self.grid):
            for column in range(self.grid):
                x = ((column + 0.5) / self.grid - left) / (right - left)
                y = ((row + 0.5) / self.grid - top) / (bottom - top)
                if not (0 <= x <= 1 and 0 <= y <= 1):
                    continue
                for c, stored in enumerate(self.maps):
                    new, old = bilinear(maps[c], x, y), stored[row][column]
                    mixed = (
                        self.momentum * old + (1 - self.momentum) * new
                        if self.seen[row][column]
                        else new
                    )
                    stored[row][column] = float(np.float16(mixed))
                self.seen[row][column] = 1.0


@pytest.mark.parametrize(("grid", "height", "width"), [(5, 3, 4), (3, 5, 5), (4, 4, 4), (6, 1, 2)])
def test_heat_maps_of_cut_and_mirrored_pictures_follow_the_definition(grid, height, width):
    table = random_batch(6, 3, seed=2)[1]
    loss = method(table, scl=0.7, power=2.0, momentum=0.6, grid=grid, reduction="none")
    plain = method(table, reduction="none")
    loops = [HeatLoops(3, grid, 0.6) for _ in range(6)]
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
                maps, box = features[place].sigmoid().tolist(), seen[place].tolist()
                expected = [
                    0.0 if s == -1 else 0.7 * cost
                    for s, cost in zip(
                        table[i].tolist(), loops[i].cost(maps, box, 2.0), strict=True
                    )
                ]
                assert costs[place].tolist() == pytest.approx(expected, abs=1e-3)
                loops[i].write(maps, box)
                partly += 0 < sum(map(sum, loops[i].seen)) < grid**2
        torch.testing.assert_close(
            loss.heat.maps.float(), torch.tensor([each.maps for each in loops]), atol=2e-3, rtol=0
        )
        assert loss.heat.seen.tolist() == [
            [[bool(x) for x in row] for row in each.seen] for each in loops
        ]
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


def test_a_map_of_a_part_is_read_back_and_the_rest_is_unchanged():
    heat, row = HeatMaps(1, 2, 20, 0.8), torch.tensor([0])
    heat.write(row, whole(1, row.device), torch.full((1, 2, 4, 4), 0.5))
    heat.seen.zero_()  # so that the next map is not averaged with this one
    heat.write(row, MIRRORED, cut(picture(40), MIRRORED))
    at = (torch.arange(20) + 0.5) / 20
    inside = ((at > 0.15) & (at < 0.75))[:, None] & ((at > 0.3) & (at < 0.9))[None]
    assert torch.equal(heat.seen[0], inside)
    assert (heat.maps[0][:, ~inside] == 0.5).all()
    torch.testing.assert_close(
        heat.maps[0][:, inside].float(), picture(20)[0][:, inside], atol=1e-2, rtol=0
    )
    values, known = heat.read(row, MIRRORED, 6, 6)
    assert known.all()
    torch.testing.assert_close(values, cut(picture(6), MIRRORED), atol=3e-2, rtol=0)
    nowhere = torch.tensor([[0.0, 0.8, 0.25, 1.0]])
    assert not heat.read(row, nowhere, 5, 5)[1].any()


def test_without_boxes_a_batch_counts_as_whole_pictures():
    logits, table = random_batch(4, 3)
    loss, call = (
        method(table, scl=1.0, grid=6),
        {**CALL, "index": torch.arange(4), "features": torch.zeros(4, 3, 3, 3)},
    )
    loss.see(MIRRORED.expand(4, -1))
    loss(logits, table, **call)
    assert 0 < loss.heat.seen.float().mean() < 0.5
    loss(logits, table, **call)
    assert loss.heat.seen.all()
