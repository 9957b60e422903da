"""The strong view: its parts against torchvision's own, and what it depends on."""

from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as tv

from spml.train import augment as strong


@pytest.fixture(scope="module")
def pictures():
    """Six smooth coloured pictures of 40 x 40 without repetitions."""
    coarse = torch.rand(6, 3, 5, 5, generator=torch.Generator().manual_seed(0)) * 255
    return torch.nn.functional.interpolate(coarse, size=(40, 40), mode="bilinear").to(torch.uint8)


def test_a_view_depends_on_seed_epoch_and_item_alone(pictures):
    rows, before = np.array([4, 9, 1, 0, 7, 3]), pictures.clone()
    views = strong.strong_view(pictures, rows, 0, 3)
    assert torch.equal(pictures, before)
    assert views.shape == pictures.shape and views.dtype == torch.uint8
    order = np.array([5, 2, 0])
    assert torch.equal(strong.strong_view(pictures[order], rows[order], 0, 3), views[order])
    torch.manual_seed(5)
    assert torch.equal(strong.strong_view(pictures, rows, 0, 3), views)
    for seed, epoch in ((1, 3), (0, 4)):
        other = strong.strong_view(pictures, rows, seed, epoch)
        assert all(not torch.equal(a, b) for a, b in zip(other, views, strict=True))


def chosen(number, sign):
    """Fake random numbers that choose an operation and its direction."""
    return Mock(
        choice=lambda signs: signs[signs.index(sign)], integers=lambda count: range(count)[number]
    )


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_operations_equal_randaugment_at_magnitude_9(pictures, sign):
    """In the order of torchvision, in either direction and up to one grey level."""
    reference = v2.RandAugment(num_ops=2, magnitude=9)
    assert len(reference._AUGMENTATION_SPACE) == 14
    for number, (name, (magnitudes, signed)) in enumerate(reference._AUGMENTATION_SPACE.items()):
        table = magnitudes(31, 40, 40)
        magnitude = 0.0 if table is None else float(table[9])
        view = strong.operation(pictures[0], chosen(number, sign))
        distances = []
        for way in (1, -1) if signed else (1,):
            expected = reference._apply_image_or_video_transform(
                pictures[0],
                name,
                way * magnitude,
                interpolation=v2.InterpolationMode.NEAREST,
                fill={},
            )
            distances.append((view.int() - expected.int()).abs().max().item())
        assert min(distances) <= 1, name
        other = strong.operation(pictures[0], chosen(number, -sign))
        assert torch.equal(other, view) != signed, name


def test_a_translation_is_relative_to_each_side():
    picture = torch.zeros(3, 20, 100, dtype=torch.uint8)
    picture[:, 10, 50] = 255
    across, down = (
        strong.operation(picture, chosen(number, 1.0))[0].nonzero().tolist() for number in (3, 4)
    )
    assert across == [[10, 50 + round(0.3 * 150 / 331 * 100)]]
    assert down == [[10 + round(0.3 * 150 / 331 * 20), 50]]


def test_half_of_the_side_is_cut_out_around_any_point(pictures):
    shares = []
    for seed in range(300):
        view = strong.cut_out(pictures[2], np.random.default_rng(seed))
        changed = (view != pictures[2]).any(dim=0)
        rows, columns = changed.any(dim=1).nonzero(), changed.any(dim=0).nonzero()
        height, width = (int(lines.max() - lines.min()) + 1 for lines in (rows, columns))
        assert height <= 20 and width <= 20
        assert (view[:, changed] == 127).all()
        shares.append(height * width / 400)
    assert max(shares) == 1 and min(shares) < 0.4


def test_colours_are_jittered_within_bounds_and_in_any_order(pictures, monkeypatch):
    calls = []
    for name in ("brightness", "contrast", "saturation", "hue"):
        monkeypatch.setattr(
            tv, f"adjust_{name}", lambda x, amount, name=name: calls.append((name, amount)) or x
        )
    for seed in range(200):
        strong.jittered(pictures[0], np.random.default_rng(seed))
    for name, middle, bound in (
        ("brightness", 1, 0.4),
        ("contrast", 1, 0.4),
        ("saturation", 1, 0.4),
        ("hue", 0, 0.1),
    ):
        off = [amount - middle for called, amount in calls if called == name]
        assert len(off) == 200 and max(map(abs, off)) <= bound and min(off) < -0.9 * bound
        assert max(off) > 0.9 * bound
    assert len({tuple(name for name, _ in calls[i : i + 4]) for i in range(0, 800, 4)}) == 24


class Noting:
    """A generator that notes its draws."""

    def __init__(self, seed):
        self.random_numbers, self.draws = np.random.default_rng(seed), []

    def __getattr__(self, name):
        self.draws.append(name)
        return getattr(self.random_numbers, name)


def test_transforms_have_their_frequency_and_order(pictures, monkeypatch):
    def grey(x, num_output_channels):
        random.draws.append("grey")
        return x

    monkeypatch.setattr(tv, "rgb_to_grayscale", grey)
    runs = []
    for seed in range(1000):
        random = Noting(seed)
        strong.transformed(pictures[0], random)
        runs.append(tuple(random.draws))
    square, operation, jitter = (
        ("integers",) * 2,
        ("choice", "integers"),
        ("uniform", "permutation"),
    )
    assert {run[:6] for run in runs} == {square + operation * 2}
    ends = [("random", *some, "random", *last) for some in ((), jitter) for last in ((), ("grey",))]
    assert {run[6:] for run in runs} == set(ends)
    assert abs(np.mean(["uniform" in run for run in runs]) - 0.8) < 0.04
    assert abs(np.mean(["grey" in run for run in runs]) - 0.2) < 0.04
