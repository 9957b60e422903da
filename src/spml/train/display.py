"""Output of training: a bar and lines on the terminal."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from spml.data import Experiment
from spml.data.images import build
from spml.runs.settings import Resolved
from spml.train.resolve import decided_text


class Display(build.Progress):
    """Progress bars on a terminal, lines elsewhere, nothing if quiet."""

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

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *details: object) -> None:
        self._progress.stop()

    def begin(self, what: str, total: int, done: int = 0) -> None:
        """Replace the bar by one over `total` items, `done` of them finished."""
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(what, total=total, completed=done, note="")
        self._started = self._shown = time.perf_counter()

    def advance(self, count: int, loss: float | None = None) -> None:
        """Advance the bar by some items; `loss` is the last one known."""
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
        """Print a line."""
        if not self.quiet:
            self._progress.console.print(text, highlight=False, markup=False, soft_wrap=True)


def headline(experiment: Experiment, settings: Resolved, options: Mapping[str, Any]) -> str:
    """Return the first line of a run: data, method with the options the data decided, model."""
    tested = 0 if experiment.test is None else len(experiment.test)
    train, val = len(experiment.train_rows), len(experiment.val_rows)
    model = settings.backbone
    if settings.head != "linear":
        model += f" with head {settings.head}"
    return (
        f"{experiment.name}: {train:,} train, {val:,} val, {tested:,} test, "
        f"{len(experiment.classes)} classes; "
        f"{settings.method}{decided_text(settings.method, experiment, options)} on {model}"
    )


def epoch_text(line: Mapping[str, Any], selection: str, best: bool) -> str:
    """Return the printed form of a line of the history."""
    parts = [f"epoch {line['epoch']:>2}", f"loss {line['loss']:.4f}"]
    if line["val_map"] is not None:
        name = "val mAP" if selection == "complete" else "val score"
        parts.append(f"{name} {line['val_map']:.2f}")
        if best:
            parts.append("best")
    if "skipped" in line:
        parts.append(f"{line['skipped']} batches skipped")
    return "  ".join(parts)


def result_lines(result: Mapping[str, Any], run: Path, last_is_best: bool) -> Iterator[str]:
    """Yield the last lines of a run: the chosen epoch with its test figure, and advice."""
    text = f"chosen epoch {result['best_epoch']}"
    if result["test_map"] is not None:
        text += f", test mAP {result['test_map']:.2f}"
        if "test_known" in result:
            text += f" over the {result['test_known']:.1%} of test labels that are known"
    yield f"{text}; {result['seconds']:.0f} s; {run}"
    if last_is_best:
        yield "the last epoch is the best: more --epochs or a higher --lr may improve the result"
