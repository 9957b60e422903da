"""Tables as a terminal shows them."""

import pytest
from rich.console import Console

from spml.cli.output.tables import add_ends, columns, plain, print_results
from spml.report.groups import ResultTable


def printed(table, capsys):
    Console(width=100).print(table)
    return [line.split() for line in capsys.readouterr().out.splitlines() if line.strip(" ─")]


@pytest.mark.parametrize("count", [5, 7])
def test_only_the_first_and_last_of_many_rows_are_printed(count, capsys):
    table = columns("class", "train", "test")
    rows = [(f"c{i}", (f"{1000 + i:,}", f"{i}")) for i in range(count)]
    add_ends(table, rows, ends=2, all_of=5)
    rows = printed(table, capsys)
    assert rows[0] == ["class", "train", "test"]
    assert rows[1:3] == [["c0", "1,000", "0"], ["c1", "1,001", "1"]]
    assert rows[3:-2] == ([["c2", "1,002", "2"]] if count == 5 else [["...", "3", "more", "..."]])
    assert [row[0] for row in rows[-2:]] == [f"c{count - 2}", f"c{count - 1}"]


def test_numbers_are_right_aligned_and_names_are_text(capsys):
    table = columns("class", "number")
    add_ends(table, [("[red]a\x1b[31m\n", ("5",))], ends=1, all_of=3)
    (line,) = [line for line in _lines(table, capsys) if "red" in line]
    assert "[red]a?[31m?" in line
    assert line.rstrip().endswith(" 5")
    assert len(line.rstrip()) > len("[red]a?[31m?  5")
    assert plain("é\u200bx\t") == "é?x?"


def _lines(table, capsys):
    Console(width=100).print(table)
    return capsys.readouterr().out.splitlines()


def test_a_table_of_results_has_its_title_rows_and_notes(capsys):
    print_results(
        ResultTable(
            "a title",
            ["method", "mAP"],
            [["an [1]", "71.20"], ["gr", "8.10"]],
            ["one note", "two [x]"],
        )
    )
    lines = [line.strip() for line in capsys.readouterr().out.splitlines() if line.strip(" ─")]
    assert [line.split() for line in lines] == [
        ["a", "title"], ["method", "mAP"], ["an", "[1]", "71.20"], ["gr", "8.10"],
        ["one", "note"], ["two", "[x]"],
    ]  # fmt: skip
    assert lines[2].rindex("0") == lines[3].rindex("0")  # figures are right-aligned
