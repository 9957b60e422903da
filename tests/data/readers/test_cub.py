"""A miniature CUB-200-2011: both places of its files, surplus cells, and damaged copies."""

import pytest

from spml.data import read
from tests.data.conftest import positives, refused

MARKS = "CUB_200_2011/attributes/image_attribute_labels.txt"
LABELS = [
    *("1 1 1 3 27.7", "1 2 0 3 27.7", "2 1 0 1 5.1 0"),
    *("2 2 1 4 9.9 1 2.5", "3 1 1 2 1", "3 2 1 2 1"),
]


@pytest.fixture
def cub(tmp_path, write):
    """The archive as it unpacks: attribute names beside the folder, the rest inside."""
    write("1 has_bill_shape::curved_(up_or_down)\n2 has_wing_color::blue\n", "attributes.txt")
    images = "1 001.Albatross/b.jpg\n2 001.Albatross/a.jpg\n3 002.Auklet/c.jpg\n"
    write(images, "CUB_200_2011/images.txt")
    write("1 1\n2 0\n3 1\n", "CUB_200_2011/train_test_split.txt")
    write("\n".join(LABELS) + "\n", MARKS)
    return tmp_path


def check(tables):
    shape, color = "has_bill_shape::curved_(up_or_down)", "has_wing_color::blue"
    assert tables["train"].classes == [shape, color]
    expected = {"001.Albatross/b.jpg": [shape], "002.Auklet/c.jpg": [shape, color]}
    assert positives(tables["train"]) == expected
    assert positives(tables["test"]) == {"001.Albatross/a.jpg": [color]}


@pytest.mark.parametrize("start", [".", "CUB_200_2011"])
def test_reading_what_the_archive_unpacks(cub, start):
    tables = read("cub", cub / start)
    check(tables)
    assert tables["train"].root == cub / "CUB_200_2011" / "images"
    assert tables["train"].sparse.fill == -1


@pytest.mark.parametrize("place", ["attributes/attributes.txt", "attributes.txt"])
def test_reading_names_inside_the_folder(cub, place):
    (cub / "attributes.txt").rename(cub / "CUB_200_2011" / place)
    check(read("cub", cub))


def test_reading_a_folder_in_a_folder(cub, tmp_path):
    outer = tmp_path / "data" / "CUB_200_2011"
    outer.mkdir(parents=True)
    (cub / "CUB_200_2011").rename(outer / "CUB_200_2011")
    (cub / "attributes.txt").rename(outer / "attributes.txt")
    check(read("cub", tmp_path / "data"))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("CUB_200_2011/train_test_split.txt", None, "no train_test_split.txt there; unpack"),
        ("CUB_200_2011/images.txt", None, "images.txt: No such file"),
        ("attributes.txt", None, "attributes.txt: No such file"),
        (MARKS, None, "image_attribute_labels.txt: No such file"),
        ("CUB_200_2011/images.txt", "1 a.jpg\n1 b.jpg\n", "images.txt, line 2: '1 b.jpg'"),
        ("CUB_200_2011/images.txt", "1\n", "images.txt, line 1: '1'"),
        ("CUB_200_2011/train_test_split.txt", "1 1\n2 0\n", "image 3 is not marked 1 or 0"),
        ("CUB_200_2011/train_test_split.txt", "1 1\n2 2\n3 1\n", "image 2 is not marked 1 or 0"),
        (MARKS, "1 1\n", "line 1: '1 1' is not an image"),
        (MARKS, "1 1 1\n9 1 1\n", "line 2: '9 1 1'"),
        (MARKS, "1 3 1\n", "line 1: '1 3 1'"),
        (MARKS, "1 1 yes\n", "line 1: '1 1 yes'"),
        (MARKS, "\n".join(LABELS[:-1]), "no line for image 3, attribute 2"),
    ],
)
def test_damaged_copies(cub, damage, name, content, message):
    damage(name, content)
    with refused(message):
        read("cub", cub)
