"""Check a benchmark's files: counts against the paper's table, hashes, missing pictures."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from spml.data.benchmarks import Benchmark
from spml.data.experiment import Experiment, digest
from spml.data.observation import draw
from spml.data.table import LabelTable


def mean_positives(experiment: Experiment) -> float:
    """Return the mean number of true positives of a training image."""
    assert experiment.complete is not None
    labels = experiment.complete.sparse.take(experiment.train_rows)
    return float(labels.counts(1).sum() / len(experiment.train_rows))


def differences(benchmark: Benchmark, experiment: Experiment) -> list[str]:
    """Describe how the files differ from the paper's table, and the usual reason."""
    paper = benchmark.paper
    if paper is None:
        return []
    texts = []
    if len(experiment.classes) != paper.classes:
        number = len(experiment.classes)
        texts.append(f"{number} classes, the paper has {paper.classes}: another list of labels")
    tested = 0 if experiment.test is None else len(experiment.test)
    for split, number, expected in (
        ("train", len(experiment.observed), paper.train + paper.val),
        ("test", tested, paper.test),
    ):
        if number != expected:
            reason = "another version of the list, or files are missing"
            if version := benchmark.other_lists.get(number):
                reason = f"{version}, numbers will not compare"
            texts.append(
                f"{number:,} images in the {split} list, the paper has {expected:,}: {reason}"
            )
    if experiment.complete is not None and not texts:
        mean = mean_positives(experiment)
        if abs(mean - paper.positives) > paper.tolerance:
            texts.append(
                f"{mean:.2f} positives per training image, the paper has {paper.positives}: "
                f"{benchmark.other_labels}"
            )
    return texts


def observed_sha256(experiment: Experiment) -> dict[str, str]:
    """Hash the single positives of the train list and of the test list."""
    hashes = {"train": experiment.sha256}
    if experiment.test is not None:
        hashes["test"] = digest(experiment.test.with_labels(draw(experiment.test.sparse)))
    return hashes


def missing_pictures(tables: Iterable[LabelTable]) -> list[Path]:
    """Return the files of tables that do not exist; each folder is listed once."""
    listings: dict[Path, frozenset[str]] = {}
    missing = []
    for table in tables:
        for path in map(table.file, range(len(table))):
            if path.parent not in listings:
                listings[path.parent] = _file_names(path.parent)
            if path.name not in listings[path.parent]:
                missing.append(path)
    return missing


def _file_names(folder: Path) -> frozenset[str]:
    try:
        with os.scandir(folder) as entries:
            return frozenset(entry.name for entry in entries if entry.is_file())
    except OSError:
        return frozenset()
