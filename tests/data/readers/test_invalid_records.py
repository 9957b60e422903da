"""Invalid records are reported once and leave no trace; damaged files give tables or an error."""

import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spml.data import LabelTable, read
from spml.data.check.check import check
from spml.data.check.fix import clean
from spml.errors import DataError, UserError
from tests.data.conftest import FUZZ, refused, train
from tests.data.conftest import rows as rows_of


def tolerant(path, **options):
    """Return the labels of each item by split, and the reported errors."""
    reported = []
    tables = read(path, **options, on_error=reported.append)
    labels = {split: rows_of(table) for split, table in tables.items()}
    return labels, [str(error).replace(f"{path}", path.name) for error in reported]


@pytest.mark.parametrize(
    ("row", "last", "left"), [('d,"big dog"', 6, ["z", "e"]), ("d,dog", 7, ["z"])]
)
def test_the_lines_inside_a_stray_quote_are_reported(write, row, last, left):
    labels, reported = tolerant(write(f'image,label\nz,cat\na,"dog\nb,cat\nc,dog\n{row}\ne,cat\n'))
    assert list(labels["train"]) == left
    assert [text.partition(";")[2] for text in reported] == [
        f" check the quotes and line ends of this row, which extends to line {last}"
    ]


def test_similar_names_are_searched_once_and_only_for_listed_errors(write, monkeypatch):
    looked_for = []

    def looked(name, known):
        looked_for.append(name)
        return "; did you mean 'dog'?"

    monkeypatch.setattr("spml.data.names.suggestion", looked)
    path = write("image,label\na,dog\n" + "".join(f"{i},dog{i % 30}\n" for i in range(90)))
    _, reported = tolerant(path, classes=["dog"])
    assert looked_for == [f"dog{i}" for i in range(20)]
    assert [text.endswith("(the names given); did you mean 'dog'?") for text in reported] == (
        [True] * 20 + [False] * 10
    ) * 3


def test_every_kind_of_bad_row_of_the_long_form(write):
    path = write(
        b"image,label,negative,split\n"  # 1
        b"a,dog,,\n"
        b"b,dog,,tset\n"
        b" ,dog,,\n"
        b"c,dog\n"  # 5
        b"d,caf\xe9,,\n"
        b"e,ca\0t,,\n"
        b'"f"x,dog,,\n'
        b"g,dgo,,\n"
        b"h,cat,cat,\n"  # 10
        b"a,,dog,\n"
        b"a,dog,,val\n"
        b"\n"
        b"i,cat,dog,val\n"
        b"j,cat,,,\n"
    )
    labels, reported = tolerant(path, classes=["dog", "cat"])

    assert labels == {"train": {"a": [1, 0]}, "val": {"i": [-1, 1]}}
    for line, part in {
        3: "split 'tset'",
        4: "image cell is empty",
        5: "2 cells, the header has 4",
        6: "0xe9 is not UTF-8",
        7: "NUL",
        8: "check the quotes",
        9: "did you mean 'dog'",
        10: "'cat' is both positive and negative for 'h' (see line 10)",
        11: "'dog' is both positive and negative for 'a' (see line 2)",
        12: "'a' is in 'val', but in 'train' at line 2",
        15: "5 cells, the header has 4",
    }.items():
        [one] = [text for text in reported if text.startswith(f"my.csv, line {line}: ")]
        assert part in one
    assert len(reported) == 11


