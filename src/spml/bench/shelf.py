"""Where runs and their records stand: plain folders, which any number of processes and machines may share."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from spml.bench.locks import Lock, stale
from spml.bench.plan import Record, Run, done_in
from spml.bench.record import read_record
from spml.errors import UserError
from spml.files import write_json, write_text
from spml.model.store import BEST
from spml.runs.names import CHECKPOINT, CONFIG, REPORT

State = Literal["done", "failed", "running", "pending"]
REMOVE = "remove it, and the run is made again"
SCORED = "scores"  # beside records, the folder of run folders without models
ATTEMPTS = 5  # processes that may die over a run before it counts as failed


@dataclass
class Shelf:
    """The folder of a table's runs.

    Attributes:
        path: holds runs/ID (run folders) and locks/ID.lock.
        records: holds ID.json of every run that is done or failed. Default: path/records.
        also: more folders that records are written to.
        keep: whether run folders stay once their run is recorded.
        scored: ids of runs whose folder, without its models, is put beside their record, in scores/ID.
    """

    path: Path
    records: Path | None = None
    also: tuple[Path, ...] = ()
    keep: bool = True
    scored: frozenset[str] = frozenset()
    _read: dict[str, Record] = field(default_factory=dict, repr=False)

    @property
    def home(self) -> Path:
        """The folder of records."""
        return self.records or self.path / "records"

    def run_folder(self, run_id: str) -> Path:
        """Where the run trains."""
        return self.path / "runs" / run_id

    def outcome(self, run_id: str) -> Record | None:
        """What is recorded of a run, or None while it is neither done nor failed."""
        if run_id not in self._read:
            path = self.home / f"{run_id}.json"
            if not path.is_file():
                return None
            try:
                self._read[run_id] = read_record(path, REMOVE)
            except UserError:
                if path.is_file():
                    raise
                return None  # another process has just taken it back
        return self._read[run_id]

    def state(self, run_id: str) -> State:
        """How far the run is."""
        record = self.outcome(run_id)
        if record is not None:
            return "done" if done_in(record) else "failed"
        lock = self._lock(run_id)
        return "running" if lock.exists() and not stale(lock) else "pending"

    def take(self, runs: Iterable[Run]) -> tuple[Run, Lock] | None:
        """The first run that nobody has done or is doing, with its lock."""
        for run in runs:
            if self.outcome(run.id) is not None:
                continue
            lock = Lock(self._lock(run.id))
            if not lock.take():
                continue
            if self.outcome(run.id) is not None:  # it was done in the meantime
                lock.release()
            elif lock.attempt > ATTEMPTS:
                self.write(
                    run, {"error": f"{ATTEMPTS} processes ended without a word while they made it"}
                )
                lock.release()
            else:
                return run, lock
        return None

    def write(self, run: Run, rest: Record) -> None:
        """Record a run that is done or failed."""
        record = {**run.plain(), **rest}
        for folder in (*self.also, self.home):
            if done_in(record) and run.id in self.scored:
                self._copy(record, folder / SCORED / run.id)
            write_text(folder / f"{run.id}.json", as_text(record))
        self._read[run.id] = record
        if done_in(record) and not self.keep:
            shutil.rmtree(self.run_folder(run.id), ignore_errors=True)

    def _copy(self, record: Record, to: Path) -> None:
        """The run folder without its models, its configuration without this machine's paths."""
        models = shutil.ignore_patterns(BEST, CHECKPOINT, REPORT, ".*")
        shutil.copytree(self.run_folder(record["id"]), to, ignore=models, dirs_exist_ok=True)
        write_json(to / CONFIG, {**record["config"], "versions": record["versions"]})

    def refuse_other_data(self, runs: Iterable[Run], data_sha256: str) -> None:
        """Raise UserError where a run that is done was made on other items or labels than the data now hold."""
        from spml.runs.record import other_data

        for run in runs:
            if other_data((self.outcome(run.id) or {}).get("config", {}), data_sha256):
                path = self.home / f"{run.id}.json"
                raise UserError(
                    f"{path} is a run on other items or labels than {run.data} has now; give another --out"
                )

    def forget_failures(self, runs: Iterable[Run]) -> int:
        """Take back the records of failed runs, so that they are made again; how many there were."""
        failed = [run.id for run in runs if self.state(run.id) == "failed"]
        for run_id in failed:
            (self.home / f"{run_id}.json").unlink(missing_ok=True)
            self._read.pop(run_id, None)
        return len(failed)

    def _lock(self, run_id: str) -> Path:
        return self.path / "locks" / f"{run_id}.lock"


def as_text(record: dict[str, Any]) -> str:
    """JSON with a line for each entry, so that long lists take one line."""
    lines = (
        f"  {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}"
        for name, value in record.items()
    )
    return "{\n" + ",\n".join(lines) + "\n}\n"
