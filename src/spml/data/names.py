"""Class names: class lists, and names so similar to another that one may be a typing error."""

from __future__ import annotations

import difflib
import os
import re
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from spml.data.table import LabelTable
from spml.errors import DataError
from spml.files import lines

OF_PREDICTIONS = ("image", "tags")  # columns of prediction files, beside those of the classes
INLINE = "the names given"  # source of a class list that is not a file
LIST_SUFFIXES = (".txt", ".csv", ".tsv", ".json", ".names", ".lst", ".list")
SEPARATOR = re.compile(r"[,;/&+]")  # signs that people use instead of "|" to join names
PYTHON_LIST = re.compile(r"\[\s*\]|\{\s*\}|[\[{].*['\"].*[\]}]", re.DOTALL)  # or JSON's
MAX_SUGGESTIONS = 20  # names to search a suggestion for: with 20,000 classes one takes 0.5 s
FORMULA = re.compile(r"'*[=+\-@\t\r]")  # begins a cell that a spreadsheet may compute
RARE = 10  # a class is suspiciously rare if a similar name has this many times its positives


def text_cell(text: str) -> str:
    """Return a CSV cell that spreadsheets show as text, not as a formula."""
    return f"'{text}" if FORMULA.match(text) else text


def text_of(cell: str) -> str:
    """Undo `text_cell`."""
    return cell[1:] if cell.startswith("'") and FORMULA.match(cell) else cell


@dataclass(frozen=True)
class ClassList:
    """Classes in a fixed order."""

    display: dict[str, str]  # name in the data -> name in tables and reports
    source: str  # origin of the list, for messages
    _suggestions: dict[str, str] = field(default_factory=dict, repr=False, compare=False)

    @property
    def renamed(self) -> dict[str, str] | None:
        """Name in the data -> displayed name; None if all are equal."""
        return self.display if any(name != shown for name, shown in self.display.items()) else None

    def lacking(self, name: str) -> str:
        """Return the message that a name is not in the list, with a remedy."""
        if name not in self._suggestions and len(self._suggestions) < MAX_SUGGESTIONS:
            self._suggestions[name] = suggestion(name, self.display)
        hint = self._suggestions.get(name) or "; add it there" * (self.source != INLINE)
        return f"is not in the class list ({self.source}){hint}"


def class_list(
    classes: str | Path | Sequence[str] | ClassList | None, known: Collection[str] = ()
) -> ClassList | None:
    """Return a class list from names, a file, or the text of `--classes` (see `from_text`).

    A line of the file holds one name, then optionally a tab and the name to display.
    """
    if classes is None or isinstance(classes, ClassList):
        return classes
    origin = from_text(classes, known) if isinstance(classes, str) else classes
    entries: Iterable[str] = lines(origin) if isinstance(origin, Path) else origin
    source = str(origin) if isinstance(origin, Path) else INLINE
    display: dict[str, str] = {}
    displayed: set[str] = set()
    for number, line in enumerate(entries, 1):
        where = f"{source}, line {number}" if isinstance(origin, Path) else source
        name, _, shown = (part.strip() for part in str(line).partition("\t"))
        shown = shown or name
        if name in display or shown in displayed:
            twice = name if name in display else shown
            raise DataError(f"{where}: class {twice!r} appears twice; remove one")
        if name:
            refuse_name(shown, f"{where}: ")
            display[name] = shown
            displayed.add(shown)
    if not display:
        raise DataError(
            f"{source}: no class names; give one a line of a file, or some joined by commas"
        )
    return ClassList(display, source)


def from_text(text: str, known: Collection[str] = ()) -> Path | list[str]:
    """Return the path of an existing file of class names, else the names, joined by commas.

    A `known` name stands for itself, even if it contains a comma or a file has that name.
    """
    if text in known:
        return [text]
    if os.path.lexists(text) and not Path(text).is_dir():
        return Path(text)
    is_path = text.lower().endswith(LIST_SUFFIXES) or (os.sep in text and not known)
    if "," not in text and is_path:
        raise DataError(
            f"{text}: no such file of class names; check the path, or give names joined by commas"
        )
    return [name.strip() for name in text.split(",")]


