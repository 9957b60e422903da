"""Hugging Face dataset folders, built by hand as its library writes them."""

import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from spml.data import read
from spml.data.readers.hub_export import export, main
from spml.errors import UserError
from tests.data.conftest import refused, rows, train

NAMES = {"names": ["dog", "cat", "bird"], "_type": "ClassLabel"}
PICTURE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
SPLIT_ROWS = "a.jpg,dog,train\nb.jpg,cat,Validation\nc.jpg,dog,test\nd.jpg,cat,\n"


def with_features(columns, **features):
    """Return a table with the descriptions of its columns."""
    about = json.dumps({"info": {"features": features}} if features else {})
    return pa.table(columns).replace_schema_metadata({"huggingface": about})


@pytest.fixture
def save(tmp_path):
    """Write like Dataset.save_to_disk: streams of a few rows each, and the features."""

    def saver(columns, name="set", info=None, shards=1, **features):
        table, folder = with_features(columns, **features), tmp_path / name
        folder.mkdir(parents=True, exist_ok=True)
        starts = [i * len(table) // shards for i in range(shards + 1)]
        for i in range(shards):
            part = table.slice(starts[i], starts[i + 1] - starts[i])
            file = folder / f"data-{i:05d}-of-{shards:05d}.arrow"
            with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, part.schema) as writer:
                writer.write_table(part, max_chunksize=2)
        (folder / "dataset_info.json").write_text(json.dumps({"features": info}))
        (folder / "state.json").write_text(json.dumps({"_data_files": [], "_split": None}))
        return folder

    return saver


@pytest.fixture
def save_parquet(tmp_path):
    def saver(name, table):
        path = tmp_path / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table if isinstance(table, pa.Table) else pa.table(table), path)

    return saver


def items(folder):
    return {split: list(table.items) for split, table in read(folder).items()}


def labels(folder):
    return rows(train(folder))


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("where", ["schema", "info"])
def test_saved_to_disk(save, tmp_path, shards, where):
    columns = {"image": ["a.jpg", "b.jpg", "c.jpg"], "label": [2, 0, -1], "id": [1, 2, 3]}
    described = {"label": NAMES} if where == "schema" else {"info": {"label": NAMES}}
    folder = save(columns, shards=shards, **described)
    tables = read(folder)
    assert list(tables) == ["train"]
    table = tables["train"]
    assert table.classes == ["dog", "cat", "bird"]
    assert rows(table) == {"a.jpg": [0, 0, 1], "b.jpg": [1, 0, 0], "c.jpg": [0, 0, 0]}
    assert table.root == folder and table.where(2) == f"{folder}, row 3: "
    assert train(folder, tmp_path).root == tmp_path
    assert train(folder, labels="complete").sparse.fill == -1


@pytest.mark.parametrize(
    "features",
    [[NAMES], {"feature": NAMES, "_type": "Sequence"}, {"feature": NAMES, "_type": "List"}],
)
def test_lists_of_class_labels(save, features):
    folder = save({"image": ["a", "b", "c"], "labels": [[0, 2], [], None]}, labels=features)
    assert labels(folder) == {"a": [1, 0, 1], "b": [0, 0, 0], "c": [0, 0, 0]}


@pytest.mark.parametrize(
    "cells",
    [
        ["dog|cat", "bird", None],
        [["dog", "cat"], ["bird"], [None]],
        pa.array(["dog|cat", "bird", ""], pa.large_string()),
    ],
)
def test_names(save, cells):
    table = train(save({"image": ["a", "b", "c"], "label": cells}))
    assert table.classes == ["bird", "cat", "dog"]
    assert rows(table) == {"a": [0, 1, 1], "b": [1, 0, 0], "c": [0, 0, 0]}


def test_names_of_class_labels_are_stripped(save):
    names = {"names": [" dog ", "a b", ""]}
    table = train(save({"image": ["a", "b"], "label": [0, 1]}, label=names))
    assert table.classes == ["dog", "a b"] and rows(table) == {"a": [1, 0], "b": [0, 1]}


