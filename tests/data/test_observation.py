"""Observation models: their draws, the frequencies, and the recorded description."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from spml.data import LabelTable, load, observe
from spml.data.observation import Observation, areas, draw, draw_weighted
from spml.data.readers.voc import CLASSES
from spml.data.table import SparseLabels
from spml.errors import UserError
from tests.data.conftest import refused, save_arrays, train

COMPLETE = hnp.arrays(
    np.int8,
    hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=8),
    elements=st.sampled_from([1, -1]),
)


def table_of(labels, items=None):
    names = [f"c{i}" for i in range(labels.shape[1])]
    return LabelTable(items or [f"{i}.jpg" for i in range(len(labels))], names, labels)


def drawn(labels, text, seed=1200):
    observed, record = Observation.parse(text).draw(table_of(np.asarray(labels, np.int8)), seed)
    return observed.rows(np.arange(len(labels))), record


def about(model, **options):
    """Return the record of a model."""
    return {"model": model, **options, "seed": 1200}


@given(COMPLETE, st.integers(0, 3), st.integers(0, 3))
def test_uniform_is_the_protocol(labels, positives, negatives):
    options = {"positives": positives, "negatives": negatives}
    observed, record = drawn(labels, f"uniform:positives={positives},negatives={negatives}")
    np.testing.assert_array_equal(observed, observe(labels, 1200, positives, negatives))
    assert record == about("uniform", **options)
    np.testing.assert_array_equal(drawn(labels, "uniform")[0], observe(labels))


@given(COMPLETE, st.integers(0, 3), st.sampled_from([-2.0, 0.0, 0.5, 1.0, 300.0]))
def test_weighted_draws_keep_the_requested_number_of_true_positives(labels, positives, gamma):
    text = f"frequency:gamma={gamma},positives={positives}"
    observed, record = drawn(labels, text)
    assert set(np.unique(observed)) <= {0, 1} and (labels[observed == 1] == 1).all()
    expected = np.minimum(positives, (labels == 1).sum(axis=1))
    np.testing.assert_array_equal((observed == 1).sum(axis=1), expected)
    np.testing.assert_array_equal(drawn(labels, text)[0], observed)
    assert record == about("frequency", gamma=gamma, positives=positives)


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
    assert drawn(labels, "frequency")[1] == about("frequency", gamma=1.0, positives=1)


def test_several_positives_are_drawn_without_replacement():
    """The reference draws one at a time, in proportion to the remaining weights."""
    weights = np.array([5.0, 3.0, 1.0, 1.0])
    labels = SparseLabels.from_dense(np.ones((40_000, 4), np.int8))
    observed = draw_weighted(labels, np.tile(np.log(weights), 40_000), positives=2)
    chosen = observed.rows(np.arange(40_000)) == 1
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


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("random", "the models are uniform, frequency, size and file:PATH"),
        ("", "'' is not an observation model"),
        ("uniform:gamma=1", "is not an option of uniform; the options are positives, negatives"),
        ("uniform:positives=1.5", "'positives=1.5': give a whole number"),
        ("uniform:positives=-1", "must not be below 0"),
        ("frequency:gamma", "'gamma': give a number"),
        ("frequency:gamma=inf", "give a finite number"),
        ("file:", "write file:PATH"),
    ],
)
def test_texts_that_describe_no_model_are_refused(text, part):
    with pytest.raises(UserError, match=part):
        Observation.parse(text)


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
    dogs = [box("dog", 20, 10), box("dog", 5, 2)]
    people = [box("person", 3, 10), box("head", 9, 9), box("person", 9, 9, 1)]
    last = [box("person", 10, 10), box("dog", 9, 9, difficult=1), box("tvmonitor", 2, 2)]
    objects = {"1": dogs + people, "2": [box("car", 4, 4)], "3": last}
    for image, boxes in objects.items():
        text = f"<annotation>{''.join(boxes)}</annotation>"
        (home / "Annotations" / f"{image}.xml").write_text(text)
    labels = np.full((3, 20), -1, np.int8)
    for row, name in ((0, "dog"), (0, "person"), (1, "car"), (2, "person")):
        labels[row, CLASSES.index(name)] = 1
    return LabelTable(["1.jpg", "2.jpg", "3.jpg"], CLASSES, labels, root=home / "JPEGImages")


def test_areas_of_voc(voc):
    np.testing.assert_array_equal(areas("voc", voc), [210, 30, 16, 100])  # dog, person; car; person


def test_size_draws_in_proportion_to_area(voc):
    many = voc.take(np.zeros(4000, int))
    observed, record = Observation.parse("size").draw(many, source="voc")
    assert observed.counts(1)[CLASSES.index("dog")] / 4000 == pytest.approx(210 / 240, abs=0.02)
    assert record == about("size", gamma=1.0, positives=1, without_area=0)


def test_a_positive_without_boxes_is_counted(voc):
    text = f"<annotation>{box('person', 2, 2)}</annotation>"
    (voc.root.parent / "Annotations" / "1.xml").write_text(text)
    observed, record = Observation.parse("size").draw(voc, source="voc")
    assert record["without_area"] == 1 and observed.rows([0])[0, CLASSES.index("person")] == 1


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
    table = train("coco", tmp_path)
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


def listed(label, count=10, split=""):
    """Return rows of a table."""
    return "".join(f"{i}.jpg,{label}{split and ',' + split}\n" for i in range(count))


@pytest.fixture
def data(write):
    cells = ("a|b", "a|b|c")
    return write("image,label\n" + "".join(f"{i}.jpg,{cells[i % 2]}\n" for i in range(10)))


@pytest.fixture
def from_file(data, write):
    """Load the data with the observed labels of a table."""

    def loader(text):
        path = write(text, "seen.csv") if isinstance(text, str) else text
        return load(data, labels="complete", observe=f"file:{path}")

    return loader


def test_from_a_file(from_file, tmp_path):
    cells = [f"{'ab'[i % 2]},{'c' * (i == 4)}" for i in range(10)]
    lines = [f"{i}.jpg,{cells[i]}\n" for i in reversed(range(10))]
    experiment = from_file("image,label,negative\n" + "".join(lines))
    expected = np.zeros((10, 3), np.int8)
    expected[np.arange(10), np.arange(10) % 2] = 1
    expected[4, 2] = -1
    np.testing.assert_array_equal(experiment.observed.labels, expected)
    path = str(tmp_path / "seen.csv")
    assert experiment.observation == {"model": "file", "path": path, "contradicting": 0}


def test_contradictions_of_a_file_are_counted(from_file):
    assert from_file("image,label\n" + listed("c")).observation["contradicting"] == 5


def test_training_and_validation_rows_of_a_file_are_joined(from_file):
    rows = "".join(f"{i}.jpg,a,{'val' if i % 3 else 'train'}\n" for i in range(10))
    experiment = from_file("image,label,split\n" + rows)
    assert experiment.observed.sparse.counts(1).tolist() == [10, 0, 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("image,label\n0.jpg,a\n", "seen.csv: 9 of 10 items are not in it, first '1.jpg'"),
        ("image,label\n" + listed("a", 11), "1 items that are not .* '10.jpg'; leave them out, or"),
        (
            "image,label\n" + listed("dog"),
            "seen.csv, line 2: class 'dog' is not in .* \\(that of the data\\)",
        ),
        ("image,label,split\n" + listed("a", split="test"), "no training rows"),
    ],
)
def test_files_that_do_not_match(from_file, text, message):
    with refused(message):
        from_file(text)


def test_a_file_of_known_negatives(from_file, tmp_path):
    labels = np.tile(np.int8([1, -1, 0]), (10, 1))
    labels[1:] = [1, -1, -1]
    items = [f"{i}.jpg" for i in range(10)]
    experiment = from_file(save_arrays(tmp_path / "seen.npz", labels, items=items))
    np.testing.assert_array_equal(experiment.observed.labels, labels)
    assert experiment.observation["contradicting"] == 15  # b in all rows, c in half


def test_duplicate_items_are_refused(tmp_path):
    labels = np.eye(5, 2, dtype=np.int8)
    once, twice, other = (
        save_arrays(tmp_path / f"{name}.npz", labels, items=list(items))
        for name, items in (("once", "pqrst"), ("twice", "ppqrs"), ("other", "pqrsp"))
    )
    pairs = ((twice, twice, "the data"), (once, other, r"other\.npz"), (twice, once, "the data"))
    for data, path, where in pairs:
        with refused(f"{where}: item 'p' appears twice; .* give each row its own"):
            load(data, labels="complete", observe=f"file:{path}")


def test_loading_records_the_model(data):
    whole = train(data, labels="complete").sparse
    model = "uniform:positives=2,negatives=1"
    experiment = load(data, labels="complete", observe=model, observe_seed=5)
    expected = draw(whole, 5, 2, 1).rows(np.arange(10))
    np.testing.assert_array_equal(experiment.observed.labels, expected)
    assert experiment.observation == about("uniform", positives=2, negatives=1) | {"seed": 5}
    assert load(data).observation == {"model": "given"}
    with pytest.raises(UserError, match="draws from complete labels"):
        load(data, observe="frequency")
