"""Problems that the labels of a data set show without its pictures."""

import pytest

from spml.data import read
from spml.data.check.check import check, positives_seen
from spml.errors import DataError
from tests.data.check.test_check import checked, kinds, only


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


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("a.png,dog,test\nb.png,dog,val\n", "no training rows, only val and test"),
        ("a.png,dog,train\nb.png,dog,val\n", "1 training rows; at least 2 are needed"),
        ("a.png,dog,train\nb.png,dog,\n", "2 rows give no validation row"),
        ("a.png,dog,\nb.png,dog,\nc.png,,val\n", "the validation rows have no label"),
        ("a.png,dog,\nb.png,,\nc.png,,\nd.png,,\ne.png,,\n", "the validation rows have no label"),
    ],
)
def test_data_that_training_would_refuse_are_an_error(table, rows, message):
    from spml.data import load

    csv = table(f"image,label,split\n{rows}")
    assert message in only(checked(csv), "untrainable").message
    with pytest.raises(DataError):
        load(csv)


def test_the_smallest_trainable_data_have_no_errors(table):
    from spml.data import load

    for text in (
        "image,label\na.png,x\nb.png,x\nc.png,x\n",
        "image,label,split\na.png,x,\nb.png,x,\nc.png,x,val\n",
    ):
        csv = table(text)
        load(csv)
        assert checked(csv).errors == []


def test_drawn_positives_of_complete_labels_are_counted(table):
    from spml.data import load

    rows = "".join(
        f"{i}.png,{'dog|cat' if i < 9 else ''},{'val' if i > 8 else 'train'}\n" for i in range(12)
    )
    csv = table("image,label,split\n" + rows)
    tables = read(csv, labels="complete")
    drawn = load(csv, labels="complete").observed.labels[:9]
    assert positives_seen(tables).tolist() == (drawn == 1).sum(axis=0).tolist() != [9, 9]
    assert (
        check(tables, min_positives=0).errors == []
    )  # validation rows without a positive are complete too