def test_several_splits(save, tmp_path):
    for name, item in (("test", "c"), ("validation", "b"), ("train", "a")):
        save({"image": [item], "label": [1]}, f"set/{name}", label=NAMES)
    (tmp_path / "set/dataset_dict.json").touch()
    assert items(tmp_path / "set") == {"train": ["a"], "val": ["b"], "test": ["c"]}
    assert labels(tmp_path / "set") == {"a": [0, 1, 0]}


@pytest.mark.parametrize("inner", ["", "data/"])
def test_as_on_the_hub(save_parquet, tmp_path, inner):
    shards = {"train-00000-of-00002": "a", "train-00001-of-00002": "b"}
    shards |= {"test-00000-of-00001-0": "c"}
    for name, item in shards.items():
        save_parquet(f"set/{inner}{name}", {"image": [item], "label": ["dog"]})
    assert items(tmp_path / "set") == {"train": ["a", "b"], "test": ["c"]}


def test_a_single_file_may_have_any_name(save_parquet, tmp_path):
    save_parquet("set/data/mine", {"image": ["a"], "label": ["dog"]})
    assert items(tmp_path / "set") == {"train": ["a"]}


def test_pictures_with_metadata(tmp_path, write):
    write("file_name,label\na.jpg,dog\nsub/b.jpg,7\n", "set/metadata.csv")
    assert labels(tmp_path / "set") == {"a.jpg": [0, 1], "sub/b.jpg": [1, 0]}
    write('{"file_name": "a.jpg", "labels": ["dog", "cat"]}\n', "lines/train/metadata.jsonl")
    write('{"file_name": "b.jpg", "labels": ["cat"]}\n', "lines/validation/metadata.jsonl")
    tables = read(tmp_path / "lines")
    assert rows(tables["train"]) == {"train/a.jpg": [1, 1]}
    assert rows(tables["val"]) == {"validation/b.jpg": [1, 0]}
    assert tables["val"].root == tmp_path / "lines"


def test_numeric_names_stay_as_written(tmp_path, write):
    write("file_name,label\n1,01\n02,1\n3,NA\n4,\n", "set/metadata.csv")
    table = train(tmp_path / "set")
    assert table.classes == ["01", "1", "NA"]
    assert rows(table) == {"1": [1, 0, 0], "02": [0, 1, 0], "3": [0, 0, 1], "4": [0, 0, 0]}
    write("file_name,label\na,true\nb,2020-01-01\nc,1.0\n", "set/metadata.csv")
    assert train(tmp_path / "set").classes == ["1.0", "2020-01-01", "true"]
    write('{"features": {"label": {"names": ["cat", "dog"]}}}', "set/dataset_info.json")
    write("file_name,label\na,1\nb,0\n", "set/metadata.csv")
    assert labels(tmp_path / "set") == {"a": [0, 1], "b": [1, 0]}


def test_a_class_list_replaces_the_datasets_names(save):
    folder = save({"image": ["a", "b"], "label": [0, 2]}, label=NAMES)
    assert rows(train(folder, classes=["bird", "dog"])) == {"a": [0, 1], "b": [1, 0]}
    with refused("row 2: class 'bird' is not in the class list"):
        read(folder, classes=["dog"])


def test_bad_rows_are_reported(save):
    errors = []
    folder = save({"image": ["a", None, "c", "d"], "label": [0, 0, 9, -2]}, label=NAMES)
    assert rows(train(folder, on_error=errors.append)) == {"a": [1, 0, 0]}
    starts = [str(error).partition("row ")[2][:8] for error in errors]
    assert starts == ["2: the i", "3: label", "4: label"]


