"""Which classes an item is tagged with: thresholds, stored or given, or the most probable ones."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spml.data.names import class_list, suggestion
from spml.errors import UserError
from spml.files import opening
from spml.model import ModelInfo
from spml.model.store import read_info

Values = npt.NDArray[np.float32]
Given = dict[int, float]


@dataclass(frozen=True)
class Rule:
    """How tags are chosen.

    Attributes:
        given: thresholds by class, in place of the stored ones; they are compared with the probabilities shown.
        top_k: so many of the most probable classes, in place of thresholds.
        at_least: so many of the most probable classes where fewer reach their thresholds.
    """

    given: Given
    top_k: int | None = None
    at_least: int = 0

    def check(self, info: ModelInfo) -> None:
        """Raise UserError for what cannot be meant."""
        if self.top_k is not None and (self.given or self.at_least):
            raise UserError(
                "--top-k takes the place of thresholds; give it without --threshold and --at-least"
            )
        for name, value in (("--top-k", self.top_k), ("--at-least", self.at_least)):
            least = 1 if name == "--top-k" else 0
            if value is not None and not least <= value <= len(info.classes):
                raise UserError(
                    f"{name} {value}: give {least} to {len(info.classes)}, the number of classes"
                )

    def columns(
        self, logits: Values, probabilities: Values, shown: Values, info: ModelInfo
    ) -> list[list[int]]:
        """The classes of each row.

        Args:
            logits: calibrated, which classes are ranked by.
            probabilities: calibrated, which stored thresholds are compared with.
            shown: those that are written.
            info: of the model.
        """
        if self.top_k is not None:
            return _highest(logits, self.top_k)
        chosen = probabilities >= np.asarray(info.thresholds, np.float32)
        for column, threshold in self.given.items():
            chosen[:, column] = shown[:, column] >= np.float32(threshold)
        found = [np.flatnonzero(row).tolist() for row in chosen]
        if self.at_least:
            for row, best in zip(found, _highest(logits, 2 * self.at_least), strict=True):
                row += [column for column in best if column not in row][
                    : max(0, self.at_least - len(row))
                ]
        return found


def _highest(logits: Values, count: int) -> list[list[int]]:
    """The classes of the highest logits, the highest first."""
    order = np.argsort(-logits, axis=1, kind="stable")[:, :count]
    return [[int(column) for column in row] for row in order]


def parse_thresholds(given: Sequence[str], info: ModelInfo) -> Given:
    """Thresholds by class from 0.3 (all classes), NAME=0.3, and FILE.json with {"NAME": 0.3}; later ones count."""
    found: Given = {}
    for text in given:
        where = f"--threshold {text}"
        name, equals, value = text.rpartition("=")
        if text.lower().endswith(".json"):
            found |= _from_file(Path(text), info)
        elif equals:
            found[class_column(name.strip(), info, where)] = _number(value, where)
        else:
            found |= dict.fromkeys(range(len(info.classes)), _number(text, where))
    return found


def _from_file(path: Path, info: ModelInfo) -> Given:
    try:
        with opening(path):
            values = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not JSON ({' '.join(str(error).split())})") from None
    if (
        isinstance(values, dict)
        and isinstance(values.get("classes"), list)
        and "thresholds" in values
    ):
        names, numbers = values["classes"], values["thresholds"]  # as model.json has them
        if not isinstance(numbers, list) or len(names) != len(numbers):
            raise UserError(
                f"{path}: thresholds must be a list with one number for each of the classes"
            )
        values = dict(zip(map(str, names), numbers, strict=True))
    if not isinstance(values, dict):
        raise UserError(
            f'{path}: must hold thresholds by class name, such as {{"{info.classes[0]}": 0.3}}'
        )
    return {
        class_column(name, info, str(path)): _number(value, f"{path}: {name}")
        for name, value in values.items()
    }


def class_column(name: str, info: ModelInfo, where: str) -> int:
    """The place of a class; UserError, which begins with where the name was given, if the model has none such."""
    if name not in info.classes:
        raise UserError(f"{where}: the model has no class {name!r}{suggestion(name, info.classes)}")
    return info.classes.index(name)


def _number(value: Any, where: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, bool) or not 0 <= number <= 1:
        raise UserError(
            f"{where}: {value!r} is no probability; give a number from 0 to 1, NAME=NUMBER or FILE.json"
        )
    return number


def named_classes(text: str | None, run: Path) -> list[str]:
    """The names that `--classes` gives, none where no text is given."""
    given = None if text is None else class_list(text, read_info(run).classes)
    return [] if given is None else list(given.display.values())


def check_classes(classes: str | Path, info: ModelInfo) -> None:
    """Raise UserError where the names in a text or file are not the model's classes in their order."""
    wanted = class_list(classes, info.classes)
    assert wanted is not None
    names, source = list(wanted.display.values()), wanted.source
    if names == info.classes:
        return
    if sorted(names) == sorted(info.classes):
        raise UserError(
            f"{source}: the model has these classes in another order, {info.classes[0]!r} first"
        )
    for name in names:
        if name not in info.classes:
            raise UserError(
                f"{source}: the model has no class {name!r}{suggestion(name, info.classes)}"
            )
    lacking = next(name for name in info.classes if name not in names)
    raise UserError(
        f"{source}: {len(names)} classes, the model has {len(info.classes)}, such as {lacking!r}"
    )
