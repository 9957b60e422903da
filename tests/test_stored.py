"""Readers of stored files: an error names the file and the remedy."""

import numpy as np
import pytest

from spml.errors import DAMAGED, UserError
from spml.files import read_arrays, read_json

BROKEN = {"{": r"not JSON \(", "[1]": "not a JSON object", "\xff": "cannot be read: .*can't decode"}


def test_read_json_returns_the_object(tmp_path):
    (tmp_path / "a.json").write_text('{"name": "früh"}', encoding="utf-8")
    assert read_json(tmp_path / "a.json") == {"name": "früh"}


@pytest.mark.parametrize("text", BROKEN)
def test_read_json_names_the_file_and_the_remedy(tmp_path, text):
    path = tmp_path / "a.json"
    path.write_text(text, encoding="latin-1")
    for arguments, remedy in (((), DAMAGED), (("run it again",), "run it again")):
        with pytest.raises(UserError, match=BROKEN[text]) as raised:
            read_json(path, *arguments)
        assert str(raised.value).startswith(str(path))
        assert str(raised.value).endswith(f"; {remedy}")


def test_read_json_names_a_missing_file(tmp_path):
    with pytest.raises(UserError, match=r"gone.json cannot be read: "):
        read_json(tmp_path / "gone.json")


def test_read_arrays_reads_the_named_arrays_alone(tmp_path):
    np.savez(tmp_path / "a.npz", one=np.arange(1), two=np.arange(2), three=np.arange(3))
    assert set(read_arrays(tmp_path / "a.npz", ("one",), ("two", "four")) or {}) == {"one", "two"}
    assert read_arrays(tmp_path / "gone.npz", ("one",)) is None
    with pytest.raises(UserError, match=r"a.npz has no array four; run it again"):
        read_arrays(tmp_path / "a.npz", ("one", "four"), remedy="run it again")


@pytest.mark.parametrize("data", [b"", b"not a zip file", b"PK\x03\x04cut off"])
def test_read_arrays_names_a_damaged_file(tmp_path, data):
    (tmp_path / "a.npz").write_bytes(data)
    with pytest.raises(UserError, match=rf"a.npz is not a readable .npz file: .*; {DAMAGED}"):
        read_arrays(tmp_path / "a.npz", ("one",))
