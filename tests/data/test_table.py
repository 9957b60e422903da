"""LabelTable and its sparse rows against dense arrays."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from spml.data.table import LabelTable, SparseLabels, concatenate
from tests.data.conftest import refused

DENSE = hnp.arrays(
    np.int8,
    hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=9),
    elements=st.sampled_from([1, 0, -1]),
)


def table_of(dense, **options):
    items = [f"{i}.jpg" for i in range(len(dense))]
    return LabelTable(items, [f"class {c}" for c in range(np.shape(dense)[1])], dense, **options)


@given(DENSE, st.data())
def test_rows_and_take(dense, data):
    index = data.draw(st.lists(st.integers(-len(dense), len(dense) - 1), max_size=20))
    table = table_of(dense)

    np.testing.assert_array_equal(table.rows(index), dense[np.array(index, int)])
    subset = table.take(index)
    np.testing.assert_array_equal(subset.labels, dense[np.array(index, int)])
    assert subset.items == [table.items[i] for i in index]


@given(DENSE)
def test_counts_positives_order_and_single_entries(dense):
    sparse = SparseLabels.from_dense(dense)
    rows, columns = np.indices(dense.shape).reshape(2, -1)
    np.testing.assert_array_equal(sparse.lookup(rows, columns), dense.ravel())
    for value in (1, 0, -1):
        np.testing.assert_array_equal(sparse.counts(value), (dense == value).sum(axis=0))
    everything = np.arange(len(dense))
    for fill in (0, -1):
        np.testing.assert_array_equal(
            sparse.positives(fill).rows(everything), np.where(dense == 1, 1, fill)
        )
    order = np.random.default_rng(0).permutation(dense.shape[1])
    np.testing.assert_array_equal(sparse.reorder(order).rows(everything)[:, order], dense)


def test_the_more_frequent_value_is_not_stored():
    assert SparseLabels.from_dense([[1, -1, -1], [-1, -1, 1]]).fill == -1
    assert SparseLabels.from_dense([[1, 0, 0], [-1, 0, 1]]).fill == 0
    assert len(SparseLabels.from_dense([[1, -1, -1], [-1, -1, 1]]).values) == 2


def test_masks_pick_rows():
    table = table_of([[1, 0], [0, 1], [-1, 1]], x=np.arange(6.0).reshape(3, 2))
    subset = table.take([True, False, True])
    assert subset.items == ["0.jpg", "2.jpg"]
    np.testing.assert_array_equal(subset.x, [[0, 1], [4, 5]])
    with pytest.raises(IndexError, match="mask"):
        table.rows([True, False])


@pytest.mark.parametrize("index", [[3], [-4]])
def test_rows_out_of_range(index):
    with pytest.raises(IndexError, match="the table has 3"):
        table_of([[1], [0], [0]]).rows(index)


def test_dense_labels_above_two_gib_are_refused():
    indptr = np.zeros(300_001, np.int64)
    sparse = SparseLabels(indptr, np.empty(0, np.int32), np.empty(0, np.int8), 0, 10_000)
    table = LabelTable([""] * 300_000, [str(c) for c in range(10_000)], sparse)

    with refused(r"2\.8 GiB.*\.rows"):
        _ = table.labels
    assert table.rows([0, 299_999]).shape == (2, 10_000)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([[1, 2]], "2 in row 0, column 1"),
        ([[0.5, 0]], "0.5 in row 0"),
        ([[np.nan, 0]], "nan"),
        ([1, 0], "two axes"),
    ],
)
def test_values_that_are_no_labels_are_refused(labels, message):
    with refused(message):
        SparseLabels.from_dense(labels)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ((["a"], ["x", "y"], [[1]]), "not items by classes"),
        ((["a", "b"], ["x"], [[1]]), "not items by classes"),
        ((["a"], [], np.empty((1, 0))), "no classes"),
        ((["a"], ["x", "x"], [[1, 0]]), "'x' appears twice"),
        ((["\udcff.png"], ["x"], [[1]]), r"item '\\udcff.png' is no text in UTF-8; rename it"),
        ((["a"], ["x"], [[1]], np.zeros((3, 2))), "x has 3 rows, the table 1"),
    ],
)
def test_parts_that_do_not_fit(parts, message):
    with refused(message):
        LabelTable(*parts[:3], x=parts[3] if len(parts) > 3 else None)


def test_names_may_be_arrays():
    table = LabelTable(np.array(["a"]), np.array(["x", "y"]), [[1, 0]])
    assert repr(table) == "LabelTable(1 items, 2 classes)"
    assert table.classes == ["x", "y"] and table.take([0]).items == ["a"]


@given(DENSE)
def test_concatenation(dense):
    table = table_of(dense, x=np.arange(len(dense))[:, None], root=Path("pictures"))
    both = concatenate(table, table.take([0]))

    np.testing.assert_array_equal(both.labels, np.concatenate([dense, dense[:1]]))
    np.testing.assert_array_equal(both.x[:, 0], [*range(len(dense)), 0])
    assert (both.items, both.root) == ([*table.items, table.items[0]], Path("pictures"))


def test_tables_of_different_kinds_are_not_joined():
    with refused("cannot be joined"):
        concatenate(table_of([[1, 0]]), table_of([[1, 0, 0]]))
    with refused("cannot be joined"):
        concatenate(table_of([[1, 0, 0]]), table_of([[1, -1, -1]]))


def test_with_labels_keeps_the_items():
    table = table_of([[1, -1], [-1, 1]], root=Path("pictures"))
    other = table.with_labels([[0, 0], [0, 1]])
    assert (other.items, other.root) == (table.items, table.root)
    np.testing.assert_array_equal(other.labels, [[0, 0], [0, 1]])