def refuse_name(name: str, place: str) -> None:
    """Raise DataError for a displayed name that a file of predictions cannot hold."""
    problem = ""
    if name in OF_PREDICTIONS:
        problem = f"is also the name of a column of predictions ({', '.join(OF_PREDICTIONS)})"
    elif "|" in name:
        problem = "contains '|', which joins class names"
    if problem:
        raise DataError(
            f"{place}class {name!r} {problem}; rename it, "
            "or follow it by a tab and another name in a class list (--classes FILE)"
        )


def suggestion(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return `; did you mean 'dog'?` if a known name is similar, else an empty string."""
    folded = {other.casefold(): other for other in known}
    near = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=cutoff)
    return f"; did you mean {folded[near[0]]!r}?" if near else ""


class NearNames(NamedTuple):
    """Two class names that may mean one class, with their numbers of positives."""

    name: str
    positives: int
    other: str
    other_positives: int


def near_duplicates(table: LabelTable) -> list[NearNames]:
    """Return pairs of similar class names.

    The names differ only in case or spaces, or by one letter of each if one of them is rare.
    """
    counts = [int(count) for count in table.sparse.counts(1)]
    pairs = []
    for a, b in sorted(_candidates(table.classes)):
        first, second = sorted((a, b), key=lambda i: (counts[i], i))
        rare = counts[first] * RARE <= counts[second] or counts[first] == 1 < counts[second]
        name, other = table.classes[first], table.classes[second]
        if rare or _letters(name) == _letters(other):
            pairs.append(NearNames(name, counts[first], other, counts[second]))
    return pairs


def separated_names(classes: Sequence[str]) -> dict[str, str]:
    """Return class names that contain a sign between two words ('line, outdoor'), and the sign."""
    signs = {name: SEPARATOR.search(name.strip()[1:-1]) for name in classes}
    return {name: sign[0] for name, sign in signs.items() if sign is not None}


def separator_note(classes: Sequence[str]) -> str:
    """Return a warning of class names that may be several names; "" without any."""
    separated = separated_names(classes)
    if not separated:
        return ""
    name, sign = next(iter(separated.items()))
    noun = "class name contains" if len(separated) == 1 else "class names contain"
    return (
        f"{len(separated):,} {noun} a separator, such as {name!r}; "
        f"if several labels are meant, give --label-separator {sign!r}"
    )


def doubtful_names(classes: Sequence[str]) -> dict[str, str]:
    """Return class names that may be several names or a whole cell, and the reason."""
    known = {_letters(name): name for name in reversed(classes)}
    doubtful = {}
    for name, sign in separated_names(classes).items():
        parts = [known.get(_letters(part)) for part in SEPARATOR.split(name)]
        doubtful[name] = f"contains {sign!r}"
        if None not in parts:
            doubtful[name] = f"{' and '.join(map(repr, parts))} are classes too"
    for name in classes:
        if PYTHON_LIST.fullmatch(name):
            doubtful[name] = "a list as a program writes it"
        elif len(name.splitlines()) > 1:
            doubtful[name] = "several lines; is a quote missing in the file?"
    return doubtful


def _letters(name: str) -> str:
    """Return the letters and digits of a name, or all of it if it has none, such as an emoji."""
    composed = unicodedata.normalize("NFC", name).casefold()  # joins letters and their accents
    return "".join(character for character in composed if character.isalnum()) or composed


def _candidates(classes: Sequence[str]) -> set[tuple[int, int]]:
    """Return pairs that share a spelling with at most one letter of each left out.

    Digits are never left out, so that class1 is not class2.
    """
    groups: dict[str, list[int]] = defaultdict(list)
    for i, name in enumerate(classes):
        plain = _letters(name)
        letters = [k for k in range(len(plain)) if len(plain) > 2 and not plain[k].isdigit()]
        for spelling in {plain, *(plain[:k] + plain[k + 1 :] for k in letters)}:
            groups[spelling].append(i)
    return {pair for members in groups.values() for pair in combinations(members, 2)}
