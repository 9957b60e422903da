"""The store of a table's runs: plain folders that any number of processes and machines share."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from spml.bench.locks import Lock, stale
from spml.bench.plan import Record, Run, done_in
from spml.bench.record import as_text, read_record
from spml.errors import UserError
from spml.files import write_json, write_text
from spml.model.store import BEST
from spml.runs.names import CHECKPOINT, CONFIG, REPORT

State = Literal["done", "failed", "running", "pending"]
SCORED = "scores"  # beside records, the folder of run folders without models
Layout = Literal["id", "method"]
REMOVE = "delete the file to train the run again"
ATTEMPTS = 5  # processes that may die during a run before it counts as failed


@dataclass
class RunStore:
    """Run folders, records and locks of a table.

    Attributes:
        records: folder with ID.json of every finished or failed run. Default: path/records.
        also: additional folders that receive a copy of each record.
        keep: whether run folders stay after their run is recorded.
        scored: ids of runs whose folder is copied, without its models, to scores/ID.
        layout: names of run folders: runs/ID, or METHOD-SEED for a table of untuned methods.
    """

    path: Path
    records: Path | None = None
    also: tuple[Path, ...] = ()
    keep: bool = True
    scored: frozenset[str] = frozenset()
    layout: Layout = "id"
    _read: dict[str, Record] = field(default_factory=dict, repr=False)

    @property
    def home(self) -> Path:
        """The folder of records."""
        return self.records or self.path / "records"

    def run_folder(self, run: Run) -> Path:
        """Return the folder that the run trains in."""
        if self.layout == "method":
            return self.path / f"{run.method}-{run.seed}"
        return self.path / "runs" / run.id

    def outcome(self, run_id: str) -> Record | None:
        """Return the record of a run; None if the run is neither finished nor failed."""
        path = self.home / f"{run_id}.json"
        if run_id not in self._read and path.is_file():
            self._read[run_id] = read_record(path, REMOVE)
        return self._read.get(run_id)

    def state(self, run_id: str) -> State:
        """Return the state of a run."""
        record = self.outcome(run_id)
        if record is not None:
            return "done" if done_in(record) else "failed"
        lock = self._lock(run_id)
        return "running" if lock.exists() and not stale(lock) else "pending"

    def take(self, runs: Iterable[Run]) -> tuple[Run, Lock] | None:
        """Acquire the first run that is pending, and return it with its lock."""
        for run in runs:
            if self.outcome(run.id) is not None:
                continue
            lock = Lock(self._lock(run.id))
            if not lock.take():
                continue
            if self.outcome(run.id) is not None:  # recorded in the meantime
                lock.release()
            elif lock.attempt > ATTEMPTS:
                error = f"{ATTEMPTS} processes died without an error message while training it"
                self.write(run, {"error": error})
                lock.release()
            else:
                return run, lock
        return None

    def write(self, run: Run, rest: Record) -> None:
        """Record a finished or failed run."""
        record = {**run.plain(), **rest}
        for folder in (*self.also, self.home):
            if done_in(record) and run.id in self.scored:
                self._copy(run, record, folder / SCORED / run.id)
            write_text(folder / f"{run.id}.json", as_text(record))
        self._read[run.id] = record
        if done_in(record) and not self.keep:
            shutil.rmtree(self.run_folder(run), ignore_errors=True)

    def _copy(self, run: Run, record: Record, to: Path) -> None:
        """Copy the run folder without its models and without paths of this machine."""
        models = shutil.ignore_patterns(BEST, CHECKPOINT, REPORT, ".*")
        shutil.copytree(self.run_folder(run), to, ignore=models, dirs_exist_ok=True)
        write_json(to / CONFIG, {**record["config"], "versions": record["versions"]})

    def refuse_other_data(self, runs: Iterable[Run], data_sha256: str) -> None:
        """Raise UserError if a recorded run trained on other items or labels than the data hold."""
        from spml.runs.record import other_data

        for run in runs:
            if other_data((self.outcome(run.id) or {}).get("config", {}), data_sha256):
                path = self.home / f"{run.id}.json"
                raise UserError(
                    f"{path} is a run on other items or labels than {run.data} has now; "
                    "give another --out"
                )

    def forget_failures(self, runs: Iterable[Run]) -> int:
        """Delete the records of failed runs, and return their number."""
        failed = [run.id for run in runs if self.state(run.id) == "failed"]
        for run_id in failed:
            (self.home / f"{run_id}.json").unlink(missing_ok=True)
            self._read.pop(run_id, None)
        return len(failed)

    def _lock(self, run_id: str) -> Path:
        return self.path / "locks" / f"{run_id}.lock"
