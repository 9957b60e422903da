"""The run folder as training writes it: one owner at a time, replaced safely, resumed exactly."""

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from filelock import lock_descriptor

from spml.data import Experiment
from spml.data.images.cache import Cache
from spml.errors import UserError
from spml.files import Record, read_arrays, read_json, replacing, write_json, write_text
from spml.model.store import BEST
from spml.runs import names, settings
from spml.runs.checkpoint import BEGIN_ANEW, read_checkpoint, write_checkpoint
from spml.runs.record import contents


class TakenError(UserError):
    """Another process trains into the folder."""


class Claim(ExitStack):
    """Locks on files, held until the block ends or the process dies. Readers do not notice."""

    def __init__(self) -> None:
        super().__init__()
        self._files: list[BinaryIO] = []

    def take(self, path: Path) -> None:
        """Lock a file if it exists; TakenError if another process holds its lock.

        A file that cannot be opened or locked is ignored: its file system may not support locks,
        and nobody can train into a folder without write access. Windows is left out because its
        locks keep others from reading the file.
        """
        if sys.platform == "win32":
            return
        try:
            file = path.open("rb+")
        except OSError:
            return
        if any(os.path.sameopenfile(file.fileno(), own.fileno()) for own in self._files):
            file.close()
            return
        try:
            locked = lock_descriptor(file.fileno(), blocking=False)
        except OSError:
            locked = True
        if not locked:
            file.close()
            raise TakenError(
                f"another process trains into {path.parent}; wait for it, or give another --out"
            )
        self._files.append(self.enter_context(file))
        self.callback(self._files.remove, file)


