"""`spml check` from the command line."""

import numpy as np
import pytest
from PIL import Image

from tests.conftest import spml


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """Write photos.csv in the current folder, with a different picture for each image."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def writer(rows, header="image,label,split", without=()):
        (tmp_path / "photos.csv").write_text("\n".join([header, *rows]) + "\n")
        for shade, row in enumerate(rows):
            name = row.partition(",")[0]
            if name not in without and not (tmp_path / name).exists():
                pixels = np.random.default_rng(shade).integers(0, 255, (8, 8, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / name)
        return tmp_path

    return writer


@pytest.fixture
def check(capsys):
    """Check photos.csv, and return what is printed."""

    def run(options="", code=0):
        assert spml(f"check photos.csv {options}") == code
        return capsys.readouterr()

    return run


def sound(count=6):
    return [f"{i}.png,{'dog' if i % 2 else 'cat'},{'test' if i == 0 else ''}" for i in range(count)]


def test_sound_data(photos, check):
    photos(sound())
    out, err = check("--min-positives 1")
    assert err == "" and out.splitlines()[-1] == "No errors."
    cells = [line.split() for line in out.splitlines()]
    for row in ("train 5 5 1.00 0 0", "test 1 1 1.00 0 0", "dog 3 0"):
        assert row.split() in cells


@pytest.mark.parametrize(("split", "code"), [("train", 0), ("val", 2)])
def test_arrays_of_many_known_negatives_are_read_as_for_training(
    tmp_path, monkeypatch, capsys, split, code
):
    from spml.data import load
    from spml.errors import DataError

    monkeypatch.chdir(tmp_path)
    labels = np.array([[1, -1, -1], [-1, 1, 0], [1, -1, -1], [1, -1, -1], [-1, -1, -1]], np.int8)
    parts = np.array(["train", "train", "train", "val", split])
    labels[3, 0] = 1 if split == "train" else -1
    np.savez("a.npz", x=np.eye(5, 4), labels=labels, classes=np.array(["a", "b", "c"]), split=parts)
    assert spml("check a.npz --min-positives 0") == code
    out = capsys.readouterr().out
    assert "drawn for training" not in out and "the rest" not in out
    if code:
        assert "error: 1 lack of rows or labels" in out
        assert "the validation rows have no label" in out
        with pytest.raises(DataError, match="the validation rows have no label"):
            load("a.npz")
    else:
        assert load("a.npz").observed.labels.tolist() == labels[[0, 1, 2, 4, 3]].tolist()


def test_warnings_do_not_fail(photos, check):
    photos([*sound(), "x.png,,"])
    out, _ = check()
    assert "warning: 1 row without a positive label; " in out
    assert "photos.csv, line 8: 'x.png'" in out
    assert "No errors; warnings: 2 classes with few positives in train, 1 row without" in out


def test_errors_are_listed_then_summed_up(photos, check):
    folder = photos([*sound(), "gone.png,dog,", "bad.jpg,dog,"], without=("gone.png",))
    (folder / "bad.jpg").write_text("no picture")
    out, err = check(code=2)
    assert "error: 1 missing file; " in out
    assert "  photos.csv, line 8: gone.png: no such file\n" in out
    assert "error: 1 unreadable picture; " in out and "  photos.csv, line 9: bad.jpg: " in out
    assert err == (
        "spml: photos.csv: 2 problems: 1 missing file, 1 unreadable picture; "
        "fix them, or write a cleaned table with --fix OUT\n"
    )
    assert "1 problem: 1 missing file;" in check("--no-pictures", 2).err


def test_fix_is_not_offered_if_rows_are_missing(photos, check):
    photos(["a.png,dog,"])
    message = "spml: photos.csv: 1 problem: 1 lack of rows or labels; add some\n"
    assert check(code=2).err == message


@pytest.mark.parametrize(
    ("count", "rest"), [(20, None), (21, "  and 1 more"), (45, "  and 25 more")]
)
def test_twenty_problems_of_a_kind_are_listed(photos, capsys, count, rest):
    gone = [f"gone{i}.png" for i in range(count)]
    photos([*sound(), *(f"{name},dog," for name in gone)], without=gone)
    assert spml("check photos.csv") == 2
    lines = capsys.readouterr().out.splitlines()
    assert sum("no such file" in line for line in lines) == 20
    assert [line for line in lines if "more" in line] == ([rest] if rest else [])


def test_all_unreadable_rows_are_listed(photos, check):
    photos(
        [*sound(), "a.png,dog,tset", " ,dog,", "b.png,dog", "0.png,cat,train", "c.png,dog,"],
        without=(" ", "c.png"),
    )
    out, err = check(code=2)
    assert "error: 4 rows that cannot be read; fix or remove them\n" in out
    lines = [line for line in out.splitlines() if line.startswith("  photos.csv, line")]
    assert [line.split(":")[0][-2:].strip() for line in lines] == ["8", "9", "10", "11", "12"]
    assert err.startswith(
        "spml: photos.csv: 5 problems: 4 rows that cannot be read, 1 missing file; fix them, or"
    )


def test_problems_are_printed_before_reading_fails(photos, check):
    photos(["a.png,dog,tset", "b.png,dog,no"])
    out, err = check(code=2)
    assert "error: 2 rows that cannot be read" in out and "photos.csv, line 3: split 'no'" in out
    assert err == "spml: photos.csv: no valid line with a label remains\n"


def test_an_unreadable_file_is_one_line(photos, check):
    photos(["a.png,dog,"], header="picture,label,split")
    out, err = check(code=2)
    assert err.startswith("spml: photos.csv, line 1: no column 'image'")
    assert out == "" and err.count("\n") == 1


def test_files_of_the_other_splits(photos, check):
    folder = photos([*sound(), "v.png,dog,", "leak.png,cat,"])
    text = (folder / "photos.csv").read_text()
    (folder / "photos.csv").write_text(text.replace("v.png,dog,\n", ""))
    (folder / "more").mkdir()
    rows = ["image,label", "../v.png,dog", "../1.png,dog", "../copy.png,cat\n"]
    (folder / "more/val.csv").write_text("\n".join(rows))
    (folder / "copy.png").write_bytes((folder / "leak.png").read_bytes())
    out, _ = check("--val more/val.csv --fix clean.csv")
    assert "more/val.csv, line 3: " in out
    assert "is in val, but in train too (photos.csv, line 3)" in out
    assert "left out: 1 row that cannot be read, 1 picture in two splits" in out
    assert "v.png,dog,,val\n" in (folder / "clean.csv").read_text()
    assert spml("check clean.csv") == 0
    assert "--test names more/val.csv; give one of them" in check("--test more/val.csv", 2).err


def test_errors_that_fix_cannot_remove_are_reported(photos, check, capsys):
    folder = photos([*sound(), "copy.png,bird,"])
    (folder / "copy.png").write_bytes((folder / "1.png").read_bytes())
    out, err = check("--fix a.csv --labels complete", 2)
    assert "give --labels complete when you read it" in out
    assert err.startswith(
        "spml: a.csv: 1 copy of a picture with contradictory labels left in it; give --merge"
    )
    (folder / "2.png").unlink()
    photos(["1.png,dog,train", "2.png,cat,train", "3.png,cat,val"], without=("2.png",))
    assert spml("check photos.csv --fix b.csv") == 2
    assert capsys.readouterr().err.startswith("spml: b.csv: 1 training rows; at least 2")


def test_classes_without_labels_in_the_copy_are_reported(photos, check):
    photos([*sound(), "gone.png,bird,"], without=("gone.png",))
    assert "classes without a label: 'bird'\n" in check("--fix clean.csv").out


def test_a_class_list_fits_the_copy_too(photos, check, capsys):
    folder = photos(sound())
    (folder / "classes.txt").write_text("cat\tKatze\ndog\tHund\nbird\n")
    assert "classes without a label" not in check("--fix clean.csv --classes classes.txt").out
    assert spml("check clean.csv --classes classes.txt") == 0
    assert "Hund" in capsys.readouterr().out
    assert "1.png,dog,,train" in (folder / "clean.csv").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--fix photos.csv", "spml: photos.csv is already there"),
        ("--fix out.parquet", "ends in .csv"),
        ("--merge", "give --fix OUT too"),
        ("--size 0", "--size 0 must be at least 1"),
    ],
)
def test_invalid_options_are_refused_before_reading(photos, check, options, message):
    folder = photos(sound())
    before = (folder / "photos.csv").read_bytes()
    out, err = check(options, 2)
    assert out == "" and message in err
    assert (folder / "photos.csv").read_bytes() == before


def test_arrays(scenes_file, capsys, tmp_path):
    assert spml(f"check {scenes_file} --labels complete") == 0
    assert "drawn for training" in capsys.readouterr().out
    assert spml(f"check {scenes_file} --fix {tmp_path}/clean.csv") == 2
    assert "--fix does not apply to arrays" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_class_folders_and_the_files_they_leave_out(photos, capsys):
    folder = photos([])
    for i, name in enumerate(("cat/1.png", "cat/2.png", "dog/3.png", "dog/4.png")):
        (folder / "pets" / name).parent.mkdir(parents=True, exist_ok=True)
        shape, random = (8, 8 + i // 2, 3), np.random.default_rng(i // 3 * 3)
        pixels = random.integers(0, 255, shape, dtype=np.uint8)
        Image.fromarray(pixels).save(folder / "pets" / name)
    (folder / "pets/cat/note.txt").write_text("x")
    assert spml("check pets --fix clean.csv --merge") == 0
    out = capsys.readouterr().out
    assert "warning: pets: 1 files are no pictures" in out and "clean.csv: 3 rows written" in out
    assert "copies united with the first: 1\n" in out
    assert "pets/cat/1.png,cat,,train\n" in (folder / "clean.csv").read_text()


def test_control_characters_in_names_are_escaped(photos, check):
    photos([*sound(), "[red]\x1b[2Jx.png,d[bold]g,"], without=("[red]\x1b[2Jx.png",))
    out, _ = check(code=2)
    assert "\x1b" not in out and "[red]?[2Jx.png" in out and "d[bold]g" in out


def test_a_progress_bar_appears_only_on_a_terminal_after_a_delay(monkeypatch, capsys):
    from spml.cli.output import progress

    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    for patience, shown in ((60.0, False), (-1.0, True)):
        monkeypatch.setattr(progress, "PATIENCE", patience)
        with progress.step_bar() as advance:
            advance("decoding pictures", 1, 2)
        assert ("decoding" in capsys.readouterr().err) is shown
    monkeypatch.setenv("TTY_COMPATIBLE", "0")
    with progress.step_bar() as advance:
        advance("decoding pictures", 1, 2)
    assert capsys.readouterr().err == ""


def test_long_lines_are_not_wrapped_and_errors_are_red(capsys):
    from rich.console import Console

    from spml.cli.output.check import print_problems, print_warnings
    from spml.data.check.problems import Findings, Problem

    long = "photos.csv, line 3: " + "a folder/" * 20 + "x.png"
    findings = Findings([Problem("missing", long), Problem("repeated", long)])
    print_problems(Console(width=40), findings)
    print_warnings(Console(width=40), [long])
    lines = capsys.readouterr().out.splitlines()
    assert lines.count(f"  {long}") == 2
    assert f"warning: {long} " in lines  # so that the line can be searched and copied
    colours = Console(force_terminal=True, color_system="standard", width=200, no_color=False)
    print_problems(colours, Findings([Problem("missing", "m"), Problem("repeated", "r")]))
    out = capsys.readouterr().out
    assert "\x1b[1;31merror: " in out and "\x1b[1;33mwarning: " in out
