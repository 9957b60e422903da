import pytest

from spml.atomic import replacing, write_json, write_text


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with pytest.raises(RuntimeError), replacing(path) as beside:
        beside.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_json_is_written_into_new_folders(tmp_path):
    write_json(tmp_path / "x" / "y.json", {"ä": 1})
    assert (tmp_path / "x" / "y.json").read_text() == '{\n  "ä": 1\n}\n'
