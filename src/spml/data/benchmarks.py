"""The benchmarks: one entry holds every fact about a data set, and files are compared with it.

A new benchmark is one reader in `spml.data.readers` and one entry in ENTRIES.

Checksums are torchvision's: VOC's in `torchvision/datasets/voc.py`; those of COCO and CUB in
`torchvision/prototype/datasets/_builtin/coco.py` and `cub200.py` of github.com/pytorch/vision at
commit 05caddc3. Sizes are those that the servers report.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spml.data.experiment import Experiment
    from spml.data.readers.builder import Kind
    from spml.data.table import LabelTable


@dataclass(frozen=True)
class Archive:
    """An archive to download and unpack."""

    name: str  # on the disk
    addresses: tuple[str, ...]  # tried in turn
    size: int  # in bytes
    digest: str  # "md5:..." or "sha256:..." of its content
    unpacked: int  # approximate number of bytes it unpacks to


@dataclass(frozen=True)
class Counts:
    """A column of the paper's table of data sets: numbers of classes and of images by split."""

    classes: int
    train: int
    val: int
    test: int
    positives: float  # mean of a training image
    tolerance: float = 0.011  # of `positives`: one unit of the last printed digit


@dataclass(frozen=True)
class Benchmark:
    """A data set known by name.

    Functions are written "module:function" and imported when called, so that this module imports
    neither numpy nor the readers.

    Attributes:
        reader: function (root, labels=) that returns the label tables by split.
        paper: its column in the paper's table of data sets; None if it has none.
        archives: downloaded and unpacked by `spml prepare --download`, in this order.
        steps: how to obtain the files by hand if no archives are listed; `{root}` is replaced.
        other_lists: length of a list -> the version of the data that has such a list.
        other_labels: likely reason for another mean of positives.
        observed_sha256: hash of the reference protocol's single positives, by split.
        versioned: function (root) that names the version in a folder, if several circulate.
        boxes: function (table, root) that yields row, column and area of each object.
    """

    name: str
    title: str
    reader: str
    paper: Counts | None = None
    archives: tuple[Archive, ...] = ()
    steps: str = ""
    other_lists: Mapping[int, str] = field(default_factory=dict)
    other_labels: str = "other label files"
    observed_sha256: Mapping[str, str] = field(default_factory=dict)
    versioned: str = ""
    boxes: str = ""

    def read(self, root: Path, labels: Kind) -> dict[str, LabelTable]:
        """Read the label tables by split."""
        tables: dict[str, LabelTable] = resolve_name(self.reader)(root, labels=labels)
        return tables

    def version(self, root: Path) -> str:
        """Name the version in a folder; empty if only one circulates."""
        return str(resolve_name(self.versioned)(root)) if self.versioned else ""


_VOC = "pascal/VOC/voc2012/VOCtrainval_11-May-2012.tar"
_COCO = "http://images.cocodataset.org"

