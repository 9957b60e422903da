"""Predict probabilities and tags of new pictures or feature vectors, written as they come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from spml.data.images.loader import Stream
from spml.data.readers.builder import OnError
from spml.data.readers.columns import Columns
from spml.errors import UserError
from spml.machine import decoders, out_of_memory
from spml.model import Classifier, ModelInfo, load_model
from spml.model.graphs import Replayed
from spml.model.scoring import score_stream
from spml.use.predict.inputs import Inputs, Note
from spml.use.predict.tagging import Rule, check_classes, parse_thresholds
from spml.use.predict.writers import ITEM, Predicted, format_of, writing
from spml.use.stored_model import NOT_NUMBERS, own_device

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
    with writing(out, kind, info.classes, probabilities=how.probabilities, item=item) as write:
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
