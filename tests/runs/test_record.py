"""Hashes that identify the data of a run."""

import shutil
from dataclasses import replace

import numpy as np

from spml.data import LabelTable, load
from spml.runs.record import fingerprint, other_data, sample


def test_the_fingerprint_covers_names_labels_and_rows_but_not_pixels(scenes):
    table, test = scenes.observed, scenes.test
    same = fingerprint(scenes)
    other_pixels = LabelTable(table.items, table.classes, table.sparse, x=255 - table.x)
    assert fingerprint(replace(scenes, observed=other_pixels)) == same
    changes = {
        "order": {"observed": table.take(np.arange(len(table))[::-1])},
        "an item": {
            "observed": LabelTable(
                ["new", *table.items[1:]], table.classes, table.sparse, x=table.x
            )
        },
        "labels": {"observed": scenes.complete},
        "rows": {"train_rows": scenes.train_rows[1:]},
        "no test": {"test": None},
        "a test of fewer": {"test": test.take(np.arange(len(test) - 1))},
    }
    hashes = {name: fingerprint(replace(scenes, **change)) for name, change in changes.items()}
    assert len({same, *hashes.values()}) == 1 + len(changes), hashes


def test_the_sample_covers_the_content_of_items_wherever_they_lie(scenes, pictures, tmp_path):
    table = scenes.observed
    other = LabelTable(table.items, table.classes, table.sparse, x=255 - table.x)
    assert sample(replace(scenes, observed=table.take(np.arange(len(table))))) == sample(scenes)
    assert (
        sample(replace(scenes, observed=other))
        != sample(scenes)
        != sample(replace(scenes, test=None))
    )
    before = sample(load(pictures))
    shutil.copytree(pictures.parent, tmp_path / "there")
    moved = load(tmp_path / "there" / pictures.name)
    assert sample(moved) == before
    moved.observed.file(0).write_bytes(moved.observed.file(1).read_bytes())
    changed = sample(moved)
    moved.observed.file(0).unlink()
    assert len({before, changed, sample(moved)}) == 3


def test_a_run_without_a_fingerprint_matches_any_data():
    assert not other_data({}, "a") and not other_data({"data_sha256": None}, "a")
    assert not other_data({"data_sha256": "a"}, "a") and other_data({"data_sha256": "b"}, "a")