ENTRIES = (
    Benchmark(
        name="voc",
        title="VOC",
        reader="spml.data.readers.voc:read_voc",
        boxes="spml.data.readers.voc:voc_boxes",
        paper=Counts(20, 4574, 1143, 5823, 1.46),
        archives=(
            Archive(
                "VOCtrainval_11-May-2012.tar",
                (f"http://host.robots.ox.ac.uk/{_VOC}", f"https://thor.robots.ox.ac.uk/{_VOC}"),
                size=1_999_639_040,
                digest="md5:6cd6e144f989b92b3379bac3b3de84fd",
                unpacked=2_000_000_000,
            ),
        ),
        other_lists=dict.fromkeys((2501, 2510), "VOC2007")
        | {11540: "the trainval list", 5011: "VOC2007's trainval list"},
        other_labels="other label files, or 'difficult' objects counted",
        observed_sha256={
            "train": "6c3763a26035abe63507068b85ecf1fda245cb681f66b02e7db6e7b6d44516d6",
            "test": "d8036dc7413eda6406072b95e72d850233b90113ec9c780a816c40aa75a10154",
        },
    ),
    Benchmark(
        name="coco",
        title="COCO",
        reader="spml.data.readers.coco:read_coco",
        boxes="spml.data.readers.coco:coco_boxes",
        paper=Counts(80, 65665, 16416, 40137, 2.94),
        archives=(
            Archive(
                "annotations_trainval2014.zip",
                (f"{_COCO}/annotations/annotations_trainval2014.zip",),
                size=252_872_794,
                digest="sha256:031296bbc80c45a1d1f76bf9a90ead27e94e99ec629208449507a4917a3bf009",
                unpacked=1_200_000_000,
            ),
            Archive(
                "train2014.zip",
                (f"{_COCO}/zips/train2014.zip",),
                size=13_510_573_713,
                digest="sha256:ede4087e640bddba550e090eae701092534b554b42b05ac33f0300b984b31775",
                unpacked=13_600_000_000,
            ),
            Archive(
                "val2014.zip",
                (f"{_COCO}/zips/val2014.zip",),
                size=6_645_013_297,
                digest="sha256:fe9be816052049c34717e077d9e34aa60814a55679f804cd043e3cbee3b9fde0",
                unpacked=6_700_000_000,
            ),
        ),
        other_lists=dict.fromkeys((117266, 118287, 4952), "COCO 2017")
        | {82783: "all images, without labels too"},
    ),
    Benchmark(
        name="nuswide",
        title="NUS",
        reader="spml.data.readers.nuswide:read_nuswide",
        versioned="spml.data.readers.nuswide:version",
        paper=Counts(81, 120000, 30000, 60260, 1.89),
        steps="""\
NUS-WIDE cannot be downloaded by a program: its pictures are given on request.
1. Ask for the pictures: fill in the Agreement and Disclaimer Form of
   https://lms.comp.nus.edu.sg/wp-content/uploads/2019/research/nuswide/NUS-WIDE.html
   and send it to the address given there. The answer names a link to Flickr.zip.
2. Unpack Flickr.zip in {root}, so that the pictures lie in {root}/Flickr.
3. Three versions of the lists circulate, and numbers on different ones cannot be compared.
   Choose one:
   a. that of the paper (120,000 / 30,000 / 60,260 images): the four files
      formatted_train_images.npy, formatted_train_labels.npy, formatted_val_images.npy and
      formatted_val_labels.npy that https://github.com/Correr-Zhou/SPML-AckTheUnknown links to,
      in {root};
   b. the re-crawled subset of Cole et al.: four files of the same names, from
      https://zenodo.org/records/10162606, in {root};
   c. the official lists (161,789 / 107,859 images): the folders ImageList and Groundtruth, from
      the page of step 1, in {root}.
4. Run again: spml prepare nuswide --root {root}""",
        other_lists=dict.fromkeys((161789, 107859), "the official lists")
        | {119103: "the list of robust-loss-mlml"},
    ),
    Benchmark(
        name="cub",
        title="CUB",
        reader="spml.data.readers.cub:read_cub",
        paper=Counts(312, 4795, 1199, 5794, 31.4, tolerance=0.11),
        archives=(
            Archive(
                "CUB_200_2011.tgz",
                ("https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz?download=1",),
                size=1_150_585_339,
                digest="sha256:0c685df5597a8b24909f6a7c9db6d11e008733779a671760afef78feb49bf081",
                unpacked=1_300_000_000,
            ),
        ),
        other_lists=dict.fromkeys((3000, 3033), "CUB-200 of 2010")
        | {11788: "all images, not split"},
    ),
)
BENCHMARKS = {entry.name: entry for entry in ENTRIES}
NAMES = tuple(BENCHMARKS)


def paper_counts(data: str) -> Counts | None:
    """Return the paper's counts of a data set; None for other data."""
    return BENCHMARKS[data].paper if data in BENCHMARKS else None


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
    from spml.data.experiment import digest
    from spml.data.observation import draw

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
                listings[path.parent] = frozenset()
                with suppress(OSError), os.scandir(path.parent) as entries:
                    listings[path.parent] = frozenset(one.name for one in entries if one.is_file())
            if path.name not in listings[path.parent]:
                missing.append(path)
    return missing
