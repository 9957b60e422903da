"""Where the benchmarks come from, and what they must look like when they are whole.

Checksums are torchvision's: VOC's in `torchvision/datasets/voc.py`; those of COCO and CUB in
`torchvision/prototype/datasets/_builtin/coco.py` and `cub200.py` of github.com/pytorch/vision at commit 05caddc3. The
sizes are those that the servers report.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from spml.data.download.archive import Limits
from spml.data.download.request import Remote
from spml.data.experiment import Experiment, digest
from spml.data.observe import draw
from spml.data.table import LabelTable


@dataclass(frozen=True)
class Archive(Remote):
    """An archive of a benchmark.

    Attributes:
        unpacked: about how many bytes it unpacks to.
        files: about how many files.
    """

    unpacked: int
    files: int

    @property
    def limits(self) -> Limits:
        """What it may unpack to at the most."""
        return Limits(size=2 * self.unpacked, files=2 * self.files)


_VOC = "pascal/VOC/voc2012/VOCtrainval_11-May-2012.tar"
_COCO_SHA256 = (
    "031296bbc80c45a1d1f76bf9a90ead27e94e99ec629208449507a4917a3bf009",
    "ede4087e640bddba550e090eae701092534b554b42b05ac33f0300b984b31775",
    "fe9be816052049c34717e077d9e34aa60814a55679f804cd043e3cbee3b9fde0",
)


def _coco(place: str, size: int, sha256: str, unpacked: int, files: int) -> Archive:
    """An archive of COCO's server."""
    address = f"http://images.cocodataset.org/{place}"
    return Archive(
        Path(place).name, (address,), size, f"sha256:{sha256}", unpacked=unpacked, files=files
    )


ARCHIVES: dict[str, tuple[Archive, ...]] = {
    "voc": (
        Archive(
            "VOCtrainval_11-May-2012.tar",
            (f"http://host.robots.ox.ac.uk/{_VOC}", f"https://thor.robots.ox.ac.uk/{_VOC}"),
            size=1_999_639_040,
            digest="md5:6cd6e144f989b92b3379bac3b3de84fd",
            unpacked=2_000_000_000,
            files=41_000,
        ),
    ),
    "coco": (
        _coco(
            "annotations/annotations_trainval2014.zip",
            252_872_794,
            _COCO_SHA256[0],
            1_200_000_000,
            10,
        ),
        _coco("zips/train2014.zip", 13_510_573_713, _COCO_SHA256[1], 13_600_000_000, 82_783),
        _coco("zips/val2014.zip", 6_645_013_297, _COCO_SHA256[2], 6_700_000_000, 40_504),
    ),
    "cub": (
        Archive(
            "CUB_200_2011.tgz",
            ("https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz?download=1",),
            size=1_150_585_339,
            digest="sha256:0c685df5597a8b24909f6a7c9db6d11e008733779a671760afef78feb49bf081",
            unpacked=1_300_000_000,
            files=12_500,
        ),
    ),
}

NUSWIDE_STEPS = """\
NUS-WIDE cannot be downloaded by a program: its pictures are given on request.
1. Ask for the pictures: fill in the Agreement and Disclaimer Form of
   https://lms.comp.nus.edu.sg/wp-content/uploads/2019/research/nuswide/NUS-WIDE.html
   and send it to the address given there. The answer names a link to Flickr.zip.
2. Unpack Flickr.zip in {root}, so that the pictures lie in {root}/Flickr.
3. Three versions of the lists circulate, and numbers on different ones cannot be compared. Choose one:
   a. that of the paper (120,000 / 30,000 / 60,260 images): the four files formatted_train_images.npy,
      formatted_train_labels.npy, formatted_val_images.npy and formatted_val_labels.npy that
      https://github.com/Correr-Zhou/SPML-AckTheUnknown links to, in {root};
   b. the re-crawled subset of Cole et al.: four files of the same names, from
      https://zenodo.org/records/10162606, in {root};
   c. the official lists (161,789 / 107,859 images): the folders ImageList and Groundtruth, from the page of step 1,
      in {root}.
4. Run again: spml prepare nuswide --root {root}"""