@pytest.mark.parametrize(
    ("text", "expected", "lines"),
    [
        (
            "image,dog,cat,split\na,1,,\nb,yes,1,\nc,1,2,\nd,0,1,test\na,-1,0,\ne,0,1,\n",
            {"train": {"a": [1, 0], "e": [0, 1]}, "test": {"d": [0, 1]}},
            [3, 4, 6],
        ),
        (
            "image,label,negative\na,x,\na,y,x\na,x,\na,,x\nb,y,\n",
            {"train": {"a": [1, 0], "b": [0, 1]}},
            [3, 5],
        ),
        ("image,label,negative\na,x,x\na,y,\nb,x,\n", {"train": {"a": [0, 1], "b": [1, 0]}}, [2]),
        ("image,label,negative\na,x|y|z,x|y|z\nb,x,\n", {"train": {"b": [1, 0, 0]}}, [2]),
        ('image,label\na,x\n"b,x\nc,x\n', {"train": {"a": [1]}}, [3]),
        (b'image,label\n"a\n\xff\nb",x\nc,x\n', {"train": {"c": [1]}}, [3]),
        ("image,label,split\na,ant,x\na,dog,\nb,cat,\nb,bee,val\n", None, [2, 5]),
    ],
    ids=[
        *("wide", "the first of three contradictory rows is kept", "an item keeps valid records"),
        *("reported once", "a broken quote", "a bad line in a quoted cell", "nothing is left"),
    ],
)
def test_bad_rows_are_left_out(write, text, expected, lines):
    labels, reported = tolerant(write(text))
    assert labels == (expected or {"train": {"a": [0, 1], "b": [1, 0]}})
    assert [error.partition(":")[0] for error in reported] == [f"my.csv, line {n}" for n in lines]


def test_the_places_of_later_records_stay_right(write):
    table = train(write("image,dog,cat\nb,1,yes\na,1,\n"), on_error=lambda error: None)
    assert (list(table.items), table.labels.tolist()) == (["a"], [[1, 0]])
    assert table.where(0).endswith("line 3: ")


@pytest.mark.parametrize(
    "content", ["image,label,split\na,x,no\nb,y,no\n", "image,label,negative\na,x,x\n"]
)
def test_a_file_of_bad_rows_alone_is_refused(write, content):
    reported = []
    with refused("no valid line with a label remains"):
        read(write(content), on_error=reported.append)
    assert reported


def test_a_header_cannot_be_skipped(write):
    reported = []
    for content in (b"im\xe9ge,label\na,x\n", b"picture,label\na,x\n"):
        with refused("line 1"):
            read(write(content), on_error=reported.append)
    assert reported == []


@pytest.mark.parametrize("batch", [2, 65536])
def test_parquet(tmp_path, monkeypatch, batch):
    monkeypatch.setattr("spml.data.readers.parquet.BATCH", batch)
    path = tmp_path / "my.parquet"
    columns = {"image": ["a", "b", None, "d", "e"], "split": ["", "no", "", "val", ""]}
    pq.write_table(pa.table({**columns, "dog": [1, 1, 1, 1, 0], "cat": [0, 0, 0, 0.5, 1.0]}), path)
    labels, reported = tolerant(path)
    assert labels == {"train": {"a": [1, 0], "e": [0, 1]}}
    places = [text.partition(":")[0] for text in reported]
    assert places == [f"my.parquet, row {row}" for row in (2, 3, 4)]
    assert "0.5 in column 'cat'" in reported[2]

    pq.write_table(pa.table({**columns, "label": ["x", "y", "x", "x", "z"]}), path)
    labels, reported = tolerant(path, classes=["x"])
    assert labels == {"train": {"a": [1]}, "val": {"d": [1]}} and len(reported) == 3


def test_arrays(tmp_path):
    x = np.ones((6, 2))
    x[1, 1] = np.inf
    labels = np.array([[1, 0], [1, 0], [2, 0], [0, 1], [1, 1], [0, 3]])
    split = np.array(["train", "train", "val", "val", "tset", "no"])
    np.savez(tmp_path / "x.npz", x=x, labels=labels, classes=["a", "b"], split=split)
    valid, reported = tolerant(tmp_path / "x.npz")
    assert valid == {"train": {"0": [1, 0]}, "val": {"3": [0, 1]}}
    for text, part in zip(
        reported,
        ("x: row 1", "labels: 2 in row 2, column 0", "3 in row 5", "'tset' in row 4"),
        strict=True,
    ):
        assert part in text
    np.savez(tmp_path / "x.npz", x=x * np.inf, labels=labels, classes=["a", "b"])
    with refused("no valid row remains"):
        read(tmp_path / "x.npz", on_error=reported.append)


def test_folders(tmp_path, write):
    for name in ("dog/a.jpg", "dgo/b.jpg", "cat/c.jpg", "loose.jpg"):
        write("", f"pictures/{name}")
    labels, reported = tolerant(tmp_path / "pictures", classes=["dog", "cat"])
    assert labels == {"train": {"cat/c.jpg": [0, 1], "dog/a.jpg": [1, 0]}}
    assert "loose.jpg" in reported[0] and "did you mean 'dog'" in reported[1]


