"""The kinds of problems that a check reports."""

from __future__ import annotations

import re
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
    """Severity, name and remedy of a kind of problem; {one|many} in its name depends on number."""

    severity: Severity
    name: str
    remedy: str


NUMBER = re.compile(r"\{(.*?)\|(.*?)\}")  # singular and plural
COPIES = "{copy of a picture|copies of pictures}"
UNITE = "remove them, or unite them with --merge --fix OUT"
NOTHING = "nothing can be learned about them: add pictures"
KINDS = {
    "record": Kind("error", "row{|s} that cannot be read", "fix or remove them"),
    "missing": Kind(
        "error",
        "missing file{|s}",
        f"put them there, fix the paths, or give their folder with --root; {FEATURES}",
    ),
    "unreadable": Kind("error", "unreadable picture{|s}", "replace or remove them"),
    "leak": Kind("error", "picture{|s} in two splits", "keep each in one split"),
    "contradiction": Kind(
        "error", f"{COPIES} with contradictory labels", "keep one of the two labels"
    ),
    "untrainable": Kind("error", "lack{|s} of rows or labels", "add some"),
    "different": Kind("warning", f"{COPIES} with other labels", UNITE),
    "repeated": Kind(
        "warning",
        f"{COPIES} with the same labels",
        f"a random validation split may separate them: {UNITE}",
    ),
    "no_positive": Kind(
        "warning", "class{|es} without a positive", f"{NOTHING}, or leave them out"
    ),
    "test_only": Kind("warning", "class{|es} with positives in test only", f"{NOTHING} to train"),
    "few_positives": Kind(
        "warning",
        "class{|es} with few positives in train",
        "they will hardly be learned: add pictures, or leave them out",
    ),
    "near_names": Kind(
        "warning",
        "pair{|s} of class names that differ little",
        "if one is a typing error, write it as the other",
    ),
    "joined_names": Kind(
        "warning",
        "class name{|s} that may be several names",
        "if several labels are meant, join them by '|', or give --label-separator",
    ),
    "unlabelled": Kind(
        "warning",
        "row{|s} without a positive label",
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
    parts = []
    for kind, n in counts.items():
        if n:
            form = r"\1" if n == 1 else r"\2"
            parts.append(f"{n:,} {NUMBER.sub(form, KINDS[kind].name)}")
    return ", ".join(parts)


def count_kinds(problems: list[Problem]) -> dict[str, int]:
    """Count the problems of each kind, in the order of KINDS."""
    return {kind: len(group) for kind, group in Findings(problems).by_kind().items()}
