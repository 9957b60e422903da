"""Parquet files: both forms, types, malformed cases with their rows, and fuzz."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spml.data import read
from tests.data.conftest import refused, rows, train

BOTH = "row 3: 'x' is both .* row 1"
TWO = {"image": ["a", "b"]}
THREE = {"image": ["a", "b", "a"], "label": ["x"] * 3}


@pytest.fixture
def save(tmp_path):
    def saver(**columns):
        path = tmp_path / "my.parquet"
        pq.write_table(pa.table(columns), path, row_group_size=2)
        return path

    return saver


def test_paths_from_windows(save):
    assert list(train(save(image=["p q\\a.jpg"], label=["dog"])).items) == ["p q/a.jpg"]


@pytest.mark.parametrize(
    "labels",
    [
        ["dog|cat", "bird", None, "dog"],
        [["dog", "cat"], ["bird"], [], ["dog", None]],
        pa.array(["dog|cat", "bird", "", "dog"]).dictionary_encode(),
        pa.array(["dog|cat", "bird", "", "dog"], pa.large_string()),
    ],
)
def test_long_form(save, labels):
    negative = [None, "dog", "cat", None]
    path = save(width=[1, 2, 3, 4], image=["a", "b", "c", "a"], label=labels, negative=negative)
    table = train(path)
    assert table.classes == ["bird", "cat", "dog"]
    assert rows(table) == {"a": [0, 1, 1], "b": [1, 0, -1], "c": [0, -1, 0]}
    assert table.root == path.parent
    negative = [None, ["dog"], ["cat", "dog"]]
    path = save(image=["a", "b", "c"], label=[["dog"], ["cat"], []], negative=negative)
    assert rows(train(path)) == {"a": [0, 1], "b": [1, -1], "c": [-1, -1]}


@pytest.mark.parametrize("kind", [pa.int8(), pa.float32(), pa.int64()])
def test_wide_form(save, kind, monkeypatch):
    monkeypatch.setattr("spml.data.readers.parquet.BATCH", 2)
    path = save(
        image=["a", "b", "c"],
        zebra=pa.array([1, None, -1], kind),
        split=["train", None, "val"],
        ant=pa.array([0, 1, 0], kind),
        owl=pa.array([None, np.nan, None], pa.float64(), from_pandas=False),
        bee=pa.array([True, False, None]),
    )
    tables = read(path)
    assert tables["train"].classes == ["zebra", "ant", "owl", "bee"]
    assert rows(tables["train"]) == {"a": [1, 0, 0, 1], "b": [0, 1, 0, 0]}
    assert rows(tables["val"]) == {"c": [-1, 0, 0, 0]}
    assert rows(read(path, labels="complete")["val"]) == {"c": [-1, -1, -1, -1]}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"file": ["a"], "label": ["dog"]}, "no column 'image'; the columns are 'file'"),
        ({"image": ["a"]}, "no column 'label'"),
        ({"image": [1], "label": ["dog"]}, "column 'image' holds int64; it must hold strings"),
        ({"image": ["a"], "label": [1]}, "row 1: label 1 is no text; store the names"),
        ({"image": ["a"], "label": [[1]]}, "row 1: label 1 is no text"),
        ({"image": ["a"], "label": ["dog"], "split": [0]}, "column 'split' holds int64"),
        (
            {"image": ["a"], "labels": ["dog"]},
            "row 1: 'dog' in column 'labels'.* class names 'label'",
        ),
        ({"image": ["a", None], "label": ["dog", "cat"]}, "row 2: the image cell is empty"),
        ({**THREE, "split": ["val", "train", "tset"]}, "row 3: split 'tset'.*'test'"),
        ({**THREE, "split": ["val", "train", "test"]}, "row 3: .* at row 1; keep"),
        ({**THREE, "label": ["x", "x", ""], "negative": ["", "", "x"]}, BOTH),
        ({**TWO, "cat": [1, 2]}, "row 2: 2 in column 'cat'; a label is 1, 0, -1 or empty"),
        ({**TWO, "cat": [1.0, 0.5]}, "row 2: 0.5 in column 'cat'"),
        ({**TWO, "cat": [1.0, np.inf]}, "row 2: .* in column 'cat'"),
        ({"image": pa.array([], pa.string()), "label": pa.array([], pa.string())}, "no rows"),
        ({"image": ["a"], "label": pa.array([None])}, "no row has a label"),
    ],
)
def test_malformed_tables(save, columns, message, monkeypatch):
    monkeypatch.setattr("spml.data.readers.parquet.BATCH", 2)
    with refused(rf"my\.parquet.*{message}"):
        read(save(**columns))


@pytest.mark.parametrize("content", [b"", b"hello", b"PAR1" * 4])
def test_files_that_are_no_parquet(write, content):
    with refused(r"my.parquet: not a sound Parquet file"):
        read(write(content, "my.parquet"))
