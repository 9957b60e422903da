import pytest
import torch

from spml.keyed import coin
from spml.losses import Method
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
