import csv
import io
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from spml.data.names import text_of
from spml.errors import UserError
from spml.use.predict import writers
from spml.use.predict.writers import Predicted, columns, format_of, writing

ROWS = Predicted(
    ["a.jpg", "caf\udce9,\n.jpg"], [["x", "y"], []], np.array([[0.5, 0.25], [1, 0]], np.float32)
)


def test_the_format_is_that_of_the_name_or_the_one_given():
    formats = {"a.csv": "csv", "b.JSONL": "jsonl", "c.parquet": "parquet", "-": "csv"}
    assert {name: format_of(Path(name)) for name in formats} == formats
    assert format_of(Path("-"), "jsonl") == "jsonl" and format_of(Path("x.txt"), "csv") == "csv"
    with pytest.raises(UserError, match="--format"):
        format_of(Path("x.txt"))
    with pytest.raises(UserError, match="standard output"):
        format_of(Path("-"), "parquet")


def test_a_class_named_like_another_column_has_its_own_column():
    assert columns(["dog", "cat"]) == ["dog", "cat"]
    names = columns(["image", "class:image", "tags", "x"])
    assert names == ["class:class:image", "class:image", "class:tags", "x"]
    assert len(set(names) | {"image", "tags"}) == 6


@pytest.mark.parametrize("classes", [["x", "y"], ["image", "tags"]])
def test_every_format_holds_the_same(tmp_path, classes):
    for kind in ("csv", "jsonl", "parquet"):
        with writing(tmp_path / f"p.{kind}", kind, classes) as write:
            write(ROWS)
            write(ROWS)
    with (tmp_path / "p.csv").open(newline="", encoding="utf-8") as file:
        header, *cells = csv.reader(file)
    lines = (tmp_path / "p.jsonl").read_text(encoding="utf-8").splitlines()
    lines = [json.loads(line) for line in lines]
    table = pq.read_table(tmp_path / "p.parquet")
    assert header == table.column_names == ["image", "tags", *columns(classes)]
    assert len(cells) == len(lines) == len(table) == 4
    for cell, line, row in zip(cells, lines, table.to_pylist(), strict=True):
        values = list(line["probabilities"].values())
        assert list(line["probabilities"]) == classes
        assert cell[0] == line["image"] == row["image"]
        assert cell[1] == "|".join(line["tags"]) == row["tags"]
        assert [float(value) for value in cell[2:]] == values == list(row.values())[2:]
    assert cells[1][0] == "caf\\udce9,\n.jpg"


COMPUTED = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "'=1"]


@pytest.mark.parametrize("out", ["p.csv", "-"])
@pytest.mark.parametrize("unescaped", [False, True])
def test_cells_that_a_spreadsheet_computes_are_text_in_csv(tmp_path, capsys, out, unescaped):
    names = [*COMPUTED, "it's", "'a"]
    rows = Predicted(names, [[name, "b"] for name in names], np.full((9, 9), 0.5, np.float32))
    out = tmp_path / out if out != "-" else Path(out)
    with writing(out, "csv", names, unescaped=unescaped) as write:
        write(rows)
    text = capsys.readouterr().out if out == Path("-") else out.open(newline="").read()
    header, *lines = csv.reader(io.StringIO(text, newline=""))
    cells = [header[2:], [line[0] for line in lines], [line[1][:-2] for line in lines]]
    mark = "" if unescaped else "'"
    assert cells == [[*(mark + name for name in COMPUTED), "it's", "'a"]] * 3
    assert [text_of(cell) for cell in cells[0]] == names or unescaped


def test_tags_alone(tmp_path):
    rows = ROWS._replace(probabilities=None)
    for kind in ("csv", "jsonl", "parquet"):
        with writing(tmp_path / f"p.{kind}", kind, ["x", "y"], probabilities=False) as write:
            write(rows)
    assert (tmp_path / "p.csv").read_bytes().startswith(b"image,tags\r\na.jpg,x|y\r\n")
    first, _ = (tmp_path / "p.jsonl").read_text().splitlines()
    assert json.loads(first) == {"image": "a.jpg", "tags": ["x", "y"]}


def test_a_file_is_written_only_without_errors(tmp_path):
    (tmp_path / "p.csv").write_text("old")
    for kind in ("csv", "jsonl", "parquet"):
        with (
            pytest.raises(RuntimeError),
            writing(tmp_path / f"p.{kind}", kind, ["x", "y"]) as write,
        ):
            write(ROWS)
            raise RuntimeError
    assert [path.name for path in tmp_path.iterdir()] == ["p.csv"]
    assert (tmp_path / "p.csv").read_text() == "old"


def test_parquet_rows_are_written_in_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(writers, "GROUP", 4 * 5)  # of five rows
    with writing(tmp_path / "p.parquet", "parquet", ["x", "y"]) as write:
        for _ in range(8):
            write(ROWS)
    file = pq.ParquetFile(tmp_path / "p.parquet")
    assert [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)] == [6, 6, 4]


def test_standard_output_has_lines(capsys):
    with writing(Path("-"), "csv", ["x", "y"]) as write:
        write(ROWS)
    assert capsys.readouterr().out.startswith("image,tags,x,y\na.jpg,x|y,0.500000,0.250000\n")
