"""Every form that X and y may have, as tables."""

from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from spml.data import SparseLabels
from spml.errors import DataError, UserError
from spml.use.estimator.inputs import labels, paths, pictures, set_aside, table


def dense(y, classes=None):
    names, known = labels(y, classes)
    items = [str(i) for i in range(known.shape[0])]
    return names.tolist(), table(items, names, known).labels.tolist()


def test_lists_of_equal_length_are_indicator_rows_only_if_they_hold_only_labels():
    assert dense([[1, 0], [-1, 1]]) == ([0, 1], [[1, 0], [-1, 1]])
    classes = [[1, 2], [0, 1]]
    assert dense(classes) == ([0, 1, 2], [[0, 1, 1], [1, 1, 0]])
    assert dense([[1], [0]]) == ([0, 1], [[0, 1], [1, 0]])  # one number a row is a class
    assert dense([[1], [0]], ["a"]) == (["a"], [[1], [0]])  # unless there is one class
    assert dense([[1, 0], [1]]) == ([0, 1], [[1, 1], [0, 1]])
    assert dense([{"b", "a"}, [], "b"]) == (["a", "b"], [[1, 1], [0, 0], [0, 1]])


def test_a_column_of_lists_equals_a_list_of_lists():
    pandas = pytest.importorskip("pandas")
    lists = [["b", "a"], [], ["b"]]
    for rows in (lists, [np.array(names, str) for names in lists]):
        column = pandas.Series(rows, index=[7, 3, 5])
        for y in (rows, column, column.to_numpy()):
            assert dense(y) == (["a", "b"], [[1, 1], [0, 0], [0, 1]])
    assert dense(pandas.Series([[1, 0], [-1, 1]])) == dense([np.array([1, 0]), np.array([-1, 1])])
    assert dense(pandas.Series([[1, 0], [-1, 1]])) == ([0, 1], [[1, 0], [-1, 1]])
    with pytest.raises(DataError, match="None in row 1; no label at all is an empty list"):
        labels(pandas.Series([["a"], None]), None)


def test_sparse_rows_may_hold_zeros_and_be_in_any_order():
    y = sparse.coo_matrix(([1, -1, 0, 1], ([1, 0, 0, 0], [0, 2, 1, 0])), shape=(2, 3))
    assert dense(y, ["a", "b", "c"]) == (["a", "b", "c"], [[1, 0, -1], [1, 0, 0]])
    unsorted = sparse.csr_array(([1, 1, -1], [2, 0, 1], [0, 2, 3]), shape=(2, 3))
    assert dense(unsorted) == ([0, 1, 2], [[1, 0, 1], [0, -1, 0]])
    with pytest.raises(DataError, match="y holds 2; only 1, 0"):
        labels(sparse.csr_matrix([[0, 2]]), None)
    with pytest.raises(UserError, match="2 classes are named, y has 3 columns"):
        labels(y, ["a", "b"])


@pytest.mark.parametrize(
    ("y", "classes", "message"),
    [
        ([1.0, float("nan")], None, "NaN, infinity or None in row 1"),
        (["a", "b"], ["a"], "row 1 of y: 'b' is not among the 1 classes"),
        ([], None, "y is empty"),
        (np.zeros((2, 2, 2)), None, r"\(2, 2, 2\); give \(n, C\)"),
        (np.ones((2, 2), complex), None, "Complex data"),
        (None, None, "y is None"),
    ],
)
def test_invalid_y_is_refused(y, classes, message):
    with pytest.raises((DataError, UserError), match=message):
        labels(y, classes)
    assert dense(["a|b"], ["a|b"]) == (["a|b"], [[1]])  # a class listed in classes= is one name


def test_paths_and_pictures_are_distinguished():
    two = ["a.jpg", "b.jpg"]
    assert paths(["a.jpg", Path("b.jpg")]) == paths(np.array(two)) == two
    for other in ([], [[1.0]], np.zeros((2, 2)), np.array([["a"]]), ["a.jpg", 3]):
        assert paths(other) is None
    with pytest.raises(DataError, match="X is one path, 'a"):
        paths("a.jpg")
    x = np.arange(2 * 4 * 5 * 3, dtype=np.uint8).reshape(2, 4, 5, 3)
    assert np.array_equal(pictures(x), x.transpose(0, 3, 1, 2))
    assert pictures(pictures(x)) is not None
    assert pictures(np.zeros((2, 3))) is None
    for wrong in (x.astype(float), x[..., :2], x[:0]):
        with pytest.raises(DataError, match="pictures are uint8"):
            pictures(wrong)


def test_rows_are_set_aside_and_both_parts_have_labels():
    known = SparseLabels.from_dense(np.ones((10, 1), np.int8))
    for fraction, held in ((None, 0), (0.2, 2), (0.01, 1)):
        train, val = set_aside(known, fraction, 3)
        assert len(val) == held and sorted([*train, *val]) == [*range(10)]
    for fraction in (0, 1, -0.5):
        with pytest.raises(UserError, match="must be above 0 and below 1"):
            set_aside(known, fraction, 3)
    with pytest.raises(DataError, match="1 to train on; at least 2"):
        set_aside(known.take(np.arange(1)), None, 3)
    train, val = set_aside(known, 0.2, 3)
    for part in (train, val):
        few = np.ones((10, 1), np.int8)
        few[part] = 0
        with pytest.raises(DataError, match="one part has no label"):
            set_aside(SparseLabels.from_dense(few), 0.2, 3)
