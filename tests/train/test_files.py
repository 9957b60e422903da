"""The files of a run, read by training, by what uses a run, and by reports alike."""

import pytest

from spml.errors import DAMAGED, UserError
from spml.runs.files import read_json

BROKEN = {"{": r"not JSON \(", "[1]": "not a JSON object", "\xff": "cannot be read: .*can't decode"}


def test_an_object_is_given_as_it_is(tmp_path):
    (tmp_path / "a.json").write_text('{"name": "früh"}', encoding="utf-8")
    assert read_json(tmp_path / "a.json") == {"name": "früh"}


@pytest.mark.parametrize("text", BROKEN)
def test_what_is_no_object_is_told_with_the_file_and_what_to_do(tmp_path, text):
    path = tmp_path / "a.json"
    path.write_text(text, encoding="latin-1")
    for words, remedy in (((), DAMAGED), (("run it again",), "run it again")):
        with pytest.raises(UserError, match=BROKEN[text]) as told:
            read_json(path, *words)
        assert str(told.value).startswith(str(path)) and str(told.value).endswith(f"; {remedy}")


def test_what_is_not_there_says_how_far_the_run_is(tmp_path):
    def told(path):
        with pytest.raises(UserError) as error:
            read_json(path)
        return str(error.value)

    assert "gone is not a folder; give the folder of a finished run" in told(
        tmp_path / "gone" / "config.json"
    )
    assert "is not a run (no config.json); give" in told(tmp_path / "config.json")
    assert "is not a run (no result.json); give" in told(tmp_path / "result.json")
    (tmp_path / "config.json").write_text("{}")
    assert "is not a finished run (no result.json); go on with it" in told(tmp_path / "result.json")
