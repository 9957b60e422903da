"""Drawing of a class map."""

import numpy as np
import pytest
import torch

from spml.use.explain.class_maps import NARROWEST, STRENGTH, STRIP, colours, overlay, plain, shown


def test_the_longer_side_is_480_and_none_is_thinner_than_8():
    for shape, size in (((60, 120), (240, 480)), ((960, 480), (480, 240)), ((1, 1000), (8, 480))):
        assert shown(torch.zeros(3, *shape, dtype=torch.uint8)).shape[-2:] == size


def test_evidence_is_coloured_and_the_rest_is_grey():
    picture = torch.full((3, 40, 500), 100, dtype=torch.uint8)
    picture[0] = 200  # 130 in grey
    values = torch.full((1, 2), -3.0)
    values[0, 1] = 8.0
    drawn = np.asarray(overlay(picture, values, 4.0, "dog", "0.90", "note"))
    assert drawn.shape == (40 + STRIP, 500, 3)
    assert drawn[20, 2].tolist() == [130, 130, 130]
    full = (1 - STRENGTH) * 130 + STRENGTH * colours(np.ones(1, np.float32))[0]
    assert drawn[20, -2].tolist() == np.rint(full).astype(int).tolist()
    assert plain(picture).getpixel((3, 3)) == (200, 100, 100)


def test_weak_evidence_is_visible():
    picture = torch.full((3, 40, 480), 130, dtype=torch.uint8)
    drawn = np.asarray(overlay(picture, torch.full((1, 1), 0.4), 4.0, "dog", "0.90", "note"), float)
    tenth = colours(np.full(1, 0.1, np.float32))[0]
    assert 0.15 < ((130 - drawn[20, 9]) / (130 - tenth)).mean() < 0.2  # the colour of a tenth


def test_a_narrow_picture_is_centred_over_its_legend():
    picture = torch.zeros(3, 480, 90, dtype=torch.uint8)
    drawn = np.asarray(overlay(picture, torch.zeros(1, 1), 1.0, "a", "0.1", ""))
    assert drawn.shape[1] == NARROWEST
    assert np.flatnonzero((drawn[0] == 0).all(axis=-1)).tolist() == [*range(150, 240)]


@pytest.mark.parametrize("name", ["dog", "a very long name of a class " * 9])
def test_the_legend_keeps_the_scale_and_the_probability_clear(name):
    picture = torch.zeros(3, 100, 480, dtype=torch.uint8)
    drawn = [overlay(picture, torch.zeros(1, 1), 1.0, one, "0.90", one) for one in (name, "")]
    legends = [image.crop((371, 100, 480, 168)) for image in drawn]
    assert legends[0].tobytes() == legends[1].tobytes()  # the scale is not covered by the name
    scale = colours(np.linspace(0, 1, 90, dtype=np.float32)).astype(np.uint8)
    for row in (114, 129):
        assert np.array_equal(np.asarray(drawn[0])[row, 380:470], scale)


def test_a_long_name_is_shortened_and_a_line_break_is_a_space():
    picture = torch.zeros(3, 100, 480, dtype=torch.uint8)

    def legend(name):
        drawn = overlay(picture, torch.zeros(1, 1), 1.0, name, "0.90", "")
        return drawn.crop((0, 100, 380, 168)).tobytes()

    assert legend("two\n words") == legend("two words")
    assert legend("x" * 99) == legend("x" * 999) != legend("x" * 9)
