import numpy as np
import pytest
import torch

from spml.train import strong
from spml.train.strong import strong_view


def pictures(count=40, size=32):
    return torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


ROWS = np.arange(40) * 7 + 3


@pytest.mark.parametrize("size", [16, 33])
def test_every_picture_is_changed_and_keeps_its_shape_and_type(size):
    x = pictures(size=size)
    before = x.clone()
    views = strong_view(x, ROWS, 0, 1)
    assert views.shape == x.shape and views.dtype == torch.uint8 and torch.equal(x, before)
    assert all(not torch.equal(a, b) for a, b in zip(x, views, strict=True))


def test_a_view_depends_on_seed_epoch_and_item_alone():
    x = pictures()
    views = strong_view(x, ROWS, 3, 5)
    assert torch.equal(strong_view(x, ROWS, 3, 5), views)
    order = np.random.default_rng(0).permutation(40)[:9]
    assert torch.equal(strong_view(x[order], ROWS[order], 3, 5), views[order])
    for seed, epoch in ((3, 6), (4, 5)):
        other = strong_view(x, ROWS, seed, epoch)
        assert sum(torch.equal(a, b) for a, b in zip(other, views, strict=True)) == 0
    torch.manual_seed(123)
    assert torch.equal(strong_view(x, ROWS, 3, 5), views)  # nor on the state of any generator


def test_a_square_about_a_point_is_grey():
    white = torch.full((40, 3, 32, 32), 255, dtype=torch.uint8)
    areas = []
    for picture, row in zip(white, ROWS, strict=True):
        found = strong._cut_out(picture, np.random.default_rng(row))
        rows, columns = (found[0] == 127).nonzero().unbind(dim=1)
        assert (found[:, rows.min() : rows.max() + 1, columns.min() : columns.max() + 1] == 127).all()
        assert ((found == 127) | (found == 255)).all()
        areas.append(len(rows))
    assert max(areas) == 16 * 16 and 64 <= min(areas) < 150  # half the side, less where the point is near an edge
    assert (white == 255).all()


def test_each_operation_can_be_drawn_and_none_is_broken():
    x, drawn = pictures(1)[0], set()
    for seed in range(400):
        found = strong._operation(x, np.random.default_rng(seed))
        assert found.shape == x.shape and found.dtype == torch.uint8
        drawn.add(found.numpy().tobytes())
    assert len(drawn) >= 14 + 8 - 1  # fourteen, of which nine or so have two directions
