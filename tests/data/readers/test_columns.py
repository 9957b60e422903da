"""Tables whose columns have other names, and columns of features."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spml.data import load, read
from spml.data.readers.columns import Columns
from spml.errors import DataError, UserError
from tests.data.conftest import refused, rows, train

SITES = "site,f1,f2,fern,oak\na,0.5,1,1,\nb,-2,3e2,,1\n"
SITE_COLUMNS = Columns(image="site", features="f1,f2")


@pytest.mark.parametrize(
    ("text", "columns", "expected"),
    [
        ("file,tags\na,dog\n", Columns("file", "tags"), {"a": [1]}),
        ('image,label\na,"x, y"\n', Columns(separator=","), {"a": [1, 1]}),
        ("image,label,negative\na,x;y,z\n", Columns(separator=";"), {"a": [1, 1, -1]}),
        ("File,file,label\nb,a,dog\n", Columns(image="file"), {"a": [1]}),
        ("image,label,other\na,1,cat\n", Columns(label="other"), {"a": [1]}),
        ("file,dog\na,1\n", Columns(image="file"), {"a": [1]}),
    ],
)
def test_other_names_of_columns(write, text, columns, expected):
    assert rows(train(write(text), columns=columns)) == expected


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ("file,tags\na,dog\n", Columns("fiel"), r"line 1: no column 'fiel' \(--image-column\)"),
        ("file,tags\na,dog\n", Columns("fiel"), "did you mean 'file'"),
        ("file,file\na,dog\n", Columns("file"), r"'file' \(--image-column\) appears twice"),
        ("file,tags\na,dog\n", None, "no column 'image'.* or give --image-column$"),
        ("a1,a2,ash\n1,2,1\n", None, r"no column 'image'.*--features 'a\[0-9\]\*'"),
        (SITES, None, r"no column 'image'.*--features 'f\[0-9\]\*'"),
        (SITES, Columns("site"), r"'0.5' in column 'f1'.*--features 'f\[0-9\]\*'"),
        ("image,elev,oak\na,0.5,1\n", None, "'0.5' in column 'elev'.*columns with --features$"),
        ("image,a,b,oak\na,0.5,2,1\n", Columns(features="b"), "'0.5'.* in --features too"),
        ("id,elev,oak\na,0.5,1\n", None, "no column 'image'.*columns with --features$"),
        (SITES, Columns(features="g*"), r"no column of features matches 'g\*'"),
        (SITES, Columns(features="f1,f2"), "'a' in column 'site'.*--image-column"),
        (SITES.replace("3e2", "x"), SITE_COLUMNS, "line 3: 'x' in column 'f2' is not a finite"),
        (SITES.replace("3e2", "1e99"), SITE_COLUMNS, "line 3: '1e99' in column 'f2' is not a fin"),
        (SITES.replace("3e2", ""), SITE_COLUMNS, "line 3: the cell in column 'f2' is empty"),
        (SITES.replace("b,", "a,"), SITE_COLUMNS, "'a' has other features than at line 2"),
    ],
)
def test_wrong_columns_are_refused(write, text, columns, message):
    with refused(message):
        read(write(text), columns=columns)


def test_features_are_numbers_in_the_order_of_the_columns(write):
    table = train(write(SITES), columns=SITE_COLUMNS)
    assert table.x.dtype == np.float32 and table.x.tolist() == [[0.5, 1], [-2, 300]]
    assert (table.feature_names, table.root) == (["f1", "f2"], None)
    assert (table.classes, rows(table)) == (["fern", "oak"], {"a": [1, 0], "b": [0, 1]})


@pytest.mark.parametrize("row", ["c,x,1,1,", "c,5,6,x,"], ids=["feature", "label"])
def test_an_invalid_row_leaves_no_features(write, row):
    errors = []
    text = SITES + f"{row}\nd,7,8,1,\n"
    table = train(write(text), columns=SITE_COLUMNS, on_error=errors.append)
    assert list(table.items) == ["a", "b", "d"] and table.x.tolist()[2] == [7, 8]
    assert [str(error).partition(": ")[2][:3] for error in errors] == ["'x'"]


@pytest.mark.parametrize(("header", "items"), [("id,", ["7", "8"]), ("", ["0", "1"])])
def test_rows_of_features_are_named_by_a_column_id_or_numbered(write, header, items):
    lines = [f"{cell}{rest}" for cell, rest in zip(("7,", "8,"), ("1,dog", "2,cat"), strict=True)]
    body = "\n".join(line if header else line.partition(",")[2] for line in lines)
    table = train(write(f"{header}x1,label\n{body}\n"), columns=Columns(features="x*"))
    assert list(table.items) == items and table.x.tolist() == [[1], [2]]


def test_files_of_splits_have_the_same_features(write):
    first = write(SITES + "c,1,1,1,\n", "a.csv")
    other = write(SITES.replace("a,", "x,").replace("b,", "y,"), "b.csv")
    experiment = load(first, val=other, columns=SITE_COLUMNS)
    assert experiment.observed.x.shape == (5, 2)
    assert experiment.observed.feature_names == ["f1", "f2"]
    swapped = write("site,f2,f1,fern,oak\nx,1,2,1,\n", "c.csv")
    with refused("its features are not those of"):
        load(first, val=swapped, columns=SITE_COLUMNS)


def test_columns_describe_tables_only(tmp_path):
    with pytest.raises(UserError, match="is not a file of yours"):
        read("digits", columns=Columns(image="file"))
    np.savez(tmp_path / "a.npz", x=np.zeros((2, 3)))
    with pytest.raises(UserError, match="describe a table"):
        read(tmp_path / "a.npz", columns=Columns(features="f*"))
    with pytest.raises(UserError, match="--label-separator is empty"):
        Columns(separator="")


def test_parquet_has_other_names_but_no_features(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"file": ["a"], "tags": ["x;y"], "f1": [0.5]}), path)
    assert rows(train(path, columns=Columns("file", "tags", ";"))) == {"a": [1, 1]}
    with pytest.raises(DataError, match="--features reads CSV files"):
        read(path, columns=Columns("file", "tags", features="f*"))
