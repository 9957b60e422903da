"""Observation models: their draws, the frequencies, and the recorded description."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from spml.data import LabelTable, load, observe, read
from spml.data.observation import Observation, draw, draw_weighted
from spml.data.readers.object_sizes import areas
from spml.data.readers.voc import CLASSES
from spml.data.table import SparseLabels
from spml.errors import UserError
from tests.data.conftest import refused

COMPLETE = hnp.arrays(
    np.int8,
    hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=8),
    elements=st.sampled_from([1, -1]),
)


def table_of(labels, items=None):
    names = [f"c{i}" for i in range(labels.shape[1])]
    return LabelTable(items or [f"{i}.jpg" for i in range(len(labels))], names, labels)


def drawn(labels, text, seed=1200):
    observed, about = Observation.parse(text).draw(table_of(np.asarray(labels, np.int8)), seed)
    return observed.rows(np.arange(len(labels))), about


@given(COMPLETE, st.integers(0, 2**32 - 1), st.integers(0, 3), st.integers(0, 3))
def test_uniform_is_the_protocol(labels, seed, positives, negatives):
    observed, about = drawn(labels, f"uniform:positives={positives},negatives={negatives}", seed)
    np.testing.assert_array_equal(observed, observe(labels, seed, positives, negatives))
    assert about == {
        "model": "uniform",
        "positives": positives,
        "negatives": negatives,
        "seed": seed,
    }
    np.testing.assert_array_equal(drawn(labels, "uniform")[0], observe(labels))
    np.testing.assert_array_equal(
        draw(SparseLabels.from_dense(labels)).rows(np.arange(len(labels))), observe(labels)
    )


@given(
    COMPLETE,
    st.integers(0, 2**32 - 1),
    st.integers(0, 3),
    st.sampled_from([-2.0, 0.0, 0.5, 1.0, 300.0]),
)
def test_weighted_draws_keep_the_requested_number_of_true_positives(labels, seed, positives, gamma):
    observed, about = drawn(labels, f"frequency:gamma={gamma},positives={positives}", seed)
    assert set(np.unique(observed)) <= {0, 1} and (labels[observed == 1] == 1).all()
    np.testing.assert_array_equal(
        (observed == 1).sum(axis=1), np.minimum(positives, (labels == 1).sum(axis=1))
    )
    np.testing.assert_array_equal(
        drawn(labels, f"frequency:gamma={gamma},positives={positives}", seed)[0], observed
    )
    assert about == {"model": "frequency", "gamma": gamma, "positives": positives, "seed": seed}


@pytest.mark.parametrize(
    ("gamma", "share"), [(1, 0.8), (0, 0.5), (-1, 0.2), (0.5, 2 / 3), (2, 16 / 17)]
)
def test_frequency_draws_in_proportion_to_the_power(gamma, share):
    """Class 0 is four times as frequent as class 1.

    In rows that have both, it is drawn 4^gamma times as often.
    """
    labels = np.full((40_000, 2), -1, np.int8)
    labels[:, 0] = 1
    labels[:10_000, 1] = 1
    observed, _ = drawn(labels, f"frequency:gamma={gamma}")
    assert (observed[:10_000, 0] == 1).mean() == pytest.approx(share, abs=0.02)
    assert (observed[10_000:, 0] == 1).all()
    assert drawn(labels, "frequency")[1] == {
        "model": "frequency",
        "gamma": 1.0,
        "positives": 1,
        "seed": 1200,
    }


def test_several_positives_are_drawn_without_replacement():
    """The reference draws one at a time, in proportion to the remaining weights."""
    weights = np.array([5.0, 3.0, 1.0, 1.0])
    labels = SparseLabels.from_dense(np.ones((40_000, 4), np.int8))
    chosen = (
        draw_weighted(labels, np.tile(np.log(weights), 40_000), positives=2).rows(np.arange(40_000))
        == 1
    )
    for c in range(4):
        first = weights[c] / 10
        second = sum(weights[d] / 10 * weights[c] / (10 - weights[d]) for d in range(4) if d != c)
        assert chosen[:, c].mean() == pytest.approx(first + second, abs=0.01)


def test_weight_zero_is_drawn_only_if_nothing_else_is_left():
    labels = SparseLabels.from_dense(np.ones((200, 3), np.int8))
    log_weights = np.tile([-np.inf, 0.0, -np.inf], 200)
    one, two = (
        draw_weighted(labels, log_weights, positives=k).rows(np.arange(200)) for k in (1, 2)
    )
    assert (one == [0, 1, 0]).all() and (two[:, 1] == 1).all()
    assert 60 < (two[:, 0] == 1).sum() < 140


def test_seeds():
    labels = np.ones((100, 5), np.int8)
    assert (drawn(labels, "frequency", 1)[0] != drawn(labels, "frequency", 2)[0]).any()


def test_unknown_labels_cannot_be_drawn_from():
    with refused("complete labels"):
        draw_weighted(SparseLabels.from_dense([[1, 0]]), np.zeros(1))


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (
            "random",
            "'random' is not an observation model; "
            "the models are uniform, frequency, size and file:PATH",
        ),
        ("", "'' is not an observation model"),
        (
            "uniform:gamma=1",
            "'gamma=1' is not an option of uniform; the options are positives, negatives",
        ),
        ("uniform:positives=1.5", "'positives=1.5': give a whole number"),
        ("uniform:positives=-1", "must not be below 0"),
        ("frequency:gamma", "'gamma': give a number"),
        ("frequency:gamma=inf", "give a finite number"),
        ("file:", "write file:PATH"),
    ],
)
def test_texts_that_describe_no_model_are_refused(text, part):
    with pytest.raises(UserError) as caught:
        Observation.parse(text)
    assert part in str(caught.value)


@given(hnp.arrays(np.int8, (6, 5), elements=st.sampled_from([1, 0, -1])))
def test_looking_up_single_entries(labels):
    rows, columns = np.indices(labels.shape).reshape(2, -1)
    np.testing.assert_array_equal(
        SparseLabels.from_dense(labels).lookup(rows, columns), labels.ravel()
    )


BOX = "<object><name>{}</name><difficult>{}</difficult><bndbox>{}</bndbox></object>"


def box(name, width, height, difficult=0):
    sides = f"<xmin>1</xmin><ymin>1</ymin><xmax>{width}</xmax><ymax>{height}.0</ymax>"
    return BOX.format(name, difficult, sides)


@pytest.fixture
def voc(tmp_path):
    """Three images.

    They show large dogs with a small and a difficult person; a car; a person with unlabelled
    things.
    """
    home = tmp_path / "VOC2012"
    (home / "Annotations").mkdir(parents=True)
    objects = {
        "1": [
            box("dog", 20, 10),
            box("dog", 5, 2),
            box("person", 3, 10),
            box("head", 9, 9),
            box("person", 9, 9, 1),
        ],
        "2": [box("car", 4, 4)],
        "3": [box("person", 10, 10), box("dog", 9, 9, difficult=1), box("tvmonitor", 2, 2)],
    }
    for image, boxes in objects.items():
        (home / "Annotations" / f"{image}.xml").write_text(
            f"<annotation>{''.join(boxes)}</annotation>"
        )
    labels = np.full((3, 20), -1, np.int8)
    for row, name in ((0, "dog"), (0, "person"), (1, "car"), (2, "person")):
        labels[row, CLASSES.index(name)] = 1
    return LabelTable(["1.jpg", "2.jpg", "3.jpg"], CLASSES, labels, root=home / "JPEGImages")


def test_areas_of_voc(voc):
    np.testing.assert_array_equal(areas("voc", voc), [210, 30, 16, 100])  # dog, person; car; person


def test_size_draws_in_proportion_to_area(voc):
    many = voc.take(np.zeros(4000, int))
    observed, about = Observation.parse("size").draw(many, source="voc")
    assert observed.counts(1)[CLASSES.index("dog")] / 4000 == pytest.approx(210 / 240, abs=0.02)
    assert about == {"model": "size", "gamma": 1.0, "positives": 1, "without_area": 0, "seed": 1200}


def test_a_positive_without_boxes_is_counted(voc):
    (voc.root.parent / "Annotations" / "1.xml").write_text(
        f"<annotation>{box('person', 2, 2)}</annotation>"
    )
    observed, about = Observation.parse("size").draw(voc, source="voc")
    assert about["without_area"] == 1 and observed.rows([0])[0, CLASSES.index("person")] == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "1.xml: No such file"),
        ("<annotation>", "1.xml: not a VOC annotation"),
        (f"<annotation>{BOX.format('dog', 0, '')}</annotation>", "1.xml: not a VOC annotation"),
    ],
)
def test_damaged_annotations(voc, content, message):
    path = voc.root.parent / "Annotations" / "1.xml"
    path.unlink() if content is None else path.write_text(content)
    with refused(message):
        areas("voc", voc)


def coco_file(root, split, boxes):
    content = {
        "categories": [{"id": 7, "name": "dog"}, {"id": 3, "name": "cat"}],
        "images": [{"id": i, "file_name": f"{i}.jpg"} for i in {image for image, *_ in boxes}],
        "annotations": [
            {"image_id": i, "category_id": c, "bbox": b, "segmentation": []} for i, c, b in boxes
        ],
    }
    (root / "annotations").mkdir(exist_ok=True)
    (root / "annotations" / f"instances_{split}.json").write_text(json.dumps(content))


def test_areas_of_coco(tmp_path):
    coco_file(
        tmp_path,
        "train2014",
        [(9, 7, [0, 0, 2, 3]), (9, 3, [1, 1, 5, 5]), (9, 7, [0, 0, 1, 1]), (10, 3, [0, 0, 1, 4])],
    )
    coco_file(tmp_path, "val2014", [(1, 7, [0, 0, 2, 2])])
    table = read("coco", tmp_path)["train"]
    assert list(table.items) == ["train2014/10.jpg", "train2014/9.jpg"]
    np.testing.assert_array_equal(areas("coco", table), [4, 7, 25])
    experiment = load("coco", tmp_path, observe="size:positives=2", val_fraction=0)
    assert experiment.observation["model"] == "size"
    assert experiment.observed.sparse.counts(1).tolist() == [1, 2]
    coco_file(tmp_path, "train2014", [(9, 7, [0, 0])])
    with refused("not the layout of an instances file"):
        areas("coco", table)


def test_data_without_boxes():
    with pytest.raises(UserError, match="cub has no boxes"):
        areas("cub", table_of(np.ones((1, 1), np.int8)))


@pytest.fixture
def data(write):
    rows = "".join(f"{i}.jpg,a|b{'|c' if i % 2 else ''}\n" for i in range(10))
    return write("image,label\n" + rows)


def test_from_a_file(data, write):
    rows = "".join(
        f"{i}.jpg,{'b' if i % 2 else 'a'},{'c' if i == 4 else ''}\n" for i in reversed(range(10))
    )
    path = write("image,label,negative\n" + rows, "seen.csv")
    experiment = load(data, labels="complete", observe=f"file:{path}")
    expected = np.zeros((10, 3), np.int8)
    expected[np.arange(10), np.arange(10) % 2] = 1
    expected[4, 2] = -1
    np.testing.assert_array_equal(experiment.observed.labels, expected)
    assert experiment.observation == {"model": "file", "path": str(path), "contradicting": 0}


def test_contradictions_of_a_file_are_counted(data, write):
    path = write("image,label\n" + "".join(f"{i}.jpg,c\n" for i in range(10)), "seen.csv")
    experiment = load(data, labels="complete", observe=f"file:{path}")
    assert experiment.observation["contradicting"] == 5


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("0.jpg,a\n", r"seen.csv: 9 of 10 items are not in it, first '1.jpg'"),
        (
            "".join(f"{i}.jpg,a\n" for i in range(11)),
            r"1 items that are not .* '10.jpg'; leave them out, or mark",
        ),
        (
            "".join(f"{i}.jpg,dog\n" for i in range(10)),
            r"class 'dog' is not one of the data's 3 classes",
        ),
    ],
)
def test_files_that_do_not_match(data, write, rows, message):
    path = write("image,label\n" + rows, "seen.csv")
    with refused(message):
        load(data, labels="complete", observe=f"file:{path}")


def test_a_file_of_only_test_rows_or_of_known_negatives_is_refused(data, write, tmp_path):
    rows = write(
        "image,label,split\n" + "".join(f"{i}.jpg,a,test\n" for i in range(10)), "seen.csv"
    )
    labels, items = np.tile(np.int8([1, -1, -1]), (10, 1)), [f"{i}.jpg" for i in range(10)]
    np.savez(
        tmp_path / "seen.npz",
        x=np.zeros((10, 2), np.float32),
        labels=labels,
        classes=list("abc"),
        items=items,
    )
    for path, message in (
        (rows, "no training rows"),
        (tmp_path / "seen.npz", "most labels are known negatives"),
    ):
        with refused(message):
            load(data, labels="complete", observe=f"file:{path}")


def test_duplicate_items_are_refused(tmp_path):
    def arrays(name, items):
        labels = np.eye(5, 2, dtype=np.int8)
        np.savez(
            tmp_path / name, x=np.eye(5, 2), labels=labels, classes=["a", "b"], items=list(items)
        )
        return tmp_path / name

    once = arrays("once.npz", "pqrst")
    twice = arrays("twice.npz", "ppqrs")
    other = arrays("other.npz", "pqrsp")
    for data, path, where in (
        (twice, twice, "the data"),
        (once, other, r"other\.npz"),
        (twice, once, "the data"),
    ):
        with refused(f"{where}: item 'p' appears twice; .* give each row its own"):
            load(data, labels="complete", observe=f"file:{path}")


def test_training_and_validation_rows_of_a_file_are_joined(data, write):
    rows = "".join(f"{i}.jpg,a,{'val' if i % 3 else 'train'}\n" for i in range(10))
    path = write("image,label,split\n" + rows, "seen.csv")
    experiment = load(data, labels="complete", observe=f"file:{path}")
    assert experiment.observed.sparse.counts(1).tolist() == [10, 0, 0]


def test_loading_records_the_model(data):
    whole = read(data, labels="complete")["train"].sparse
    experiment = load(
        data, labels="complete", observe="uniform:positives=2,negatives=1", observe_seed=5
    )
    np.testing.assert_array_equal(
        experiment.observed.labels, draw(whole, 5, 2, 1).rows(np.arange(10))
    )
    assert experiment.observation == {"model": "uniform", "positives": 2, "negatives": 1, "seed": 5}
    assert load(data).observation == {"model": "given"}
    with pytest.raises(UserError, match="draws from complete labels"):
        load(data, observe="frequency")
