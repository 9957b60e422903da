import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from spml.data import LabelTable, SparseLabels, load, read
from spml.errors import DataError, UserError
from spml.use.review.answers import merge, read_answers, training_words, with_answers
from tests.conftest import TINY, spml

HEAD = "image,class,answer\n"


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """A folder with twelve pictures, their table, and a run on it."""
    folder = tmp_path_factory.mktemp("answers")
    (folder / "photos").mkdir()
    rows = ["image,label,negative,split"]
    for i in range(12):
        name = ("red", "green", "blue")[i % 3]
        Image.new("RGB", (16, 16), name).save(folder / "photos" / f"{i}.png")
        absent = "green" if i == 0 else ""
        split = "train" if i < 8 else ("val", "test")[i % 2]
        rows.append(f"photos/{i}.png,{name},{absent},{split}")
    (folder / "photos.csv").write_text("\n".join(rows) + "\n")
    assert spml(f"train {folder}/photos.csv {TINY} --out {folder}/run") == 0
    return folder


def answers(tmp_path, *lines):
    path = tmp_path / "answers.csv"
    path.write_text(HEAD + "".join(f"{line}\n" for line in lines))
    return path


def test_answers_undo_the_apostrophe_against_spreadsheets(tmp_path):
    names = ["=1", "'=1", "-b", "'c"]
    table = LabelTable(names, ["+x", "y"], np.zeros((4, 2), np.int8))
    path = answers(tmp_path, "'=1,'+x,1", "''=1,+x,1", "-b,y,-1", "'c,y,1")
    assert read_answers(path, table) == [(0, 0, 1), (1, 0, 1), (2, 1, -1), (3, 1, 1)]


def test_entries_are_added_and_replaced_whatever_the_fill():
    rng = np.random.default_rng(0)
    for fill in (0, -1):
        shares = [0.2, 0.6, 0.2] if fill == 0 else [0.7, 0.1, 0.2]
        dense = rng.choice([-1, 0, 1], (9, 4), p=shares).astype(np.int8)
        sparse = SparseLabels.from_dense(dense)
        assert sparse.fill == fill
        entries = [(0, 0), (8, 3), (4, 2), (4, 1)]
        rows, columns = zip(*entries, strict=True)
        values = [1, -1, -1, 1]
        wanted = dense.copy()
        wanted[rows, columns] = values
        merged = with_answers(sparse, rows, columns, values)
        assert (merged.rows(np.arange(9)) == wanted).all()
        for row in np.split(merged.indices, merged.indptr[1:-1]):
            assert (np.diff(row) > 0).all()
    empty = SparseLabels.from_dense(np.zeros((2, 2), np.int8))
    assert (with_answers(empty, [1], [0], [1]).rows([0, 1]) == [[0, 0], [1, 0]]).all()
    assert with_answers(empty, [], [], []).rows([0, 1]).sum() == 0


def test_the_new_table_has_labels_and_answers_and_trains(photos, tmp_path, capsys, monkeypatch):
    lines = "photos/0.png,blue,1 photos/1.png,red,-1.0 photos/8.png,red,yes photos/0.png,red,1"
    file = answers(tmp_path, *lines.split())
    out = tmp_path / "new" / "labels.csv"
    (photos / "run" / "best" / "model.safetensors").unlink()  # labels and answers need no weights
    assert spml(f"review {photos}/run --answers {file} --out {out}") == 0
    output = capsys.readouterr().out
    assert "2 labels and 1 known negatives added, 1 were known" in output
    assert f"spml train {out}" in output
    new, old = read(out, labels="observed"), read(photos / "photos.csv", labels="observed")
    assert [(split, len(t)) for split, t in new.items()] == [(s, len(t)) for s, t in old.items()]
    place = {name: i for i, name in enumerate(new["train"].classes)}
    for split in new:
        wanted = old[split].labels.copy()
        if split == "train":
            wanted[0, place["blue"]], wanted[1, place["red"]] = 1, -1
        if split == "val":
            wanted[0, place["red"]] = 1
        assert (new[split].labels == wanted).all()
        for row, item in enumerate(new[split].items):
            here = (out.parent / item).resolve()
            assert here == (photos / old[split].items[row]).resolve() and here.is_file()
    assert out.read_text().splitlines()[0] == "image,label,negative,split"
    assert new["train"].rows([0])[0, place["green"]] == -1
    assert spml(f"train {out} {TINY} --out {tmp_path}/again") == 0
    assert spml(f"review {tmp_path}/again --out {tmp_path}/list") == 0