def test_check_counts_them_and_clean_leaves_them_out(write):
    reported = []
    tables = read(write("image,label,split\na,x,no\nb,x,\nc,x,\nd,x,\n"), on_error=reported.append)
    report = check(tables, unread=reported)
    assert [one.kind for one in report.errors] == ["record", "missing", "missing", "missing"]
    assert clean(tables, report).removed == {"record": 1, "missing": 3}


CELLS = [*("a", "b", "", "dog", "dog|cat", "cat", "1", "0", "-1", "yes"), *("train", "val", "tset")]
HEADS = ["image,label,split", "image,label,negative", "image,dog,cat", "image,label", "x"]
RECORD = st.lists(st.sampled_from([*CELLS, '"', "\xe9"]), min_size=1, max_size=4)
ROWS = st.lists(RECORD.map(lambda cells: ",".join(cells).encode()), max_size=8)
BYTES = st.lists(st.binary(max_size=4), max_size=8)


@FUZZ
@given(st.sampled_from(HEADS), ROWS, BYTES, st.sampled_from(["observed", "complete"]))
def test_any_rows_are_read_and_checked_or_refused(tmp_path: Path, head, rows, noise, kind):
    path = tmp_path / "fuzz.csv"
    path.write_bytes(b"\n".join([head.encode(), *rows, *noise]))
    reported = []
    try:
        tables = read(path, labels=kind, on_error=reported.append)
    except DataError as error:
        assert "fuzz.csv" in str(error)
        with pytest.raises(DataError):
            read(path, labels=kind)
        return
    assert all(isinstance(table, LabelTable) and len(table) for table in tables.values())
    assert all(isinstance(error, DataError) and "fuzz.csv" in str(error) for error in reported)
    report = check(tables, unread=reported, pictures=False)
    clean(tables, report)
    if reported:
        with pytest.raises(DataError):
            read(path, labels=kind)
    else:
        strict = read(path, labels=kind)
        assert {name: table.labels.tolist() for name, table in strict.items()} == {
            name: table.labels.tolist() for name, table in tables.items()
        }


ITEMS = ["a", "b", "c"]
LISTS = pa.table({"image": ITEMS, "labels": [["dog"], [], ["cat", None]]})
NUMBERS = pa.table({"image": ITEMS, "label": [0, 1, 2]})


def npz():
    labels = np.array([[1, 0], [0, 1], [-1, 1]], np.int8)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, x=np.eye(3), labels=labels, classes=np.array(["dog", "cat"]))
    return buffer.getvalue()


def parquet(table):
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()


def arrow(table):
    buffer = io.BytesIO()
    with pa.ipc.new_stream(buffer, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return buffer.getvalue()


LINES = '{"image": "a", "label": "dog"}\n{"image": "é", "label": null}\n'
NAMES = {"features": {"label": {"names": ["dog", "cat", "bird"]}}}
FILES = {  # the last file of each is damaged
    "npz": {"x.npz": npz()},
    "wide": {"x.parquet": parquet(pa.table({"image": ITEMS, "dog": [1, 0, -1]}))},
    "long": {"x.parquet": parquet(pa.table({"image": ITEMS, "label": ["dog|cat", None, "é"]}))},
    "hub parquet": {"set/train.parquet": parquet(LISTS)},
    "hub arrow": {"set/data.arrow": arrow(LISTS)},
    "hub lines": {"set/metadata.jsonl": LINES.encode()},
    "hub names": {
        "set/data.arrow": arrow(NUMBERS),
        "set/dataset_info.json": json.dumps(NAMES).encode(),
    },
}
DAMAGE = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=6)


@pytest.mark.parametrize("kind", FILES)
@FUZZ
@given(DAMAGE, st.booleans())
def test_damaged_files_give_tables_or_an_error(tmp_path, kind, damage, cut):
    for name, content in FILES[kind].items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    content = bytearray(path.read_bytes())
    for place, byte in damage:
        content[place % len(content)] = byte
    path.write_bytes(content[: damage[0][0] % len(content)] if cut else content)
    source = path.parent if kind.startswith("hub") else path
    try:
        assert train(source, on_error=lambda error: None).classes
    except UserError as error:
        assert str(source) in str(error)
