"""Experiments: the draw before the split, the order of lists, and refusals."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from spml.data import load, observe, read, split
from spml.data.readers.digits import SETTINGS
from spml.errors import DataError, UserError
from tests.data.conftest import refused, train

HEAD = "image,label\n"
SPLIT = "image,label,split\n"
UNLABELLED = ": the validation rows have no label"
MAX = 4294967295
SEEDS = f"from 0 to {MAX}"


def many(n=10):
    lines = (f"{i}.jpg,{'abc'[i % 3]}|{'abc'[(i + 1) % 3]}\n" for i in range(n))
    return "image,label\n" + "".join(lines)


def test_complete_data_are_drawn_over_the_whole_list(write):
    path = write(many())
    experiment = load(path, labels="complete", observe_seed=3, split_seed=4, val_fraction=0.3)
    truth = train(path, labels="complete").labels

    np.testing.assert_array_equal(experiment.complete.labels, truth)
    np.testing.assert_array_equal(experiment.observed.labels, observe(truth, 3))
    np.testing.assert_array_equal(experiment.train_rows, split(10, 0.3, 4)[0])
    np.testing.assert_array_equal(experiment.val_rows, split(10, 0.3, 4)[1])
    assert (experiment.label_kind, experiment.test) == ("complete", None)
    assert (experiment.name, experiment.classes) == (str(path), ["a", "b", "c"])


def test_observed_data_stay_unchanged(write):
    path = write(many())
    experiment = load(path)
    np.testing.assert_array_equal(experiment.observed.labels, train(path).labels)
    assert (experiment.label_kind, experiment.complete) == ("observed", None)
    assert (len(experiment.train_rows), len(experiment.val_rows)) == (8, 2)


def test_a_separate_validation_split_follows_the_training_rows_in_one_draw(write):
    lines = (f"{i},a|b|c,{['val', 'train', 'test'][i % 3]}\n" for i in range(12))
    experiment = load(write(SPLIT + "".join(lines)), labels="complete")

    assert list(experiment.observed.items) == ["1", "4", "7", "10", "0", "3", "6", "9"]
    np.testing.assert_array_equal(experiment.train_rows, range(4))
    np.testing.assert_array_equal(experiment.val_rows, range(4, 8))
    np.testing.assert_array_equal(experiment.observed.labels, observe(np.ones((8, 3), np.int8)))
    assert list(experiment.test.items) == ["2", "5", "8", "11"]


def test_digits(monkeypatch):
    monkeypatch.setitem(SETTINGS, "digits", replace(SETTINGS["digits"], sizes=(30, 20, 10)))
    experiment = load("digits")
    tables = read("digits")
    truth = np.concatenate([tables["train"].labels, tables["val"].labels])

    np.testing.assert_array_equal(experiment.observed.labels, observe(truth))
    np.testing.assert_array_equal(experiment.observed.x[30:], tables["val"].x)
    parts = (experiment.train_rows, experiment.val_rows, experiment.test)
    assert [len(part) for part in parts] == [30, 20, 10]
    assert (experiment.name, experiment.label_kind) == ("digits", "complete")


@pytest.mark.parametrize("chunk", [1, 7, 2**24])
def test_sha256_is_of_the_ones(write, monkeypatch, chunk):
    monkeypatch.setattr("spml.data.experiment.CHUNK_BYTES", chunk)
    experiment = load(write("image,label,negative\na,x,y\nb,y,\nc,,x\nd,x|y,\ne,y,x\n"))
    ones = np.array([[1, 0], [0, 1], [0, 0], [1, 1], [0, 1]], np.uint8)
    assert experiment.sha256 == hashlib.sha256(ones.tobytes()).hexdigest()


def test_fraction_zero_needs_no_validation_rows(write):
    experiment = load(write(many(3)), val_fraction=0)
    assert (len(experiment.train_rows), len(experiment.val_rows)) == (3, 0)


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (
            f"{SPLIT}a,x,test\nb,x,val\n",
            {},
            "no training rows, only val and test.*mark some rows train",
        ),
        (f"{HEAD}a,x\n", {}, "1 training rows.*at least 2"),
        (
            f"{HEAD}a,x\nb,x\n",
            {},
            "2 rows give no validation row at fraction 0.2; add rows, or mark",
        ),
        (f"{HEAD}a,x\nb,x\nc,x\n", {"val_fraction": 0.6}, "1 training rows"),
        (f"{SPLIT}a,x,\nb,x,\nc,,val\n", {}, UNLABELLED),
        ("image,label,negative,split\na,x,,\nb,x,,\nc,,x,val\n", {}, UNLABELLED),
    ],
)
def test_too_little_data(write, content, options, message):
    with refused(f"my.csv.*{message}"):
        load(write(content), **options)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda path: read("digist"), DataError, r"digist: no such file.*did you mean 'digits'\?"),
        (lambda path: read("nothing.csv"), DataError, "nothing.csv: no such file.*check the path"),
        (lambda path: read(path.with_suffix(".xlsx")), DataError, ".xlsx.*are not read.*.csv"),
        (
            lambda path: read(path.with_suffix(".parquet")),
            DataError,
            r"my\.parquet: Is a directory",
        ),
        (lambda path: read("voc"), DataError, "voc needs.*--root"),
        (lambda path: read("voc", path.parent), DataError, "no ImageSets/Main.*--root"),
        (lambda path: read(path, labels="full"), UserError, "'full'.*'observed' or 'complete'"),
        (lambda path: read("digits", classes="a"), UserError, "digits has its own classes"),
        (lambda path: load(path, val_fraction=1), UserError, "fraction 1"),
        (lambda path: load(path, split_seed=-1), UserError, f"--split-seed -1.*{SEEDS}"),
        (
            lambda path: load(path, observe_seed=MAX + 1),
            UserError,
            f"--observe-seed {MAX + 1}.*{SEEDS}",
        ),
    ],
)
def test_impossible_requests_are_refused(write, call, error, message):
    path = write(many())
    path.with_suffix(".xlsx").write_bytes(b"PK")
    path.with_suffix(".parquet").mkdir()
    with pytest.raises(error, match=message):
        call(path)


def test_validation_rows_without_labels(write):
    train = write(f"{HEAD}a,x\nb,x\n")
    val = write("image,label,negative\nc,,x\nd,x,\n", "val.csv")
    assert len(load(train, val=val).val_rows) == 2
    complete = load(write("image,label,split\na,x,\nb,x,\nc,,val\n"), labels="complete")
    assert complete.val_rows.tolist() == [2]  # known to have none
