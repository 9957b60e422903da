"""The splits of Hugging Face dataset folders that a column names."""

import pyarrow as pa
import pyarrow.parquet as pq

from spml.data import read
from spml.data.readers.hub_export import export
from tests.data.conftest import refused

PICTURE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
SPLIT_ROWS = "a.jpg,dog,train\nb.jpg,cat,Validation\nc.jpg,dog,test\nd.jpg,cat,\n"


def save(path, table):
    path.parent.mkdir(parents=True)
    pq.write_table(table, path)


def test_a_column_gives_the_split_if_file_names_do_not(tmp_path, write):
    write(f"file_name,label,split\n{SPLIT_ROWS}", "set/metadata.csv")
    tables = read(tmp_path / "set")
    assert {name: list(table.items) for name, table in tables.items()} == {
        "train": ["a.jpg", "d.jpg"],
        "val": ["b.jpg"],
        "test": ["c.jpg"],
    }
    write("file_name,label,split\na.jpg,dog,1\nb.jpg,cat,2\n", "numbers/metadata.csv")
    assert list(read(tmp_path / "numbers")) == ["train"]
    write(f"file_name,label,split\n{SPLIT_ROWS}", "named/train/metadata.csv")
    assert list(read(tmp_path / "named")) == ["train"]
    for place, named in (("data/test-00000-of-00001", True), ("data/all", False)):
        table = pa.table(
            {"image": ["a.jpg", "b.jpg"], "label": ["dog", "cat"], "split": ["train", "val"]}
        )
        save(tmp_path / f"{named}/{place}.parquet", table)
        assert list(read(tmp_path / f"{named}")) == (["test"] if named else ["train", "val"])


def test_a_split_that_is_not_known_is_refused_before_a_picture_is_written(tmp_path, write):
    write("file_name,label,split\na.jpg,dog,train\nb.jpg,cat,tets\n", "set/metadata.csv")
    with refused("set, row 2: split 'tets' is not train, val or test; did you mean 'test'"):
        read(tmp_path / "set")
    picture = {"bytes": b"any", "path": "a.jpg"}
    table = pa.table(
        {"image": pa.array([picture], PICTURE), "label": ["dog"], "split": ["../../elsewhere"]}
    )
    save(tmp_path / "held/all.parquet", table)
    with refused(r"row 1: split '\.\./\.\./elsewhere' is not train, val or test"):
        export(tmp_path / "held", tmp_path / "out" / "inner")
    assert not (tmp_path / "elsewhere").exists() and not (tmp_path / "out").exists()
