"""Crops and mirroring, and the strong view: its parts against torchvision's own."""

from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as tv

from spml.keyed import coin
from spml.losses import Method
from spml.train import augment
from spml.train.augment import boxes, cut
from spml.train.step import mirror
from tests.conftest import history, noise, refused


def test_mirror_turns_the_chosen_pictures_left_to_right():
    pictures = torch.arange(6 * 3 * 2 * 4).view(6, 3, 2, 4).to(torch.uint8)
    index = torch.tensor([9, 1, 7, 3, 12, 40])
    flips = coin(index, 0, 1)
    assert 0 < flips.sum() < 6
    for picture, result, flipped in zip(
        pictures, mirror(pictures, index, 0, 1), flips, strict=True
    ):
        assert (result == (picture.flip(-1) if flipped else picture)).all()


INDEX = torch.arange(5000)


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("crop", [1.0, 0.25, 0.9])
def test_a_box_depends_on_seed_epoch_and_item_alone(crop, flip):
    seen = boxes(INDEX, 3, 5, crop=crop, flip=flip)
    assert seen.shape == (5000, 4) and seen.dtype == torch.float32
    shuffled = torch.randperm(5000)[:33]
    torch.testing.assert_close(
        boxes(shuffled, 3, 5, crop=crop, flip=flip), seen[shuffled], rtol=0, atol=1e-6
    )
    for seed, epoch in ((3, 6), (4, 5)):
        same = torch.equal(boxes(INDEX, seed, epoch, crop=crop, flip=flip), seen)
        assert same == (crop == 1 and not flip)


@pytest.mark.parametrize("crop", [0.08, 0.25, 0.5, 0.9, 0.99])
def test_boxes_lie_inside_and_have_the_requested_area(crop):
    left, top, right, bottom = boxes(INDEX, 0, 1, crop=crop, flip=False).unbind(dim=1)
    width, height = right - left, bottom - top
    assert left.min() >= 0 and top.min() >= 0 and right.max() <= 1 + 1e-6
    assert bottom.max() <= 1 + 1e-6
    area = width * height
    assert area.min() > crop - 1e-5 and area.max() < 1 + 1e-5
    assert area.mean() == pytest.approx((1 + crop) / 2, abs=0.02)
    ratio = width / height
    assert ratio.min() > 3 / 4 - 1e-4 and ratio.max() < 4 / 3 + 1e-4
    if crop == 0.08:
        assert ratio.max() > 1.3 and ratio.min() < 0.77 and left.max() > 0.6 and left.min() < 0.01


def test_mirrored_boxes_follow_the_coin():
    plain, flipped = (boxes(INDEX, 2, 3, crop=0.3, flip=flip) for flip in (False, True))
    mirrored = coin(INDEX, 2, 3)
    assert torch.equal(flipped[:, 0] > flipped[:, 2], mirrored)
    assert torch.equal(flipped[mirrored][:, [2, 1, 0, 3]], plain[mirrored])
    assert torch.equal(flipped[~mirrored], plain[~mirrored])


def test_without_a_crop_a_box_is_the_whole_picture_mirrored_or_not():
    pictures, index = noise(64, 3, 9, 12), torch.arange(64)
    seen = boxes(index, 0, 1, crop=1.0, flip=True)
    assert set(map(tuple, seen.tolist())) == {(0, 0, 1, 1), (1, 0, 0, 1)}
    assert torch.equal(cut(pictures, seen), mirror(pictures, index, 0, 1))
    whole = torch.tensor([[0.0, 0, 1, 1]] * 64)
    assert torch.equal(cut(pictures, whole), pictures)
    maps = torch.rand(64, 5, 7, 7)
    torch.testing.assert_close(cut(maps, whole), maps)


