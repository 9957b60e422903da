"""The fuzzer's corpus and its finds, each through its reader: a value or a UserError."""

from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"


def test_every_folder_of_the_corpus_has_a_target():
    assert {folder.name for folder in CORPUS.iterdir()} == set(TARGETS)


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_is_read_or_refused(name, tmp_path):
    for file in sorted((CORPUS / name).iterdir()):
        data = file.read_bytes()
        for number, part in enumerate((data, data[: len(data) // 2], data[:-1] + b"\0")):
            folder = tmp_path / f"{file.name}-{number}"
            folder.mkdir()
            TARGETS[name].attempt(part, folder)
