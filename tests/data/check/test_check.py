"""Every kind of problem in a data set."""

import os

import numpy as np

from spml.data import LabelTable, load, read
from spml.data.check import check as module
from spml.data.check.check import check, positives_seen
from spml.data.check.problems import KINDS, Place, count_kinds, counted
from tests.data.conftest import refused


def checked(csv, labels=None):
    """Check a file without a warning of rare classes."""
    return check(read(csv, labels=labels), min_positives=0)


def kinds(report, severity="error"):
    return count_kinds([one for one in report.problems if one.severity == severity])


def places(problems):
    return {(one.split, one.row) for one in problems}


def only(report, kind):
    problems = report.by_kind()[kind]
    assert len(problems) == 1
    return problems[0]


def test_sound_data_have_no_errors(table):
    report = checked(table("image,label\na.jpg,dog\nb.png,cat\nc.webp,dog|cat\nd.bmp,dog\n"))
    assert report.problems == [] and report.copies == []


def test_a_missing_file_is_named_with_its_line(write, picture):
    picture("a.jpg")
    report = checked(write("image,label\na.jpg,dog\n\ngone.jpg,dog\na.jpg/b.jpg,dog\n"))
    assert places(report.errors) == {("train", 1), ("train", 2)}
    assert "my.csv, line 4: " in report.errors[0].message
    assert "gone.jpg: no such file" in report.errors[0].message
    assert kinds(report) == {"missing": 2}


def test_a_missing_file_with_a_similar_spelling_is_named(write, picture):
    picture("A B.JPG")
    picture("vo\u0308gel.png", 1)
    report = checked(write("image,label\na b.jpg,dog\nv\u00f6gel.png,dog\nno/c.jpg,cat\n"))
    hints = [one.message.partition("no such file")[2] for one in report.by_kind()["missing"]]
    assert hints == ["; there is 'A B.JPG'", "; there is 'vo\u0308gel.png'", ""]


