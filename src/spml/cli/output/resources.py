"""Disk, memory and time that training on some pictures will take, from recorded benchmarks.

`tools/resource_table.py` writes resources.json from the records in benchmarks/results.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from spml import losses
from spml.data import Experiment, LabelTable
from spml.data.images.store import default_folder, format_bytes
from spml.machine import cores, decoders
from spml.runs.settings import AUTO, Resolved, Settings
from spml.train.device import uses_cuda
from spml.train.resolve import OWN, PICTURES, default_method

Table = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Work:
    """The amount of work of a run; `device` is None if it is not known yet."""

    train: int
    val: int
    test: int
    size: int
    epochs: int
    batch_size: int
    backbone: str
    race: float = 0.0  # epochs of a race of methods, in multiples of the run's
    cache: str = "disk"
    folder: Path
    device: Literal["cpu", "cuda"] | None = None

    @property
    def pictures(self) -> int:
        """Number of pictures to decode."""
        return self.train + self.val + self.test

    @property
    def decoded(self) -> int:
        """Bytes of the decoded pictures."""
        return 3 * self.size**2 * self.pictures


def work_of(experiment: Experiment, settings: Resolved) -> Work | None:
    """Return the work of a run; None if the data are arrays, which are not decoded."""
    if experiment.observed.x is not None:
        return None
    return Work(
        train=len(experiment.train_rows),
        val=len(experiment.val_rows),
        test=0 if experiment.test is None else len(experiment.test),
        size=settings.size,
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        backbone=settings.backbone,
        race=settings.race_budget if settings.method == AUTO else 0.0,
        cache=settings.cache,
        folder=settings.cache_dir,
        device="cuda" if uses_cuda(settings.accelerator) else "cpu",
    )


def work_on(tables: Mapping[str, LabelTable], data: str, size: int | None) -> Work | None:
    """Return the work of a run with default settings; None if the data are arrays."""
    if any(table.x is not None for table in tables.values()):
        return None
    counts = {split: len(table) for split, table in tables.items()}
    train, val = counts.get("train", 0), counts.get("val", 0)
    if not val:
        val = train // 5
        train -= val
    defaults, values = OWN, {"epochs": OWN.epochs, "batch_size": OWN.batch_size}
    if data in losses.datasets():
        defaults, values = PICTURES, losses.preset("gr", data).training
    return Work(
        train=train,
        val=val,
        test=counts.get("test", 0),
        size=size or defaults.size or 0,
        epochs=int(values["epochs"]),
        batch_size=int(values["batch_size"]),
        backbone=defaults.backbone,
        race=Settings().race_budget if default_method(data) == AUTO else 0.0,
        folder=default_folder(),
    )


def resource_lines(work: Work) -> Iterator[str]:
    """Yield at most three lines: disk, memory and time."""
    table = recorded()
    if work.cache != "none":
        yield _disk(work, table["decoding"])
    if text := _memory(work, table["memory"]):
        yield text
    if text := _time(work, table["speed"]):
        yield text


def recorded() -> Table:
    """Return the table of recorded speeds and memory."""
    text = (files("spml.cli.output") / "resources.json").read_text(encoding="utf-8")
    table: Table = json.loads(text)
    return table


def _disk(work: Work, decoding: Table) -> str:
    """Describe the disk space and decoding time of all pictures, cached ones included."""
    place = next(path for path in (work.folder, *work.folder.absolute().parents) if path.exists())
    free = format_bytes(shutil.disk_usage(place).free)
    each = (work.size / decoding["size"]) ** 2 / decoding["pictures_per_second"]
    seconds = work.pictures * each / decoders()
    return (
        f"disk: {work.pictures:,} pictures at {work.size} px are {format_bytes(work.decoded)} "
        f"decoded, in {work.folder} ({free} free); decoding takes about {about(seconds)}"
    )


def _memory(work: Work, table: Table) -> str | None:
    """Describe the memory of a run on a CPU; on a GPU, only that of its pictures."""
    if work.device == "cuda":
        if work.cache != "device":
            return None
        return f"GPU memory: {format_bytes(work.decoded)} for the pictures, if free"
    if work.backbone not in table:
        return None
    row = table[work.backbone]
    needed = row["base"] + row["per_pixel"] * work.batch_size * work.size**2
    if work.cache == "memory":
        needed += work.decoded
    batches = f"in batches of {work.batch_size}"
    return f"memory on a CPU: about {format_bytes(needed)} {batches} with {work.backbone}"


def _time(work: Work, rows: list[Table]) -> str | None:
    """Describe the time of training on the devices that benchmarks were recorded on."""
    own = [row for row in rows if row["backbone"] == work.backbone]
    if work.device is not None:
        own = [row for row in own if row["device"] == work.device]
    if not own:
        return None
    parts = [f"{about(_seconds(work, row))} on {row['on']}" for row in own]
    text = f"time: about {' or '.join(parts)} for {work.epochs} epochs of {work.backbone}"
    if work.device == "cpu":
        text += f" (this machine has {cores()})"
    if work.race:
        text += f"; the race of methods makes it up to {1 + work.race:g} times as long"
    return text


def _seconds(work: Work, row: Table) -> float:
    trained = work.epochs * work.train * row["train_seconds"]
    scored = (work.epochs * work.val + work.test) * row["score_seconds"]
    return float((trained + scored) * (work.size / row["size"]) ** 2)


def about(seconds: float) -> str:
    """Format an estimate with two digits: 40 s, 4 min, 1.5 h, 18 h, 3 days."""
    for unit, length, limit in (("s", 1, 90), ("min", 60, 90), ("h", 3600, 48)):
        if seconds < limit * length:
            value = max(seconds, 1) / length
            return f"{value:.1f} {unit}" if unit == "h" and value < 10 else f"{value:.0f} {unit}"
    return f"{seconds / 86400:,.0f} days"
