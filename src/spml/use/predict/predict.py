"""Predict probabilities and tags of new pictures or feature vectors, written as they come."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from spml.data.images.loader import Stream
from spml.data.names import class_list, suggestion
from spml.data.readers.builder import OnError
from spml.data.readers.columns import Columns
from spml.errors import UserError
from spml.files import opening
from spml.machine import decoders, out_of_memory
from spml.model import Classifier, ModelInfo, load_model
from spml.model.graphs import Replayed
from spml.model.scoring import score_stream
from spml.model.store import read_info, tagged
from spml.use.predict.inputs import Inputs, Note
from spml.use.predict.writers import ITEM, Predicted, format_of, writing
from spml.use.stored_model import NOT_NUMBERS, own_device

Logits = npt.NDArray[np.float32]
Thresholds = dict[int, float]
BATCH_SIZES = {"cuda": 64, "cpu": 32}
LAUNCHING = 2  # cores left to the threads that launch the model's kernels on a GPU


@dataclass(frozen=True)
class Options:
    """Options of prediction; the defaults write calibrated probabilities and thresholded tags."""

    batch_size: int | None = None  # None: 64 on a GPU, 32 on a CPU
    threads: int | None = None  # of decoding; None: one per core, two less with a GPU, up to eight
    thresholds: Sequence[str] = ()  # 0.3, NAME=0.3 or FILE.json; later ones override
    top_k: int | None = None  # tag this many of the most probable classes; no thresholds
    at_least: int = 0  # tag this many of the most probable classes at least
    probabilities: bool = True  # write a column for each class
    raw: bool = False  # write the sigmoid of the model's logits, uncalibrated
    format: str | None = None  # csv, jsonl or parquet; None: by the file's name
    classes: str | Path | None = None  # that the model must have, in order: names or a file
    null: bool = False  # paths on standard input end in NUL
    columns: Columns = field(default_factory=Columns)  # of tables
    unescaped: bool = False  # write text as it stands, also what a spreadsheet would compute


def predict(
    run: Path,
    inputs: Sequence[str | Path],
    out: Path,
    options: Options | None = None,
    *,
    on_error: OnError | None = None,
    note: Note | None = None,
    advance: Callable[[int], None] | None = None,
) -> int:
    """Write `image, tags` and one probability column per class; return the number of rows.

    Rows of features have `id` in place of `image`. Inputs are read as needed and rows are written
    as they come, so memory stays bounded. `Inputs` describes `inputs`, `on_error` and `note`;
    `out` may be "-" for standard output; `advance` receives the number of items written so far.
    """
    how = options or Options()
    for name, value in (("--batch-size", how.batch_size), ("--threads", how.threads)):
        if value is not None and value < 1:
            raise UserError(f"{name} must be above 0, not {value}")
    kind = format_of(out, how.format)
    model, info = load_model(run)
    rule = Rule(parse_thresholds(how.thresholds, info), how.top_k, how.at_least, how.raw)
    rule.check(info)
    if how.classes is not None:
        check_classes(how.classes, info)
    items = Inputs(inputs, info, null=how.null, columns=how.columns, on_error=on_error, note=note)
    device = own_device()
    stream = reader(info, how.batch_size, how.threads, device)

    written = 0
    item = ITEM if items.features is None else "id"
    shape = {"probabilities": how.probabilities, "unescaped": how.unescaped}
    with writing(out, kind, info.classes, item=item, **shape) as write:
        score = Replayed(scorer(model, info, device), device, note)
        batches = stream.batches(items, on_error, score.prepare)
        for both, group in score_stream(score, batches, device):
            raw, calibrated = both
            if not torch.isfinite(both).all():
                raise UserError(f"{run}: {NOT_NUMBERS}")
            p = calibrated.sigmoid().numpy()
            shown = raw.sigmoid().numpy() if how.raw else p
            columns = rule.columns(raw.numpy(), calibrated.numpy(), info)
            tags = [[info.classes[i] for i in row] for row in columns]
            names = [item.name for item in group]
            write(Predicted(names, tags, shown if how.probabilities else None))
            written += len(group)
            if advance is not None:
                advance(written)
        if not written:
            raise UserError("none of the inputs could be read; nothing was written")
    return written


def reader(info: ModelInfo, batch_size: int | None, threads: int | None, device: str) -> Stream:
    """Return the stream of batches that the model takes."""
    how = info.preprocessing
    return Stream(
        size=int(how["size"]) if how["kind"] == "pictures" else None,
        batch_size=batch_size or BATCH_SIZES[device],
        threads=threads or decoders(LAUNCHING if device == "cuda" else 0),
        pinned=device == "cuda",
    )


def scorer(model: Classifier, info: ModelInfo, device: str) -> Callable[[Tensor], Tensor]:
    """Return a function from a batch to (2, B, classes): logits and calibrated logits."""
    model.to(device)
    calibrate = info.calibrate().to(device)

    def score(x: Tensor) -> Tensor:
        try:
            logits = model(x).float()
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            raise UserError(
                f"{device} has no room for {len(x)} items; give a smaller --batch-size"
            ) from error
        return torch.stack([logits, calibrate(logits)])

    return score


@dataclass(frozen=True)
class Rule:
    """How `predict` chooses tags."""

    thresholds: Thresholds  # replace the stored ones
    top_k: int | None = None  # tag this many of the most probable classes; no thresholds
    at_least: int = 0  # tag this many of the most probable classes at least
    raw: bool = False  # compare with uncalibrated logits, as `--raw` writes their probabilities

    def check(self, info: ModelInfo) -> None:
        """Raise UserError if the options contradict each other or the model."""
        if self.top_k is not None and (self.thresholds or self.at_least):
            raise UserError(
                "--top-k takes the place of thresholds; give it without --threshold and --at-least"
            )
        for name, value, least in (("--top-k", self.top_k, 1), ("--at-least", self.at_least, 0)):
            if value is not None and not least <= value <= len(info.classes):
                raise UserError(
                    f"{name} {value}: give {least} to {len(info.classes)}, the number of classes"
                )

    def columns(self, logits: Logits, calibrated: Logits, info: ModelInfo) -> list[list[int]]:
        """The tagged classes of each item.

        The model's own logits decide on tags; calibrated ones rank the classes.
        """
        if self.top_k is not None:
            return _highest(calibrated, self.top_k)
        rule = info.tag_rule
        tags = rule.tagged(logits)
        if self.thresholds:
            columns, thresholds = list(self.thresholds), list(self.thresholds.values())
            compared = logits if self.raw else rule.logits(logits)
            tags[:, columns] = tagged(compared[:, columns], thresholds)
        rows = [np.flatnonzero(row).tolist() for row in tags]
        if self.at_least:
            for row, best in zip(rows, _highest(calibrated, 2 * self.at_least), strict=True):
                others = [column for column in best if column not in row]
                row += others[: max(0, self.at_least - len(row))]
        return rows


def _highest(logits: Logits, count: int) -> list[list[int]]:
    """The classes of the highest logits, the highest first."""
    order: list[list[int]] = np.argsort(-logits, axis=1, kind="stable")[:, :count].tolist()
    return order


def parse_thresholds(texts: Sequence[str], info: ModelInfo) -> Thresholds:
    """Parse thresholds by class; later texts override earlier ones.

    A text is 0.3 (all classes), NAME=0.3, or FILE.json with {"NAME": 0.3}.
    """
    thresholds: Thresholds = {}
    for text in texts:
        where = f"--threshold {text}"
        name, equals, value = text.rpartition("=")
        if text.lower().endswith(".json"):
            thresholds |= _from_file(Path(text), info)
        elif equals:
            thresholds[class_column(name.strip(), info, where)] = _number(value, where)
        else:
            thresholds |= dict.fromkeys(range(len(info.classes)), _number(text, where))
    return thresholds


def _from_file(path: Path, info: ModelInfo) -> Thresholds:
    try:
        with opening(path):
            values = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not JSON ({' '.join(str(error).split())})") from None
    stored = values if isinstance(values, dict) else {}
    if isinstance(stored.get("classes"), list) and "thresholds" in stored:  # as in model.json
        names, numbers = stored["classes"], stored["thresholds"]
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
    """Column of a class; raise UserError, prefixed by `where`, if the model does not have it."""
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
            f"{where}: {value!r} is no probability; "
            "give a number from 0 to 1, NAME=NUMBER or FILE.json"
        )
    return number


def named_classes(text: str | None, run: Path) -> list[str]:
    """The names that `--classes` lists; empty without the option."""
    listed = None if text is None else class_list(text, read_info(run).classes)
    return [] if listed is None else list(listed.display.values())


def check_classes(classes: str | Path, info: ModelInfo) -> None:
    """Raise UserError if the names in a text or file are not the model's classes in their order."""
    expected = class_list(classes, info.classes)
    assert expected is not None
    names, source = list(expected.display.values()), expected.source
    if names == info.classes:
        return
    if sorted(names) == sorted(info.classes):
        raise UserError(
            f"{source}: the model has these classes in another order, {info.classes[0]!r} first"
        )
    for name in names:
        class_column(name, info, source)
    lacking = next(name for name in info.classes if name not in names)
    raise UserError(
        f"{source}: {len(names)} classes, the model has {len(info.classes)}, such as {lacking!r}"
    )
