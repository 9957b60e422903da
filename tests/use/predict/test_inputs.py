import io
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spml.errors import DataError, UserError
from spml.model import load_model
from spml.use.predict.inputs import PATH_LIMIT, Inputs, listed


@pytest.fixture
def info(make_model):
    return load_model(make_model())[1]


def names(inputs, info, **more):
    return [item.name for item in Inputs(inputs, info, **more)]


def below(folder, info, **more):
    return [name.removeprefix(f"{folder}/") for name in names([folder], info, **more)]


def tree(folder, *files):
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(b"x")


def test_folders_are_walked_in_order_without_hidden_files(info, tmp_path):
    files = "b/2.jpg b/10.JPG a.png c.txt d/e/f.webp .hidden.jpg .git/x.png i.HEIC j.avif k.mov"
    tree(tmp_path / "p", *files.split())
    expected = "a.png b/10.JPG b/2.jpg d/e/f.webp i.HEIC j.avif"  # phone formats are reported later
    assert below(tmp_path / "p", info) == expected.split()


def test_links_are_followed_once_and_loops_not_at_all(info, tmp_path):
    tree(tmp_path / "p", "a/1.jpg", "b/2.jpg")
    tree(tmp_path, "elsewhere/3.jpg")
    links = {"a/up": "..", "b/a": "../a", "c": "../elsewhere", "d": "../elsewhere"}
    for link, target in links.items():
        (tmp_path / "p" / link).symlink_to(target)
    (tmp_path / "p" / "self.jpg").symlink_to("self.jpg")
    notes = []
    expected = ["a/1.jpg", "b/2.jpg", "b/a/1.jpg", "c/3.jpg", "self.jpg"]
    assert below(tmp_path / "p", info, note=notes.append) == expected
    assert len(notes) == 3 and all("already read; not followed" in note for note in notes)
    tree(tmp_path / "q", "z/1.jpg")
    (tmp_path / "q" / "a").symlink_to("z")  # the folder itself is read despite earlier links to it
    assert below(tmp_path / "q", info) == ["a/1.jpg", "z/1.jpg"]
    (tmp_path / "latest").symlink_to("q")
    for one in (tmp_path / "q", tmp_path / "latest"):  # a picture of two inputs is an item of each
        assert names([one, one], info) == 2 * names([one], info)


def test_a_name_that_no_file_can_have_does_not_stop_the_rest(info):
    reported = []
    assert names(["x" * 5000 + ".jpg", "a.jpg"], info, on_error=reported.append) == ["a.jpg"]
    assert len(reported) == 1
    assert "x.jpg: cannot be read (File name too long); check the path" in str(reported[0])


def test_standard_input_is_read_as_it_comes(info, monkeypatch):
    text = b"a.jpg\r\n\nb c.jpg\nlast.jpg"
    assert list(listed(io.BytesIO(text))) == ["a.jpg", "b c.jpg", "last.jpg"]
    assert list(listed(io.BytesIO(b"a\nb.jpg\0c.jpg\0"), null=True)) == ["a\nb.jpg", "c.jpg"]
    assert [os.fsencode(name) for name in listed(io.BytesIO(b"caf\xe9.jpg\n"))] == [b"caf\xe9.jpg"]

    class Endless:
        reads = 0

        def read1(self, count):
            self.reads += 1
            return b"x.jpg\n" * 100

    source = Endless()
    paths = listed(source)
    assert [next(paths) for _ in range(100)] == ["x.jpg"] * 100 and source.reads == 1
    with pytest.raises(DataError, match="without a line end"):
        list(listed(io.BytesIO(b"x" * (3 * PATH_LIMIT))))
    with pytest.raises(DataError, match=r"the paths end in NUL; use --null \(-0\)"):
        list(listed(io.BytesIO(b"a.jpg\0b.jpg\0")))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert names(["-"], info) == ["a.jpg", "b c.jpg", "last.jpg"]


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet", "pq"])
def test_an_image_of_a_table_counts_once_and_starts_from_its_folder(info, tmp_path, kind):
    images = ["a.jpg", "b.jpg", "a.jpg", "c.jpg"]
    if kind in ("csv", "tsv"):
        mark = {"csv": ";", "tsv": "\t"}[kind]
        lines = [f"{one}{mark}x\n" for one in ["Image", *images]]
        (tmp_path / f"t.{kind}").write_text("".join(lines))
    else:
        table = pa.table({"n": [1, 2, 3, 4], "image": pa.array(images).dictionary_encode()})
        pq.write_table(table, tmp_path / f"t.{kind}")
    items = list(Inputs([tmp_path / f"t.{kind}"], info))
    assert [item.name for item in items] == [f"{tmp_path}/{name}.jpg" for name in "abc"]
    assert items[2].where.endswith(", row 4: " if "p" in kind else ", line 5: ")
    assert len(names([tmp_path / f"t.{kind}"] * 2, info)) == 6  # each input counts