def test_a_crop_is_resized_to_the_size_of_the_picture():
    pictures = noise(2, 3, 8, 8)
    # The upper right quarter, and the same quarter mirrored.
    quarter = torch.tensor([[0.5, 0.0, 1.0, 0.5], [1.0, 0.0, 0.5, 0.5]])
    crops = cut(pictures, quarter)
    assert crops.shape == pictures.shape and crops.dtype == torch.uint8
    corner = pictures[0, :, :4, 4:].float()
    expected = torch.nn.functional.interpolate(corner[None], size=(8, 8), mode="bilinear")[0]
    inner = (slice(None), slice(1, 7), slice(1, 7))  # at its edges a part sees beyond itself
    assert (crops[0][inner].float() - expected[inner]).abs().max() <= 1
    assert torch.equal(
        cut(pictures[:1], quarter[:1])[0], cut(pictures[:1], quarter[1:])[0].flip(-1)
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_maps_keep_their_type(dtype):
    maps = torch.rand(2, 4, 6, 6).to(dtype)
    cropped = cut(maps, torch.tensor([[0.1, 0.1, 0.9, 0.8]] * 2))
    assert cropped.dtype == dtype and cropped.shape == maps.shape and cropped.isfinite().all()


def test_the_model_and_the_method_see_the_same_crop(train, tmp_path):
    BOXES.clear()
    train(method="tests.train.test_augment:Listening", crop=0.5, flip=True, epochs=1)
    seen = torch.cat(BOXES)
    assert len(seen) == 128
    area = ((seen[:, 2] - seen[:, 0]) * (seen[:, 3] - seen[:, 1])).abs()
    assert area.min() >= 0.5 - 1e-5
    assert len((seen[:, 0] > seen[:, 2]).unique()) == 2  # mirrored or not
    train("cut", crop=0.3, epochs=1)
    train("whole", epochs=1)
    assert history(tmp_path / "cut")[1]["loss"] != history(tmp_path / "whole")[1]["loss"]


BOXES = []


class Listening(Method):
    """A loss that records the boxes."""

    def see(self, boxes):
        BOXES.append(boxes)

    def forward(self, logits, observed, **more):
        return torch.nn.functional.softplus(-logits * observed).mean()


@pytest.mark.parametrize("crop", [0.0, 1.0, -0.5, 2.0])
def test_a_crop_outside_0_to_1_is_refused(train, crop):
    with refused("crop is a share of the area, above 0 and below 1"):
        train(crop=crop)


@pytest.fixture(scope="module")
def pictures():
    """Six smooth coloured pictures of 40 x 40 without repetitions."""
    coarse = torch.rand(6, 3, 5, 5, generator=torch.Generator().manual_seed(0)) * 255
    return torch.nn.functional.interpolate(coarse, size=(40, 40), mode="bilinear").to(torch.uint8)


def test_a_view_depends_on_seed_epoch_and_item_alone(pictures):
    rows, before = np.array([4, 9, 1, 0, 7, 3]), pictures.clone()
    views = augment.strong_view(pictures, rows, 0, 3)
    assert torch.equal(pictures, before)
    assert views.shape == pictures.shape and views.dtype == torch.uint8
    order = np.array([5, 2, 0])
    assert torch.equal(augment.strong_view(pictures[order], rows[order], 0, 3), views[order])
    torch.manual_seed(5)
    assert torch.equal(augment.strong_view(pictures, rows, 0, 3), views)
    for seed, epoch in ((1, 3), (0, 4)):
        other = augment.strong_view(pictures, rows, seed, epoch)
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
        view = augment.operation(pictures[0], chosen(number, sign))
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
        other = augment.operation(pictures[0], chosen(number, -sign))
        assert torch.equal(other, view) != signed, name


def test_a_translation_is_relative_to_each_side():
    picture = torch.zeros(3, 20, 100, dtype=torch.uint8)
    picture[:, 10, 50] = 255
    across, down = (
        augment.operation(picture, chosen(number, 1.0))[0].nonzero().tolist() for number in (3, 4)
    )
    assert across == [[10, 50 + round(0.3 * 150 / 331 * 100)]]
    assert down == [[10 + round(0.3 * 150 / 331 * 20), 50]]


def test_half_of_the_side_is_cut_out_around_any_point(pictures):
    shares = []
    for seed in range(300):
        view = augment.cut_out(pictures[2], np.random.default_rng(seed))
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
        augment.jittered(pictures[0], np.random.default_rng(seed))
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
        augment.transformed(pictures[0], random)
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