@dataclass(frozen=True)
class Counts:
    """A column of the paper's table of data sets: classes, images, and positives of a training image."""

    classes: int
    train: int
    val: int
    test: int
    positives: float
    tolerance: float = 0.011  # one unit of the last digit printed


PAPER = {
    "voc": Counts(20, 4574, 1143, 5823, 1.46),
    "coco": Counts(80, 65665, 16416, 40137, 2.94),
    "nuswide": Counts(81, 120000, 30000, 60260, 1.89),
    "cub": Counts(312, 4795, 1199, 5794, 31.4, tolerance=0.11),
}
NAMES = tuple(PAPER)
VOC_SHA256 = {
    "train": "6c3763a26035abe63507068b85ecf1fda245cb681f66b02e7db6e7b6d44516d6",
    "test": "d8036dc7413eda6406072b95e72d850233b90113ec9c780a816c40aa75a10154",
}
_LISTS = {  # what a list of another length usually is
    "voc": {
        2501: "VOC2007",
        2510: "VOC2007",
        11540: "the trainval list",
        5011: "VOC2007's trainval list",
    },
    "coco": {
        117266: "COCO 2017",
        118287: "COCO 2017",
        82783: "all images, without labels too",
        4952: "COCO 2017",
    },
    "nuswide": {
        161789: "the official lists",
        107859: "the official lists",
        119103: "the list of robust-loss-mlml",
    },
    "cub": {11788: "all images, not split", 3000: "CUB-200 of 2010", 3033: "CUB-200 of 2010"},
}


def differences(name: str, experiment: Experiment) -> list[str]:
    """How a benchmark differs from the paper's table, and what that usually means."""
    paper, complete = PAPER[name], experiment.complete
    found = []
    if len(experiment.classes) != paper.classes:
        found.append(
            f"{len(experiment.classes)} classes, the paper has {paper.classes}: another list of labels"
        )
    listed = {
        "train": len(experiment.observed),
        "test": 0 if experiment.test is None else len(experiment.test),
    }
    for split, number in listed.items():
        wanted = paper.train + paper.val if split == "train" else paper.test
        if number != wanted:
            usual = f"{known}, " if (known := _LISTS[name].get(number)) else ""
            why = (
                f"{usual}numbers will not compare"
                if known
                else "another version of the list, or files are missing"
            )
            found.append(f"{number:,} images in the {split} list, the paper has {wanted:,}: {why}")
    if complete is not None and not found:
        mean = complete.sparse.take(experiment.train_rows).counts(1).sum() / len(
            experiment.train_rows
        )
        if abs(mean - paper.positives) > paper.tolerance:
            why = (
                "other label files, or 'difficult' objects counted"
                if name == "voc"
                else "other label files"
            )
            found.append(
                f"{mean:.2f} positives per training image, the paper has {paper.positives}: {why}"
            )
    return found


def observed_sha256(experiment: Experiment) -> dict[str, str]:
    """Of the observed single positives of the train list and of the test list, as `Experiment.sha256`."""
    found = {"train": experiment.sha256}
    if experiment.test is not None:
        found["test"] = digest(experiment.test.with_labels(draw(experiment.test.sparse)))
    return found


def missing_pictures(tables: Iterable[LabelTable]) -> list[Path]:
    """The files of tables that are not there, from the listing of each folder."""
    listings: dict[Path, frozenset[str]] = {}
    missing = []
    for table in tables:
        for path in map(table.file, range(len(table))):
            if path.parent not in listings:
                listings[path.parent] = _names(path.parent)
            if path.name not in listings[path.parent]:
                missing.append(path)
    return missing


def _names(folder: Path) -> frozenset[str]:
    try:
        with os.scandir(folder) as entries:
            return frozenset(entry.name for entry in entries if entry.is_file())
    except OSError:
        return frozenset()