def test_the_new_table_finds_its_pictures_from_a_folder_that_is_a_link(photos, tmp_path):
    (tmp_path / "deep" / "disk").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "deep" / "disk")
    out = tmp_path / "link" / "labels.csv"
    merge(photos / "run", answers(tmp_path, "photos/0.png,blue,1"), out)
    table = read(out)["train"]
    assert table.file(0).resolve() == (photos / "photos" / "0.png").resolve()


def test_classes_that_the_table_would_lose_are_written_beside_it(photos, tmp_path, capsys):
    (tmp_path / "classes.txt").write_text("red\ngreen\nblue\nviolet\n")
    run, classes = tmp_path / "run", tmp_path / "classes.txt"
    assert spml(f"train {photos}/photos.csv --classes {classes} {TINY} --out {run}") == 0
    file = answers(tmp_path, "photos/2.png,red,1")
    assert spml(f"review {run} --answers {file}") == 0
    line = capsys.readouterr().out.splitlines()[-1]
    named = f"{tmp_path / 'labels.csv'} --classes {tmp_path / 'labels.classes.txt'} --method"
    assert line.startswith(f"train with: spml train {named}")
    new = load(tmp_path / "labels.csv", classes=tmp_path / "labels.classes.txt")
    assert list(new.classes)[3] == "violet"


def test_the_command_that_trains_again_has_the_settings_of_the_run():
    command = "spml train 'my photos.csv' --set q3=1.5 --root pictures --lr 0.1 --compile none"
    command += " --selection complete --no-fused-norm --out run"
    config = {"command": command, "method": "gr", "backbone": "tiny", "lr": 0.1, "size": 16}
    words = "--method gr --backbone tiny --size 16 --lr 0.1 --set q3=1.5 --compile none"
    assert training_words(config) == words.split()
    assert training_words({"method": "an", "size": None}) == ["--method", "an"]
    race = {"race": {"winner": "em 0.2"}, "method": "em", "lr": 0.1}
    assert training_words(race) == ["--method", "auto", "--lr", "0.1"]
    assert training_words({"command": "spml train x.csv --out run --no-flip"}) == ["--no-flip"]


@pytest.mark.parametrize("more", ["", "--root .", "--labels complete", "--classes names.txt"])
def test_a_test_file_is_named_again_or_written_to_the_table_if_it_needs_other_options(
    photos, tmp_path, capsys, monkeypatch, more
):
    monkeypatch.chdir(photos)
    (photos / "lists").mkdir(exist_ok=True)
    rows = Path("photos.csv").read_text().splitlines()
    place = photos / "lists" if "--root" in more else photos
    for split in ("train", "val", "test"):
        lines = [",".join(row.split(",")[:2]) for row in rows[1:] if row.endswith(split)]
        (place / f"{split}.csv").write_text("\n".join(["image,label", *lines]) + "\n")
    Path("names.txt").write_text("red\ngreen\nblue\tBlau\n")
    files = f"{place}/train.csv --val {place}/val.csv --test {place}/test.csv"
    assert spml(f"train {files} {more} {TINY} --out {tmp_path}/run") == 0
    name = "Blau" if "--classes" in more else "blue"
    file = answers(tmp_path, f"photos/10.png,{name},-1")
    capsys.readouterr()
    assert spml(f"review {tmp_path}/run --answers {file}") == 0
    command = capsys.readouterr().out.splitlines()[-1].removeprefix("train with: spml ")
    assert command.startswith("train ") and (" --test " in command) == (not more)
    assert spml(f"{command} --quiet --out {tmp_path}/again") == 0
    before, after = (np.load(tmp_path / name / "labels.npz") for name in ("run", "again"))
    order = [after["classes"].tolist().index(name) for name in before["classes"]]
    assert (after["test_truth"][:, order] == before["test_truth"]).all()