@dataclass(frozen=True)
class RunFolder:
    """Writer of a run folder; each file is complete or absent."""

    path: Path
    # on config.json, which exists as long as the run does
    claim: Claim = field(default_factory=Claim, compare=False)

    @property
    def checkpoint(self) -> Path:
        """Checkpoint that training resumes from."""
        return self.path / names.CHECKPOINT

    @property
    def previous(self) -> Path:
        """The checkpoint before the last one."""
        return self.path / names.PREVIOUS

    @property
    def best(self) -> Path:
        """Folder of the chosen model."""
        return self.path / BEST

    @property
    def _aside(self) -> Path:
        """Folder of the run to be replaced, until the new run has a checkpoint."""
        # inside the run folder, which may be a link, a mount point, or alone writable
        return self.path / ".replaced"

    @property
    def _moving(self) -> Path:
        """Folder of that run while its files are moved in or out, so that it may be incomplete."""
        return self.path / ".moving"

    def check(
        self, config: Record, *, resume: bool, overwrite: bool, accepted: bool = False
    ) -> bool:
        """Return whether there is a run to resume; UserError if something is in the way."""
        self._claim()
        self._restore()
        self._claim()
        self._remove_parts()
        exists = (self.path / names.CONFIG).exists()
        if exists and resume:
            stored = read_json(self.path / names.CONFIG)
            if other := settings.mismatch(stored, config):
                raise self._begun_with(other)
            self._note_paths(stored, config, accepted)
            return True
        if exists and not overwrite:
            raise UserError(
                f"{self.path} already holds a run; give --resume, --overwrite or another --out"
            )
        if self.path.exists() and not self.path.is_dir():
            raise UserError(f"{self.path} is a file, not a folder; give another --out")
        if not exists and self.path.is_dir() and any(self.path.iterdir()):
            raise UserError(f"{self.path} is not empty and holds no run; give another --out")
        return False

    def begin(self, config: Record) -> None:
        """Move an existing run aside and begin a new one."""
        if owned := self._owned():
            self._moving.mkdir(parents=True)
            for old in owned:
                old.rename(self._moving / old.name)
            self._moving.rename(self._aside)
        self.path.mkdir(parents=True, exist_ok=True)
        self.write_config(config)

    def abandon(self) -> bool:
        """Remove a run without a checkpoint and restore its predecessor; whether it did so."""
        if self._moving.is_dir():  # interrupted in `begin`
            self._restore()
            return True
        if self.progressed:
            return False
        self._remove()
        self._restore()
        # The folder may hold other files, or be a link, a mount point or the current folder.
        with suppress(OSError):
            self.path.rmdir()
        return True

    @property
    def progressed(self) -> bool:
        """Whether the run has something to resume: a checkpoint, or a candidate of a race."""
        progress = names.CHECKPOINT, names.PREVIOUS, names.RACE
        return any((self.path / name).exists() for name in progress)

    def write_race(self, content: Record) -> None:
        """Write the record of a race."""
        write_json(self.path / names.RACE, content)

    def adopt(self, winner: Path, config: Record) -> None:
        """Make a finished candidate's files those of this run, and config.json the given one.

        The checkpoints and models of all candidates are removed last, so that it can be repeated
        after any interruption.
        """
        for name in names.ADOPTED:
            source, target = winner / name, self.path / name
            if source.is_dir():
                shutil.copytree(source, target, dirs_exist_ok=True)
            elif source.exists():
                with replacing(target) as beside:
                    shutil.copyfile(source, beside)
        changes = read_json(self.path / names.CONFIG).get(settings.CHANGED)
        entry = {} if changes is None else {settings.CHANGED: changes}
        self.write_config({**config, **entry})
        for candidate in (self.path / names.RACE_FOLDER).glob("*"):
            shutil.rmtree(candidate / BEST, ignore_errors=True)
            (candidate / names.CHECKPOINT).unlink(missing_ok=True)

    def write_labels(self, experiment: Experiment, val_truth: npt.NDArray[np.int8]) -> list[str]:
        """Write the observed labels, and the labels that reports compare scores with.

        Files that hold them already are left alone. Returns the names of the others.
        """
        observed = experiment.observed
        labels = {"classes": np.array(list(experiment.classes)), "val_truth": val_truth}
        if experiment.test is not None:
            labels["test_truth"] = experiment.test.labels
        files: dict[str, dict[str, npt.NDArray[Any]]] = {names.LABELS: labels}
        if len(observed) * len(experiment.classes) <= 2**31:
            files[names.OBSERVED] = {
                "observed": observed.labels,
                "train_rows": experiment.train_rows,
                "val_rows": experiment.val_rows,
                "sha256": np.array(experiment.sha256),
            }
        written = [name for name, arrays in files.items() if not self._holds(name, arrays)]
        for name in written:
            self._npz(name, **files[name])
        return written

    def write_contents(
        self, experiment: Experiment, cache: Cache | None = None, *, anew: bool = False
    ) -> None:
        """Write hashes of all items, unless the run has them and they are not written anew."""
        if anew or not (self.path / names.CONTENTS).exists():
            self._npz(names.CONTENTS, **contents(experiment, cache))

    def write_config(self, config: Record) -> None:
        """Replace config.json."""
        write_json(self.path / names.CONFIG, config)
        self._claim()

    def write_scores(self, name: str, logits: npt.NDArray[np.float32]) -> None:
        """Write the logits of a split as float16; `scores_name` gives the name."""
        limit = np.finfo(np.float16).max
        self._npz(
            f"{names.SCORES}/{name}.npz", logits=np.clip(logits, -limit, limit).astype(np.float16)
        )

    def write_history(self, history: list[Record]) -> None:
        """Write the history, a line per epoch."""
        write_text(self.path / names.HISTORY, "".join(json.dumps(line) + "\n" for line in history))

    def write_result(self, result: Record) -> None:
        """Write the result, the last file of a run."""
        self.previous.unlink(missing_ok=True)
        write_json(self.path / names.RESULT, result)

    def save_checkpoint(self, state: Record, keep: bool = True) -> None:
        """Write the checkpoint; the run that this one replaces is removed.

        The checkpoint before it stays as `previous`, unless that is not to be kept.
        """
        previous = self.previous if keep else None
        write_checkpoint(self.checkpoint, {**state, "run": self._identity()}, previous)
        shutil.rmtree(self._aside, ignore_errors=True)

    def load_checkpoint(self, report: Callable[[str], None] | None = None) -> Record | None:
        """Read the checkpoint of this run; None if there is none.

        If the last one is missing or damaged and the one before is whole, that one is read, and
        `report` receives a line about it.
        """
        damage: UserError | None = None
        for path in (self.checkpoint, self.previous):
            if path.exists():
                try:
                    state = read_checkpoint(path)
                except UserError as error:
                    damage = damage or error
                    continue
                self._refuse_other_run(path, state)
                if path == self.previous and report is not None:
                    what = "missing" if damage is None else "damaged"
                    report(f"{self.checkpoint} is {what}; resuming from {path.name} before it")
                return state
        if damage is not None:
            raise damage
        return None

    def check_checkpoints(self) -> None:
        """Raise UserError if a checkpoint is damaged or that of another run."""
        for path in (self.checkpoint, self.previous):
            if path.exists():
                self._refuse_other_run(path, read_checkpoint(path))

    def _refuse_other_run(self, path: Path, state: Record) -> None:
        if state.get("run") not in (None, self._identity()):
            raise UserError(
                f"{path} is that of another run: it was written with other settings or "
                f"data than those in {names.CONFIG}; put its own back, or {BEGIN_ANEW}"
            )

    def _claim(self) -> None:
        self.claim.take(self.path / names.CONFIG)

    def _restore(self) -> None:
        """Undo the moves of a run that was killed before its first checkpoint."""
        if self._aside.is_dir() and self.progressed:
            shutil.rmtree(self._aside)
        elif self._aside.is_dir():
            self._remove()
            self._aside.rename(self._moving)
        if self._moving.is_dir():
            self.path.mkdir(parents=True, exist_ok=True)
            for old in self._moving.iterdir():
                old.rename(self.path / old.name)
            self._moving.rmdir()

    def _remove_parts(self) -> None:
        """Remove the files that a killed process did not finish."""
        for name in names.WRITTEN:
            path = self.path / name
            for unfinished in path.parent.glob(f".{path.name}.*.part"):
                unfinished.unlink()

    def _remove(self) -> None:
        for owned in self._owned():
            shutil.rmtree(owned) if owned.is_dir() else owned.unlink()

    def _owned(self) -> list[Path]:
        """Return the files and folders of the run that exist."""
        if not self.path.is_dir():
            return []
        named = [self.path / name for name in (*names.FILES, *names.FOLDERS)]
        return [path for path in named if path.exists()] + sorted(self.path.glob(names.EVALUATIONS))

    def _begun_with(self, other: str) -> UserError:
        return UserError(
            f"{self.path} was begun with {other}; resume it with the same settings and data, or "
            "give another --out (or --overwrite, where the command has it)"
        )

    def _note_paths(self, stored: Record, config: Record, accepted: bool) -> None:
        """Store where the data lie now; UserError if different data lie there."""
        now = settings.with_paths(config)
        if all(stored.get(name) == path for name, path in now.items()):
            return
        if not accepted:
            self.compare_samples(stored, config)
        self.write_config(stored | now)

    def compare_samples(self, stored: Record, config: Record) -> None:
        """Raise UserError if the content of some items differs from that in the stored run."""
        if stored.get(settings.SAMPLE) not in (None, config.get(settings.SAMPLE)):
            raise self._begun_with(f"other pictures or features than those of {config['data']}")

    def _identity(self) -> str:
        """Return the SHA-256 of what a checkpoint of this run must resume with."""
        key = settings.resume_key(read_json(self.path / names.CONFIG))
        return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()

    def _holds(self, name: str, arrays: dict[str, npt.NDArray[Any]]) -> bool:
        """Whether a file can be read and holds these arrays."""
        try:
            stored = read_arrays(self.path / name, tuple(arrays))
        except UserError:
            return False
        return stored is not None and all(
            np.array_equal(stored[key], value) for key, value in arrays.items()
        )

    def _npz(self, name: str, **arrays: npt.NDArray[Any]) -> None:
        with replacing(self.path / name) as beside, beside.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
