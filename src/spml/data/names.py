"""Class names: lists of them, and names so near to another that one may be a slip."""

from __future__ import annotations

import difflib
import os
import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from spml.data.table import LabelTable
from spml.errors import DataError
from spml.files import lines

OF_PREDICTIONS = (
    "image",
    "tags",
)  # columns of the files that predictions go to, beside those of the classes
GIVEN = "the names given"  # where a class list comes from that is no file
LISTS = (
    ".txt",
    ".csv",
    ".tsv",
    ".json",
    ".names",
    ".lst",
    ".list",
)  # how files end that hold class names
JOINING = re.compile(r"[,;/&+]")  # what people join names with, other than "|"
LIST = re.compile(r"\[\s*\]|\{\s*\}|[\[{].*['\"].*[\]}]", re.DOTALL)  # as Python and JSON write one
LOOKED_FOR = 20  # names that the near ones of a list are looked for; of 20,000 classes, each takes half a second
RARE = 10  # a class is suspiciously rare when another of nearly its name has so many times its positives


@dataclass(frozen=True)
class ClassList:
    """Classes in a fixed order.

    Attributes:
        display: name in the data -> name in tables and reports.
        source: where the list comes from, for messages.
    """

    display: dict[str, str]
    source: str
    _near: dict[str, str] = field(
        default_factory=dict, repr=False, compare=False
    )  # what was said of a name

    @property
    def renamed(self) -> dict[str, str] | None:
        """Each name in the data and the one to show; None where they are the same."""
        return self.display if any(name != shown for name, shown in self.display.items()) else None

    def lacking(self, name: str) -> str:
        """That a name is not in the list, and what to do."""
        if name not in self._near and len(self._near) < LOOKED_FOR:
            self._near[name] = suggestion(name, self.display)
        hint = self._near.get(name) or "; add it there" * (self.source != GIVEN)
        return f"is not in the class list ({self.source}){hint}"


def class_list(
    classes: str | Path | Sequence[str] | ClassList | None, known: Collection[str] = ()
) -> ClassList | None:
    """The class list from names, or from a file: one name a line, then optionally a tab and the name to show.

    Args:
        classes: names, the path of a file, or text, which is what `--classes` takes: see `from_text`. A list that was
            made before stays as it is.
        known: names that text may be one of.
    """
    if classes is None or isinstance(classes, ClassList):
        return classes
    found = from_text(classes, known) if isinstance(classes, str) else classes
    given: Iterable[str] = lines(found) if isinstance(found, Path) else found
    source = str(found) if isinstance(found, Path) else GIVEN
    display: dict[str, str] = {}
    shown_before: set[str] = set()
    for number, line in enumerate(given, 1):
        where = f"{source}, line {number}" if isinstance(found, Path) else source
        name, _, shown = (part.strip() for part in str(line).partition("\t"))
        shown = shown or name
        if name in display or shown in shown_before:
            twice = name if name in display else shown
            raise DataError(f"{where}: class {twice!r} stands twice; remove one")
        if name:
            refuse_name(shown, f"{where}: ")
            display[name] = shown
            shown_before.add(shown)
    if not display:
        raise DataError(
            f"{source}: no class names; give one a line of a file, or some joined by commas"
        )
    return ClassList(display, source)


def from_text(text: str, known: Collection[str] = ()) -> Path | list[str]:
    """The file of class names of this path, where there is one, else the names in the text, joined by commas.

    A name that is `known` stands for itself, also where it holds a comma or a file is called so.
    """
    if text in known:
        return [text]
    if os.path.lexists(text) and not Path(text).is_dir():
        return Path(text)
    if "," not in text and (text.lower().endswith(LISTS) or (os.sep in text and not known)):
        raise DataError(
            f"{text}: no such file of class names; check the path, or give names joined by commas"
        )
    return [name.strip() for name in text.split(",")]


def refuse_name(name: str, place: str) -> None:
    """Raise DataError for a class that predictions could not be written of.

    Args:
        name: as it is shown.
        place: the start of the message.
    """
    if name in OF_PREDICTIONS:
        problem = (
            f"class {name!r} is called like a column of predictions ({', '.join(OF_PREDICTIONS)})"
        )
    elif "|" in name:
        problem = f"class {name!r} contains '|', which joins class names"
    else:
        return
    raise DataError(
        f"{place}{problem}; rename it, or follow it by a tab and another name in a class list (--classes FILE)"
    )


def suggestion(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """`; did you mean 'dog'?` where a known name is near, else nothing."""
    folded = {other.casefold(): other for other in known}
    near = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=cutoff)
    return f"; did you mean {folded[near[0]]!r}?" if near else ""


class NearNames(NamedTuple):
    """Two class names that may be meant as one, with their numbers of positives."""

    name: str
    positives: int
    other: str
    other_positives: int


def near_duplicates(table: LabelTable) -> list[NearNames]:
    """Pairs of classes whose names differ only in case or spaces, or by one slip where one of them is rare."""
    counts = [int(count) for count in table.sparse.counts(1)]
    found = []
    for a, b in sorted(_candidates(table.classes)):
        first, second = sorted((a, b), key=lambda i: (counts[i], i))
        rare = counts[first] * RARE <= counts[second] or counts[first] == 1 < counts[second]
        if _plain(table.classes[a]) == _plain(table.classes[b]) or (
            rare and _one_slip(table.classes[a], table.classes[b])
        ):
            found.append(
                NearNames(
                    table.classes[first], counts[first], table.classes[second], counts[second]
                )
            )
    return found


def joined_names(classes: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Class names that are others joined by a sign that does not join them, such as 'dog, cat', and those others."""
    known = {_plain(name): name for name in reversed(classes)}
    found = []
    for name in classes:
        parts = [_plain(part) for part in JOINING.split(name)]
        if len(parts) > 1 and all(part in known for part in parts):
            found.append((name, [known[part] for part in parts]))
    return found


def written_lists(classes: Sequence[str]) -> dict[str, str]:
    """Class names that are a whole cell of names, such as "['dog', 'cat']" or two lines, and what they are."""
    found = {}
    for name in classes:
        if LIST.fullmatch(name):
            found[name] = "a list as a program writes it"
        elif len(name.splitlines()) > 1:
            found[name] = "several lines; is a quote missing in the file?"
    return found


def _plain(name: str) -> str:
    composed = unicodedata.normalize(
        "NFC", name
    ).casefold()  # an accent that stands by itself is no letter
    return (
        "".join(character for character in composed if character.isalnum()) or composed
    )  # such as an emoji


def _candidates(classes: Sequence[str]) -> set[tuple[int, int]]:
    """Pairs that share a spelling with at most one letter left out; a number is no letter, so class1 is not class2."""
    groups: dict[str, list[int]] = {}
    for i, name in enumerate(classes):
        plain = _plain(name)
        letters = [k for k in range(len(plain)) if len(plain) > 2 and not plain[k].isdigit()]
        for spelling in {plain, *(plain[:k] + plain[k + 1 :] for k in letters)}:
            groups.setdefault(spelling, []).append(i)
    return {
        (a, b)
        for members in groups.values()
        for k, a in enumerate(members)
        for b in members[k + 1 :]
    }


def _one_slip(a: str, b: str) -> bool:
    """Whether one letter was changed, added, left out, or exchanged with its neighbour."""
    a, b = _plain(a), _plain(b)
    if len(a) > len(b):
        a, b = b, a
    start = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), len(a))
    rest, other = a[start:], b[start:]
    if len(a) < len(b):
        return rest == other[1:]
    return rest[1:] == other[1:] or (rest[:2] == other[1::-1] and rest[2:] == other[2:])