def test_arrays_keep_items_splits_and_complete_test_labels(finished, scenes_file, scenes, tmp_path):
    run = shutil.copytree(finished, tmp_path / "run")
    row, column = next(zip(*np.nonzero(scenes.observed.labels == 0), strict=True))
    name = scenes.classes[column]
    file = answers(tmp_path, f"{scenes.observed.items[row]},{name},-1")
    done = merge(run, file)
    assert done.path == tmp_path / "labels.npz"
    assert (done.positives, done.negatives, done.known) == (0, 1, 0)
    new = load(done.path)
    assert (new.observed.x == scenes.observed.x).all() and list(new.classes) == list(scenes.classes)
    assert (new.train_rows == scenes.train_rows).all() and (new.val_rows == scenes.val_rows).all()
    wanted = scenes.observed.labels.copy()
    wanted[row, column] = -1
    assert (new.observed.labels == wanted).all()
    assert (new.test.labels == scenes.test.labels).all()
    with pytest.raises(UserError, match=r"labels\.npz is already there"):
        merge(run, file)
    with pytest.raises(UserError, match=r"holds arrays, whose labels are written as \.npz"):
        merge(run, file, tmp_path / "labels.csv")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("0.png,blue,1 0.png,blue,-1", r"line 3: 'blue' of '.*0.png' is no, but yes in line 2"),
        ("0.png,red,-1", "line 2: 'red' of '.*0.png' is no, but it is a known positive"),
        ("0.png,green,1", "line 2: 'green' of '.*0.png' is yes, but it is a known negative"),
        ("9.png,red,1", "line 2: 'photos/9.png' is not in the run's train list"),
        ("'' 0.png,bleu,1", r"line 3: the run has no class 'bleu'; did you mean 'blue'\?"),
        ("0.png,blue,maybe", "line 2: 'maybe' is no answer; write 1 for yes or -1 for no"),
        ("0.png,blue", "line 2: 2 cells, the header has 3"),
        ("""'0.png,"blue,1'""", "line 2: .*check the quotes"),
        ("", "no answers; nothing was written"),
    ],
)
def test_a_wrong_answer_is_reported_with_its_line_and_nothing_is_written(
    photos, tmp_path, refused, lines, message
):
    file = answers(tmp_path, *(line and f"photos/{line}" for line in shlex.split(lines)))
    with pytest.raises(DataError, match=message):
        merge(photos / "run", file)
    refused(f"review {photos}/run --answers {file}")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["answers.csv"]


def test_files_that_hold_no_answers_are_refused(photos, tmp_path):
    for content, message in {
        b"": "line 1: the columns are none; give image,class,answer",
        b"image,label\n": "line 1: the columns are image,label",
        b"image,class,answer\n\xff,red,1\n": "line 2: byte 0xff is not UTF-8",
    }.items():
        (tmp_path / "a.csv").write_bytes(content)
        with pytest.raises(DataError, match=message):
            merge(photos / "run", tmp_path / "a.csv")
    with pytest.raises(DataError, match="No such file"):
        merge(photos / "run", tmp_path / "none.csv")
    with pytest.raises(UserError, match=r"holds picture files, whose labels are written as \.csv"):
        merge(photos / "run", tmp_path / "a.csv", tmp_path / "x.npz")
    (tmp_path / "labels.classes.txt").write_text("mine")
    with pytest.raises(UserError, match=r"labels\.classes\.txt is already there"):
        merge(photos / "run", answers(tmp_path, "photos/0.png,blue,1"))
    assert (tmp_path / "labels.classes.txt").read_text() == "mine"


def test_a_name_of_two_items_is_refused(tmp_path):
    table = LabelTable(["a", "a", "b"], ["x"], np.array([[1], [0], [0]]))
    with pytest.raises(DataError, match="line 2: 'a' names several items"):
        read_answers(answers(tmp_path, "a,x,1"), table)
    assert read_answers(answers(tmp_path, "b,x,1", "b,x,1"), table) == [(2, 0, 1)]


def test_answers_may_be_words(tmp_path):
    words = {"1": 1, "yes": 1, "Y": 1, "true": 1, "-1": -1, "No": -1, "n": -1, "FALSE": -1}
    table = LabelTable([f"{i}" for i in range(len(words))], ["x"], np.zeros((len(words), 1)))
    file = answers(tmp_path, *(f"{i},x, {word} " for i, word in enumerate(words)))
    assert [value for _, _, value in read_answers(file, table)] == list(words.values())


@pytest.mark.parametrize("sign", [",", ";", "\t"])
def test_answers_may_be_filled_into_the_list_of_suggestions(tmp_path, sign):
    table = LabelTable(["a", "b", "c"], ["x"], np.zeros((3, 1)))
    rows = ["rank,image,class,probability,answer", "1,a,x,0.9,1", "2,b,x,0.8,", "3,c,x,0.7, No "]
    for first in ("", f"sep={sign}\n"):
        text = first + "\n".join(rows).replace(",", sign)
        (tmp_path / "a.csv").write_text(text, encoding="utf-8-sig")
        assert read_answers(tmp_path / "a.csv", table) == [(0, 0, 1), (2, 0, -1)]
    (tmp_path / "a.csv").write_text("\n".join(rows[::2]))
    with pytest.raises(DataError, match="no answers; nothing was written"):
        read_answers(tmp_path / "a.csv", table)
