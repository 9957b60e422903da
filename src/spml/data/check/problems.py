"""The kinds of problems that a check reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from spml.errors import FEATURES

Severity = Literal["error", "warning"]


class Place(NamedTuple):
    """A row of one split's table."""

    split: str
    row: int


@dataclass(frozen=True)
class Kind:
    """Severity, singular, plural and remedy of a kind of problem."""

    severity: Severity
    one: str
    many: str
    remedy: str


KINDS = {
    "record": Kind(
        "error", "row that cannot be read", "rows that cannot be read", "fix or remove them"
    ),
    "missing": Kind(
        "error",
        "missing file",
        "missing files",
        f"put them there, fix the paths, or give their folder with --root; {FEATURES}",
    ),
    "unreadable": Kind(
        "error", "unreadable picture", "unreadable pictures", "replace or remove them"
    ),
    "leak": Kind(
        "error", "picture in two splits", "pictures in two splits", "keep each in one split"
    ),
    "contradiction": Kind(
        "error",
        "copy of a picture with contradictory labels",
        "copies of pictures with contradictory labels",
        "keep one of the two labels",
    ),
    "untrainable": Kind("error", "lack of rows or labels", "lacks of rows or labels", "add some"),
    "different": Kind(
        "warning",
        "copy of a picture with other labels",
        "copies of pictures with other labels",
        "remove them, or unite them with --merge --fix OUT",
    ),
    "repeated": Kind(
        "warning",
        "copy of a picture with the same labels",
        "copies of pictures with the same labels",
        "a random validation split may separate them: "
        "remove them, or unite them with --merge --fix OUT",
    ),
    "no_positive": Kind(
        "warning",
        "class without a positive",
        "classes without a positive",
        "nothing can be learned about them: add pictures, or leave them out",
    ),
    "test_only": Kind(
        "warning",
        "class with positives in test only",
        "classes with positives in test only",
        "nothing can be learned about them: add pictures to train",
    ),
    "few_positives": Kind(
        "warning",
        "class with few positives in train",
        "classes with few positives in train",
        "they will hardly be learned: add pictures, or leave them out",
    ),
    "near_names": Kind(
        "warning",
        "pair of class names that differ little",
        "pairs of class names that differ little",
        "if one is a typing error, write it as the other",
    ),
    "joined_names": Kind(
        "warning",
        "class name that may be several names",
        "class names that may be several names",
        "if several labels are meant, join them by '|', or give --label-separator",
    ),
    "unlabelled": Kind(
        "warning",
        "row without a positive label",
        "rows without a positive label",
        "training uses them as pictures with nothing, or only negatives, known",
    ),
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a data set: its kind, one of KINDS, its description, and its place if any."""

    kind: str
    message: str
    split: str | None = None
    row: int | None = None

    @property
    def severity(self) -> Severity:
        """An error must be fixed, a warning may be intended."""
        return KINDS[self.kind].severity


@dataclass(frozen=True)
class Findings:
    """All problems of a data set, and the groups of rows with the same picture."""

    problems: list[Problem]  # in the order of splits and rows within each kind
    copies: list[tuple[Place, ...]] = field(default_factory=list, repr=False)

    @property
    def errors(self) -> list[Problem]:
        """The problems that must be fixed."""
        return [one for one in self.problems if one.severity == "error"]

    @property
    def warnings(self) -> list[Problem]:
        """The problems that may be intended."""
        return [one for one in self.problems if one.severity == "warning"]

    def by_kind(self) -> dict[str, list[Problem]]:
        """Group the problems by kind, in the order of KINDS."""
        groups: dict[str, list[Problem]] = {kind: [] for kind in KINDS}
        for one in self.problems:
            groups[one.kind].append(one)
        return {kind: group for kind, group in groups.items() if group}


def counted(counts: Mapping[str, int]) -> str:
    """Format numbers of problems: "2 missing files, 1 unreadable picture"."""
    return ", ".join(
        f"{n:,} {KINDS[kind].one if n == 1 else KINDS[kind].many}"
        for kind, n in counts.items()
        if n
    )


def count_kinds(problems: list[Problem]) -> dict[str, int]:
    """Count the problems of each kind, in the order of KINDS."""
    counts = Counter(one.kind for one in problems)
    return {kind: counts[kind] for kind in KINDS if kind in counts}
