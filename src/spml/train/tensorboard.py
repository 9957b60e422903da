"""A copy of the history for TensorBoard; history.jsonl stays authoritative."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any

from spml.errors import UserError


class TensorBoard:
    """Event files under RUN/tensorboard with every number of the history once.

    A resumed run writes them again from its whole history.

    Args:
        folder: of the event files.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._written = 0
        self._writer: Any = None

    def follow(self, history: Sequence[Mapping[str, Any]]) -> None:
        """Write the new lines of the history."""
        for line in history[self._written :]:
            for name, value in line.items():
                number = isinstance(value, int | float) and not isinstance(value, bool)
                if number and name != "epoch":
                    self._add(name, value, line["epoch"])
        self._written = len(history)
        if self._writer is not None:
            self._writer.flush()

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write the test figures at the chosen epoch."""
        for name in ("test_map", "test_score"):
            if result.get(name) is not None:
                self._add(name, result[name], result["best_epoch"])
        for name, value in (result.get("per_class_ap") or {}).items():
            self._add(f"test_ap/{name}", value, result["best_epoch"])

    def _add(self, name: str, value: float, epoch: int) -> None:
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            for old in self.folder.glob("events.out.tfevents.*"):
                old.unlink()
            self._writer = SummaryWriter(str(self.folder))
        self._writer.add_scalar(name, value, epoch)

    def __enter__(self) -> TensorBoard:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._writer is not None:
            self._writer.close()


def check_installed() -> None:
    """Raise UserError if TensorBoard is not installed."""
    if find_spec("tensorboard") is None:
        raise UserError(
            "--tensorboard needs a package that is not installed: pip install -e '.[tensorboard]'"
        )