def test_unreadable_pictures(write, picture, tmp_path):
    whole = picture("whole.jpg").read_bytes()
    picture("good.png", 1)
    for name, content in {
        "text.jpg": b"not found",
        "cut.jpg": whole[: len(whole) // 2],
        "empty.jpg": b"",
        "cut.png": picture("other.png", 2).read_bytes()[:300],
    }.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder.jpg").mkdir()
    (tmp_path / "loop.jpg").symlink_to("loop.jpg")
    os.mkfifo(tmp_path / "pipe.jpg")
    bad = ["text.jpg", "cut.jpg", "empty.jpg", "cut.png", "folder.jpg", "loop.jpg", "pipe.jpg"]
    lines = [f"{name},dog\n" for name in ["good.png", "whole.jpg", *bad]]
    csv = write("image,label\n" + "".join(lines))
    report = checked(csv)

    assert kinds(report) == {"unreadable": 7}
    odd = ["a folder, pipe or device" in one.message for one in report.errors]
    assert odd == [False] * 4 + [True, False, True]
    assert "the file is empty" in report.errors[2].message
    for row, (name, one) in enumerate(zip(bad, report.errors, strict=True), 2):
        assert one.row == row
        assert f"my.csv, line {row + 2}: " in one.message and name in one.message
    undecoded = check(read(csv), pictures=False)
    assert {one.row for one in undecoded.errors} == {4, 6, 7, 8}


def test_a_file_that_cannot_be_opened_is_unreadable(table, monkeypatch):
    csv = table("image,label\na.png,dog\nb.png,dog\nc.png,cat\n")
    (csv.parent / "b.png").write_bytes((csv.parent / "a.png").read_bytes())

    def refuse(file, name):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(module.hashlib, "file_digest", refuse)
    report = check(read(csv), pictures=False)
    assert set(kinds(report)) == {"unreadable"}
    assert "(Permission denied)" in report.errors[0].message


def test_the_same_bytes_in_two_splits_leak(table, picture):
    for name in ("train.png", "val.png", "test.png"):
        picture(name, 1)
    picture("x/twin.png", 2)
    picture("x/twin2.png", 2)
    csv = table(
        "image,label,split\ntest.png,dog,test\ntrain.png,dog,train\nval.png,dog,val\n"
        "x/twin.png,cat,val\nx/twin2.png,cat,\nown.png,dog,\nown2.png,dog,\n"
    )
    report = checked(csv)

    assert kinds(report) == {"leak": 3} and kinds(report, "warning") == {}
    assert places(report.errors) == {("train", 0), ("val", 0), ("train", 1)}
    expected = "line 3: 'train.png' in train is the same picture as 'test.png' (test, line 2)"
    assert f"{csv}, {expected}" in [one.message for one in report.errors]
    assert kinds(check(read(csv), pictures=False)) == {"leak": 3}


def test_pictures_of_equal_length_are_not_the_same(picture, write):
    lengths = {picture(f"{shade}.bmp", shade).stat().st_size for shade in range(4)}
    assert len(lengths) == 1
    rows = "0.bmp,dog,\n1.bmp,dog,\n2.bmp,dog,\n3.bmp,dog,test\n"
    assert checked(write(f"image,label,split\n{rows}")).problems == []


def test_broken_files_are_not_copies_of_each_other(write, picture):
    for name in ("a.jpg", "b.jpg"):
        write("<html>404</html>", name)
    for name in ("c.jpg", "d.jpg"):
        write("", name)
    picture("e.jpg")
    picture("f.jpg", 1)
    csv = write(
        "image,label,split\na.jpg,x,\nb.jpg,y,test\nc.jpg,x,\nd.jpg,x,test\ne.jpg,x,\nf.jpg,x,"
    )
    report = checked(csv)
    assert kinds(report) == {"unreadable": 4} and report.copies == []


def test_copies_with_contradictory_labels(table, picture):
    for name in ("a.png", "b.png", "c.png"):
        picture(name, 1)
    csv = table(
        "image,label,negative\na.png,dog,\nb.png,cat,\nc.png,bird,dog|cat\nd.png,dog,\ne.png,cat,\n"
    )
    report = checked(csv)

    assert kinds(report) == {"contradiction": 1} and kinds(report, "warning") == {"different": 1}
    assert only(report, "contradiction").row == 2
    assert "'dog' negative here and positive there" in only(report, "contradiction").message
    expected = "'a.png' (train, line 2), which has 'dog'; here it has 'cat'"
    assert expected in only(report, "different").message
    other = checked(table("image,label,negative\na.png,x,y\nb.png,y,\nz.png,x,\n", "o.csv"))
    assert "'y' positive here and negative there" in only(other, "contradiction").message


def test_in_complete_tables_other_labels_contradict(table, picture):
    picture("a.png", 1)
    picture("b.png", 1)
    csv = table("image,label\na.png,dog\nb.png,cat\nd.png,dog\ne.png,cat\n")
    assert kinds(checked(csv, labels="complete")) == {"contradiction": 1}
    assert kinds(checked(csv)) == {}


def test_copies_with_the_same_labels_are_reported(table, picture):
    picture("a.png", 1)
    picture("./sub/../b.png", 1)
    report = checked(table("image,label\na.png,dog\nb.png,dog\nc.png,dog\n"))
    assert kinds(report, "warning") == {"repeated": 1}
    assert report.copies == [(Place("train", 0), Place("train", 1))]


def test_arrays_are_compared_if_they_are_pictures():
    x = np.random.default_rng(0).integers(0, 255, (6, 3, 4, 4), dtype=np.uint8)
    x[5] = x[1]
    labels = np.ones((3, 1), np.int8)
    tables = {split: LabelTable(list("abc"), ["dog"], labels, x=x[at]) for split, at in parts(x)}
    report = check(tables)
    assert kinds(report) == {"leak": 1} and only(report, "leak").message.startswith("'b' in train")
    assert report.copies == [(Place("train", 1), Place("test", 2))]
    assert {one.severity for one in report.warnings} == {"warning"}
    assert len(report.errors + report.warnings) == len(report.problems)

    flat = tables["train"].replaced(x=np.zeros((3, 2), np.float32))
    assert check({"train": flat, "test": flat}).errors == []


def parts(x):
    return [("train", slice(0, 3)), ("test", slice(3, 6))]


def test_progress_is_reported(table, monkeypatch):
    monkeypatch.setattr(module, "WINDOW", 2)
    progress = []
    check(
        read(table("image,label\na.png,x\nb.png,x\nc.png,x\n")),
        advance=lambda what, done, total: progress.append((what, done, total)),
    )
    assert progress[:3] == [("looking for files", i, 3) for i in (1, 2, 3)]
    expected = ("decoding pictures", 3, 3)
    assert progress[-1] == expected


def test_counts_are_formatted_as_text():
    expected = "2 missing files, 1 unreadable picture"
    assert counted({"missing": 2, "unreadable": 1, "leak": 0}) == expected
    assert all(kind.severity in ("error", "warning") for kind in KINDS.values())


def test_labels_joined_by_a_comma_are_reported(table):
    report = checked(table('image,label\na.png,dog\nb.png,cat\nc.png,"dog, cat"\n'))
    assert only(report, "joined_names").message == "'dog, cat': 'dog' and 'cat' are classes too"
    assert kinds(report, "warning") == {"joined_names": 1}


def test_cells_with_lists_or_newlines_are_reported(table):
    csv = table("image,label\na.png,\"['dog', 'cat']\"\nb.png,cow\nc.png,pig\nd.png,cow\n")
    csv.write_text(
        csv.read_text().replace("b.png,cow", 'b.png,"cow').replace("c.png,pig", 'c.png,pig"')
    )
    problems = checked(csv).by_kind()["joined_names"]
    assert [one.message for one in problems] == [
        "\"['dog', 'cat']\": a list as a program writes it",
        "'cow\\nc.png,pig': several lines; is a quote missing in the file?",
    ]


def test_classes_that_cannot_be_learned(table):
    csv = table(
        "image,often,none,rare,tested,validated,split\n"
        "a.png,1,0,1,0,0,\nb.png,1,-1,1,0,0,\nc.png,1,0,0,0,0,\n"
        "d.png,0,0,0,0,1,val\ne.png,0,0,1,1,0,test\nf.png,0,0,1,0,0,test\n"
    )
    report = check(read(csv), min_positives=3)
    assert kinds(report) == {} and report.warnings == report.problems
    assert only(report, "no_positive").message == "'none'"
    assert "'tested' has 1 in test" in only(report, "test_only").message
    expected = ["'rare'", "'validated'"]
    assert [one.message.split()[0] for one in report.by_kind()["few_positives"]] == expected
    assert "few_positives" not in checked(csv).by_kind()


def test_similar_class_names_are_counted_over_all_splits(table):
    csv = table("image,label,split\na.png,dog,\nb.png,dog,\nc.png,Dog,test\nd.png,cat,val\n")
    report = checked(csv)
    assert only(report, "near_names").message == "'Dog' (1) and 'dog' (2)"


def test_names_that_look_the_same_are_escaped(table):
    csv = table("image,label\na.png,V\u00f6gel\nb.png,V\u00f6gel\nc.png,Vo\u0308gel\nd.png,cat\n")
    report = checked(csv)
    assert only(report, "near_names").message == r"'Vo\u0308gel' (1) and 'V\xf6gel' (2)"


def test_rows_without_a_positive(table):
    csv = table("image,label,negative,split\na.png,dog,,\nb.png,,dog,\nc.png,,,test\nd.png,dog,,\n")
    report = checked(csv)
    expected = [("train", 1), ("test", 0)]
    assert [(one.split, one.row) for one in report.by_kind()["unlabelled"]] == expected
    assert "my.csv, line 3: 'b.png'" in report.by_kind()["unlabelled"][0].message


def test_data_that_training_would_refuse_are_an_error(table):
    csv = table("image,label,split\na.png,dog,test\nb.png,dog,val\n")
    message = "no training rows, only val and test; mark some rows train"
    assert only(checked(csv), "untrainable").message == message
    with refused(message):
        load(csv)


def test_the_smallest_trainable_data_have_no_errors(table):
    for last in ("", "val"):
        csv = table(f"image,label,split\na.png,x,\nb.png,x,\nc.png,x,{last}\n")
        load(csv)
        assert checked(csv).errors == []


def test_drawn_positives_of_complete_labels_are_counted(table):
    rows = "".join(
        f"{i}.png,{'dog|cat' if i < 9 else ''},{'val' if i > 8 else 'train'}\n" for i in range(12)
    )
    csv = table("image,label,split\n" + rows)
    tables = read(csv, labels="complete")
    drawn = load(csv, labels="complete").observed.labels[:9]
    assert positives_seen(tables).tolist() == (drawn == 1).sum(axis=0).tolist() != [9, 9]
    # Validation rows without a positive are complete too.
    assert check(tables, min_positives=0).errors == []