def test_a_column_gives_the_split_if_file_names_do_not(save_parquet, tmp_path, write):
    write(f"file_name,label,split\n{SPLIT_ROWS}", "set/metadata.csv")
    expected = {"train": ["a.jpg", "d.jpg"], "val": ["b.jpg"], "test": ["c.jpg"]}
    assert items(tmp_path / "set") == expected
    write("file_name,label,split\na.jpg,dog,1\nb.jpg,cat,2\n", "numbers/metadata.csv")
    assert list(read(tmp_path / "numbers")) == ["train"]
    write(f"file_name,label,split\n{SPLIT_ROWS}", "named/train/metadata.csv")
    assert list(read(tmp_path / "named")) == ["train"]
    columns = {"image": ["a.jpg", "b.jpg"], "label": ["dog", "cat"], "split": ["train", "val"]}
    save_parquet("one/data/test-00000-of-00001", columns)
    save_parquet("all/data/all", columns)
    assert list(read(tmp_path / "one")) == ["test"]
    assert list(read(tmp_path / "all")) == ["train", "val"]


def test_a_split_that_is_not_known_is_refused_before_a_picture_is_written(
    save_parquet, tmp_path, write
):
    write("file_name,label,split\na.jpg,dog,train\nb.jpg,cat,tets\n", "set/metadata.csv")
    with refused("set, row 2: split 'tets' is not train, val or test; did you mean 'test'"):
        read(tmp_path / "set")
    image = pa.array([{"bytes": b"any", "path": "a.jpg"}], PICTURE)
    save_parquet("held/all", {"image": image, "label": ["dog"], "split": ["../../elsewhere"]})
    with refused(r"row 1: split '\.\./\.\./elsewhere' is not train, val or test"):
        export(tmp_path / "held", tmp_path / "out" / "inner")
    assert not (tmp_path / "elsewhere").exists() and not (tmp_path / "out").exists()


def picture(shade, kind="PNG"):
    out = io.BytesIO()
    Image.fromarray(np.full((4, 4, 3), shade, np.uint8)).save(out, kind)
    return out.getvalue()


def test_pictures_by_path_in_an_image_column(save, tmp_path):
    paths = [{"bytes": None, "path": path} for path in ("/x/a.jpg", "b.jpg")]
    folder = save({"image": pa.array(paths, PICTURE), "label": ["dog", "cat"]})
    assert labels(folder) == {"/x/a.jpg": [0, 1], "b.jpg": [1, 0]}
    export(folder, tmp_path / "out")  # which writes only existing pictures
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["labels.csv"]
    written = train(tmp_path / "out/labels.csv").items
    assert set(written) == {"/x/a.jpg", str(folder / "b.jpg")}


def test_a_row_without_a_picture_is_reported_and_the_rest_read(save):
    errors = []
    column = pa.array([None, {"bytes": None, "path": "b.jpg"}], PICTURE)
    folder = save({"image": column, "label": ["dog", "cat"]})
    assert train(folder, on_error=errors.append).items == ["b.jpg"]
    assert "row 1: " in str(errors[0])


@pytest.fixture
def embedded(save_parquet, tmp_path):
    pictures = [(picture(1), "a.png"), (picture(2, "JPEG"), None)]
    pictures += [(picture(3), "c.tar"), (b"?", None)]
    column = pa.array([{"bytes": data, "path": path} for data, path in pictures], PICTURE)
    table = with_features({"image": column, "label": [2, 0, 2, -1]}, label=NAMES)
    save_parquet("set/data/train-00000-of-00002", table.slice(0, 2))
    save_parquet("set/data/test-00000-of-00001", table.slice(2, 2))
    return tmp_path / "set"


