"""What a person sees while training: a bar with loss, images/s and time left, and a line an epoch."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from spml.data import Experiment
from spml.runs.settings import Settings


class Display:
    """Bars on a terminal, lines elsewhere, nothing when told to be quiet."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        self.console = Console()
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            disable=quiet or not self.console.is_terminal,
        )
        self._task: Any = None
        self._started = self._shown = 0.0

    def __enter__(self) -> Display:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def begin(self, what: str, total: int, done: int = 0) -> None:
        """Start a bar over `total` items, some of them done, in place of the last one."""
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(what, total=total, completed=done, note="")
        self._started = self._shown = time.perf_counter()

    def advance(self, count: int, loss: float | None = None) -> None:
        """Some items are done; `loss` is the last that is known."""
        if self._progress.disable:
            return
        now = time.perf_counter()
        self._progress.advance(self._task, count)
        if now - self._shown > 0.25:
            done = self._progress.tasks[-1].completed
            rate = f"{done / (now - self._started):,.0f} images/s"
            self._progress.update(
                self._task, note=rate if loss is None else f"loss {loss:.4f}  {rate}"
            )
            self._shown = now

    def line(self, text: str) -> None:
        """A line that stays."""
        if not self.quiet:
            self._progress.console.print(text, highlight=False, markup=False, soft_wrap=True)


def headline(experiment: Experiment, settings: Settings) -> str:
    """The first line of a run: data, method and model."""
    e, s = experiment, settings
    counts = f"{len(e.train_rows):,} train, {len(e.val_rows):,} val, {len(e.test) if e.test else 0:,} test"
    model = f"{s.backbone}" if s.head == "linear" else f"{s.backbone} with head {s.head}"
    return f"{e.name}: {counts}, {len(e.classes)} classes; {s.method} on {model}"


def test_words(tested: Mapping[str, Any]) -> str:
    """What the last line of a run says of its test figure, if it has one."""
    if tested["test_map"] is None:
        return ""
    known = tested.get("test_known")
    over = "" if known is None else f" over the {known:.1%} of test labels that are known"
    return f", test mAP {tested['test_map']:.2f}{over}"
