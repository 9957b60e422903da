"""Probabilities and tags for new pictures or feature vectors, written as they come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from spml.cores import decoders
from spml.data.readers.builder import OnError
from spml.errors import UserError
from spml.model import Classifier, ModelInfo, load_model
from spml.train.device import out_of_memory
from spml.use.predict.inputs import Inputs, Note
from spml.use.predict.prefetch import Ahead, answers
from spml.use.predict.replay import Replayed
from spml.use.predict.tagging import Rule, check_classes, parse_thresholds
from spml.use.predict.writers import Predicted, format_of, writing
from spml.use.stored_model import NOT_NUMBERS, own_device

AT_ONCE = {"cuda": 64, "cpu": 32}  # items
STARTING = 2  # cores that are left to what starts the model on a GPU


@dataclass(frozen=True)
class Options:
    """How to predict; the defaults write calibrated probabilities and tags by the stored thresholds.

    Attributes:
        batch_size: items at a time; when None, 64 on a GPU, 32 on a CPU.
        threads: that decode; when None, as many as there are cores (two less on a GPU), up to eight.
        thresholds: 0.3 for all classes, NAME=0.3 for one, or FILE.json; later ones count.
        top_k: tag so many of the most probable classes, in place of thresholds.
        at_least: tag so many of the most probable classes where fewer reach their thresholds.
        probabilities: write a column for each class.
        raw: write the sigmoid of the model's logits, uncalibrated.
        format: csv, jsonl or parquet, where the file's name does not say it.
        classes: that the model must have, in this order: their names joined by commas, or a file with one a line.
        null: paths on standard input end in NUL.
    """

    batch_size: int | None = None
    threads: int | None = None
    thresholds: Sequence[str] = field(default=())
    top_k: int | None = None
    at_least: int = 0
    probabilities: bool = True
    raw: bool = False
    format: str | None = None
    classes: str | Path | None = None
    null: bool = False


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
    """Write `image, tags` and one probability column per class for every input; gives how many were written.

    Inputs are read as they are needed and rows written as they come, so that memory does not grow with their number.

    Args:
        run: a run folder or its `best`.
        inputs: pictures, folders of pictures, tables with an `image` column, arrays, "-" for paths on standard input.
        out: .csv, .jsonl or .parquet, or "-" for standard output.
        options: how.
        on_error: told of each picture that cannot be read; without it the first one ends the work.
        note: told of what is passed over without being an error.
        advance: told how many items are done.
    """
    how = options or Options()
    for name, value in (("--batch-size", how.batch_size), ("--threads", how.threads)):
        if value is not None and value < 1:
            raise UserError(f"{name} must be above 0, not {value}")
    kind = format_of(out, how.format)
    model, info = load_model(run)
    rule = Rule(parse_thresholds(how.thresholds, info), how.top_k, how.at_least)
    rule.check(info)
    if how.classes is not None:
        check_classes(how.classes, info)
    items = Inputs(inputs, info, null=how.null, on_error=on_error, note=note)
    device = own_device()
    ahead = reader(info, how.batch_size, how.threads, device)
    written = 0
    with writing(out, kind, info.classes, probabilities=how.probabilities) as write:
        score = Replayed(scorer(model, info, device), device)
        for group, both in answers(score, ahead.batches(items, on_error, score.prepare), device):
            raw, calibrated = both
            if not torch.isfinite(both).all():
                raise UserError(f"{run}: {NOT_NUMBERS}")
            p = calibrated.sigmoid().numpy()
            shown = raw.sigmoid().numpy() if how.raw else p
            tags = [
                [info.classes[i] for i in row]
                for row in rule.columns(calibrated.numpy(), p, shown, info)
            ]
            write(
                Predicted([item.name for item in group], tags, shown if how.probabilities else None)
            )
            written += len(group)
            if advance is not None:
                advance(written)
        if not written:
            raise UserError("none of the inputs could be read; nothing was written")
    return written


def reader(info: ModelInfo, batch_size: int | None, threads: int | None, device: str) -> Ahead:
    """What makes batches ready as the model takes them."""
    how = info.preprocessing
    size = int(how["size"]) if how["kind"] == "pictures" else None
    together = batch_size or AT_ONCE[device]
    threads = threads or decoders(STARTING if device == "cuda" else 0)
    return Ahead(size, bool(how["upright"]), together, threads, pinned=device == "cuda")


def scorer(model: Classifier, info: ModelInfo, device: str) -> Callable[[Tensor], Tensor]:
    """From a batch on the device to logits and calibrated logits, (2, B, classes)."""
    model.to(device)
    calibrate = info.calibrate().to(device)

    def score(x: Tensor) -> Tensor:
        try:
            logits = model(x).float()
        except (RuntimeError, MemoryError) as error:
            if out_of_memory(error):
                raise UserError(
                    f"{device} has no room for {len(x)} items; give a smaller --batch-size"
                ) from error
            raise
        return torch.stack([logits, calibrate(logits)])

    return score