def test_paths_of_a_table_from_windows_are_found(info, tmp_path):
    tree(tmp_path, "my photos/a.jpg", "odd\\b.jpg")
    (tmp_path / "t.csv").write_text("image\nmy photos\\a.jpg\nodd\\b.jpg\n")
    expected = [f"{tmp_path}/my photos/a.jpg", f"{tmp_path}/odd\\b.jpg"]
    assert names([tmp_path / "t.csv"], info) == expected


def test_a_row_or_an_input_that_cannot_be_read_is_reported_and_the_rest_continues(info, tmp_path):
    (tmp_path / "rows.csv").write_bytes(b"image,x\na.jpg,1\n,2\nb.jpg\nc\xff.jpg,3\nd.jpg,4\n")
    (tmp_path / "none.csv").write_text("path\na.jpg\n")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "broken.parquet").write_text("no parquet")
    pq.write_table(pa.table({"image": [1, 2]}), tmp_path / "numbers.parquet")
    pq.write_table(pa.table({"image": ["a.jpg", None]}), tmp_path / "null.parquet")
    (tmp_path / "nothing").mkdir()
    inputs = "rows.csv none.csv empty.csv broken.parquet numbers.parquet null.parquet gone.csv"
    paths = [tmp_path / name for name in [*inputs.split(), "nothing", "e.jpg"]]
    reported = []
    expected = [f"{tmp_path}/{name}.jpg" for name in "adae"]
    assert names(paths, info, on_error=reported.append) == expected
    messages = [
        ("rows.csv, line 3", "image cell is empty"),
        ("rows.csv, line 4", "1 cells, the header has 2"),
        ("rows.csv, line 5", "not UTF-8"),
        ("none.csv, line 1", "no column 'image'"),
        ("empty.csv", "empty file"),
        ("broken.parquet", "not a sound Parquet file"),
        ("numbers.parquet", "must hold strings"),
        ("null.parquet, row 2", "image cell is empty"),
        ("gone.csv", "No such file"),
        ("nothing", "no pictures in this folder"),
    ]
    for error, (name, text) in zip(map(str, reported), messages, strict=True):
        assert name in error and text in error and "\n" not in error
    with pytest.raises(DataError, match="line 3"):
        names([tmp_path / "rows.csv"], info)
    with pytest.raises(UserError, match="nothing to predict"):
        Inputs([], info)


def test_arrays_must_be_what_the_model_takes(make_model, info, tmp_path):
    features = load_model(make_model("vectors", features=4))[1]
    np.save(tmp_path / "v.npy", np.arange(12, dtype=np.float32).reshape(3, 4))
    np.savez(tmp_path / "p.npz", x=np.zeros((2, 8, 8, 3), np.uint8), items=np.array(["one", "two"]))
    assert names([tmp_path / "v.npy"], features) == ["v/0", "v/1", "v/2"]
    items = list(Inputs([tmp_path / "p.npz", "also.jpg"], info))
    assert [item.name for item in items] == ["one", "two", "also.jpg"]
    assert items[0].x.shape == (3, 8, 8)
    with pytest.raises(UserError, match="this model takes pictures"):
        names([tmp_path / "v.npy"], info)
    with pytest.raises(UserError, match="takes x of 4 features"):
        names([tmp_path / "p.npz"], features)
    for other in ("a.jpg", "-", tmp_path):
        with pytest.raises(UserError, match=f"npy files of 4 features; {other} is something else"):
            Inputs([tmp_path / "v.npy", other], features)  # before anything is read
    np.save(tmp_path / "w.npy", np.zeros((3, 5), np.float32))
    with pytest.raises(UserError, match="5 features, the model takes 4"):
        names([tmp_path / "w.npy"], features)
    x = np.ones((3, 4), np.float32)
    x[1, 2] = np.nan
    np.savez(tmp_path / "nan.npz", x=x)
    reported = []
    assert names([tmp_path / "nan.npz"], features, on_error=reported.append) == ["nan/0", "nan/2"]
    assert len(reported) == 1


def test_a_folder_without_permission_is_reported(info, tmp_path, monkeypatch):
    tree(tmp_path / "p", "a/1.jpg", "b/2.jpg")
    really = Path.iterdir

    def guarded(folder):
        if str(folder).endswith("/a"):
            raise PermissionError(13, "Permission denied", str(folder))
        return really(folder)

    monkeypatch.setattr(Path, "iterdir", guarded)
    reported = []
    assert below(tmp_path / "p", info, on_error=reported.append) == ["b/2.jpg"]
    assert "p/a: cannot be read (Permission denied)" in str(reported[0])