def test_embedded_pictures_are_refused_with_a_working_remedy(embedded, tmp_path, capsys):
    errors = []
    with refused(r"pictures are inside .*python -m spml.data.readers.hub_export .* OUT"):
        read(embedded, on_error=errors.append)
    assert errors == []
    assert main([str(embedded), str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out == (
        f"Written. Train with: spml train {tmp_path}/out/labels.csv "
        f"--classes {tmp_path}/out/classes.txt\n"
    )
    tables = read(tmp_path / "out/labels.csv", classes=tmp_path / "out/classes.txt")
    assert {split: rows(table) for split, table in tables.items()} == {
        "train": {"train/00000001.png": [0, 0, 1], "train/00000002.jpg": [1, 0, 0]},
        "test": {"test/00000003.png": [0, 0, 1], "test/00000004.img": [0, 0, 0]},
    }
    assert (tmp_path / "out/train/00000001.png").read_bytes() == picture(1)


def test_export_replaces_no_table_and_can_be_run_again(embedded, tmp_path, capsys):
    out = tmp_path / "out"
    export(embedded, out)
    (out / "train/00000001.png").write_bytes(b"mine")
    with pytest.raises(UserError, match="already there"):
        export(embedded, out)
    assert (out / "train/00000001.png").read_bytes() == b"mine"
    (out / "labels.csv").unlink()
    export(embedded, out)
    assert main(["one"]) == 2 and "give a dataset's folder" in capsys.readouterr().err
    assert main([str(tmp_path / "gone"), str(out / "x")]) == 2
    assert "gone: no Hugging Face dataset" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("image", "label", "message"),
    [
        (["a"], [1], "row 1: label 1 is no text; store the names"),
        (["a"], [[1]], "row 1: label 1 is no text; store the names"),
        (["a"], [0.5], "row 1: label 0.5 is no text"),
        ([1], ["x"], "column 'image' holds int64"),
        (["a"], [None], "no row has a label"),
    ],
)
def test_columns_that_do_not_fit(save, image, label, message):
    with refused(message):
        read(save({"image": image, "label": label}))


def test_columns_that_are_missing(save):
    with refused("columns are 'picture', 'label'; rename the column of pictures to 'image'"):
        read(save({"picture": ["a"], "label": ["x"]}))
    with refused("columns are 'image', 'tag'; rename the column of labels to 'label'"):
        read(save({"image": ["a"], "tag": ["x"]}))


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"dataset_dict.json": "", "extra/x.arrow": ""}, "split 'extra' is not"),
        ({"data/train-0-of-1.parquet": "x", "data/odd-0-of-1.parquet": "x"}, "split 'odd'"),
        ({"data/train.parquet": "x"}, "train.parquet: cannot be read"),
        ({"x.arrow": ""}, "x.arrow"),
        ({"x.arrow": "hello"}, "x.arrow"),
        ({"metadata.csv": "file_name,label\na,b,c\n"}, "metadata.csv: cannot be read"),
        ({"metadata.jsonl": "{"}, "metadata.jsonl: cannot be read"),
        ({"metadata.csv": ""}, "metadata.csv: cannot be read"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, write, files, message):
    for name, content in files.items():
        write(content, f"set/{name}")
    with pytest.raises(UserError, match=message):
        read(tmp_path / "set")


@pytest.mark.parametrize("column", ["image", "label"])
def test_text_offsets_beyond_the_file_are_refused(save, column):
    short = ["aa", "bb", "cc"]
    columns = {"image": short, "label": short} | {column: ["aaaaa", "bbbbb", "ccccc"]}
    folder = save(columns)
    file = folder / "data-00000-of-00001.arrow"
    offsets = np.array([0, 5, 10], np.int32).tobytes()
    content = file.read_bytes()
    assert content.count(offsets) == 1
    file.write_bytes(content.replace(offsets, np.array([0, 5, 10**6], np.int32).tobytes()))
    with refused("offset"):
        read(folder)


@pytest.mark.parametrize(
    "features", ["{", "[]", '{"info": 1}', '{"info": {"features": {"label": {"names": 3}}}}']
)
def test_unusual_column_descriptions_give_no_names(save_parquet, tmp_path, features):
    table = pa.table({"image": ["a"], "label": [0]})
    save_parquet("set/train", table.replace_schema_metadata({"huggingface": features}))
    with refused("label 0 is no text"):
        read(tmp_path / "set")
