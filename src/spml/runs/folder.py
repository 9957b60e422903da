"""The run folder: what training writes, and how it goes on from it."""

from __future__ import annotations

import hashlib
import json
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spml.data import Experiment
from spml.errors import UserError
from spml.files import replacing, write_json, write_text
from spml.runs.checkpoint import read_checkpoint, write_checkpoint
from spml.runs.files import read_json
from spml.runs.lock import Claim
from spml.runs.settings import UNNAMED, without_folder

FILES = (
    *(
        "config.json",
        "history.jsonl",
        "result.json",
        "observed.npz",
        "labels.npz",
        "last.ckpt",
        "report.html",
    ),
    "calibration.json",
)
FOLDERS = ("best", "scores", "tensorboard")
WRITTEN = (*FILES, "best/model.safetensors", "best/model.json", "best/README.md", "scores/*.npz")
NOT_OF_THE_RUN = (
    "versions",
    "command",
    "sample_sha256",
)  # may differ between a run and its going on
OTHER = {
    **dict.fromkeys(("observed_sha256", "data_sha256"), "other data"),
    "method_sha256": "other code of its method",
}
PLACES = (
    "data",
    "root",
    "val",
    "test",
    "classes",
)  # of the data, the same by their hashes wherever they lie now
OBSERVED = ("observe", "observation")  # which name a file where observed labels come from one
MAY_CHANGE = (
    *NOT_OF_THE_RUN,
    *PLACES,
    "on_nan",
)  # the last is what a run that ended at such a loss may go on with


@dataclass(frozen=True)
class RunFolder:
    """Paths of a run and the ways to write them; each file is whole or not there.

    Attributes:
        path: of the folder.
        claim: on the run that is in it; config.json is what is locked, which is there from a run's first moment on.
    """

    path: Path
    claim: Claim = field(default_factory=Claim, compare=False)

    @property
    def checkpoint(self) -> Path:
        """Where training goes on from."""
        return self.path / "last.ckpt"

    @property
    def best(self) -> Path:
        """The chosen model."""
        return self.path / "best"

    @property
    def _aside(self) -> Path:
        """Where the run that is being replaced waits until the new one can be gone on with.

        In the run folder, which may be a link, a disk of its own or all that may be written to.
        """
        return self.path / ".replaced"

    @property
    def _moving(self) -> Path:
        """The same while files are on their way there or back: all that is in it belongs in the run folder."""
        return self.path / ".moving"

    def check(self, config: dict[str, Any], *, resume: bool, overwrite: bool) -> bool:
        """Whether there is a run to go on with; what is there is refused unless it is to be resumed or replaced."""
        self._claim()
        self._bring_back()
        self._claim()
        self._tidy()
        there = (self.path / "config.json").exists()
        if there and resume:
            self._check_same(config)
            self._note_places(config)
            return True
        if there and not overwrite:
            raise UserError(
                f"{self.path} already holds a run; give --resume, --overwrite or another --out"
            )
        if self.path.exists() and not self.path.is_dir():
            raise UserError(f"{self.path} is a file, not a folder; give another --out")
        if not there and self.path.is_dir() and any(self.path.iterdir()):
            raise UserError(f"{self.path} is not empty and holds no run; give another --out")
        return False

    def begin(self, config: dict[str, Any]) -> None:
        """Move a run that is there aside, and begin a new one."""
        if owned := self._owned():
            self._moving.mkdir(parents=True)
            for old in owned:
                old.rename(self._moving / old.name)
            self._moving.rename(self._aside)
        self.path.mkdir(parents=True, exist_ok=True)
        write_json(self.path / "config.json", config)
        self._claim()

    def _claim(self) -> None:
        self.claim.take(self.path / "config.json")

    def abandon(self) -> bool:
        """Take back a run that has no checkpoint, and bring back the one it was to replace; whether it is gone."""
        if self._moving.is_dir():  # it has hardly begun
            self._bring_back()
            return True
        if self.checkpoint.exists():
            return False
        self._remove()
        self._bring_back()
        with suppress(
            OSError
        ):  # it holds something else, or is a link, a disk of its own or where we are
            self.path.rmdir()
        return True

    def _bring_back(self) -> None:
        """Undo what a run that was killed before its first checkpoint had moved; nothing old is removed on the way."""
        if self._aside.is_dir() and self.checkpoint.exists():
            shutil.rmtree(self._aside)
        elif self._aside.is_dir():
            self._remove()
            self._aside.rename(self._moving)
        if self._moving.is_dir():
            self.path.mkdir(parents=True, exist_ok=True)
            for old in self._moving.iterdir():
                old.rename(self.path / old.name)
            self._moving.rmdir()

    def _tidy(self) -> None:
        """Remove what a killed process had not finished writing."""
        for name in WRITTEN:
            path = self.path / name
            for part in path.parent.glob(f".{path.name}.*.part"):
                part.unlink()

    def _remove(self) -> None:
        for owned in self._owned():
            shutil.rmtree(owned) if owned.is_dir() else owned.unlink()

    def _owned(self) -> list[Path]:
        """What a run writes, as far as it is there."""
        if not self.path.is_dir():
            return []
        named = [self.path / name for name in (*FILES, *FOLDERS)]
        return [path for path in named if path.exists()] + sorted(self.path.glob("eval-*.json"))

    def _check_same(self, config: dict[str, Any]) -> None:
        stored = _flat(_own({**UNNAMED, **read_json(self.path / "config.json")}))
        for name, new in _flat(_own(json.loads(json.dumps(config)))).items():
            if stored.get(name) != new:
                raise self._begun_with(
                    OTHER.get(name) or f"{name} = {stored.get(name)!r}, not {new!r}"
                )

    def _begun_with(self, other: str) -> UserError:
        return UserError(
            f"{self.path} was begun with {other}; resume it with the same settings and data, or give another --out "
            "(or --overwrite, where the command has it)"
        )

    def _note_places(self, config: dict[str, Any]) -> None:
        """Where the data lie now, for all who read them later; refused where others of the same names lie there."""
        stored = read_json(self.path / "config.json")
        now = {name: config[name] for name in (*PLACES, *OBSERVED, "weights") if name in config}
        if any(stored.get(name) != place for name, place in now.items()):
            if stored.get("sample_sha256") not in (None, config.get("sample_sha256")):
                raise self._begun_with(f"other pictures or features than those of {config['data']}")
            write_json(self.path / "config.json", stored | now)
            self._claim()

    def write_labels(self, experiment: Experiment, val_truth: npt.NDArray[np.int8]) -> None:
        """observed.npz, and labels.npz with what reports compare scores with."""
        observed = experiment.observed
        if len(observed) * len(experiment.classes) <= 2**31:
            self._npz(
                "observed.npz",
                observed=observed.labels,
                train_rows=experiment.train_rows,
                val_rows=experiment.val_rows,
                sha256=np.array(experiment.sha256),
            )
        arrays = {"classes": np.array(list(experiment.classes)), "val_truth": val_truth}
        if experiment.test is not None:
            arrays["test_truth"] = experiment.test.labels
        self._npz("labels.npz", **arrays)

    def write_scores(self, name: str, logits: npt.NDArray[np.float32]) -> None:
        """Logits of a split, as float16."""
        limit = np.finfo(np.float16).max
        self._npz(f"scores/{name}.npz", logits=np.clip(logits, -limit, limit).astype(np.float16))

    def write_history(self, history: list[dict[str, Any]]) -> None:
        """history.jsonl: a line an epoch."""
        write_text(
            self.path / "history.jsonl", "".join(json.dumps(line) + "\n" for line in history)
        )

    def write_result(self, result: dict[str, Any]) -> None:
        """result.json: the last file of a run."""
        write_json(self.path / "result.json", result)

    def save_checkpoint(self, state: dict[str, Any]) -> None:
        """last.ckpt: tensors and plain values."""
        write_checkpoint(self.checkpoint, {**state, "run": self._identity()})
        shutil.rmtree(self._aside, ignore_errors=True)

    def load_checkpoint(self) -> dict[str, Any] | None:
        """What save_checkpoint wrote, or None where nothing was."""
        if not self.checkpoint.exists():
            return None
        state = read_checkpoint(self.checkpoint)
        if state.get("run") not in (None, self._identity()):
            raise UserError(
                f"{self.checkpoint} is that of another run: it was written with other settings or data than those in "
                "config.json; put its own back, or give --overwrite to begin anew"
            )
        return state

    def _identity(self) -> str:
        """SHA-256 of what the run was begun with."""
        own = _own(read_json(self.path / "config.json"))
        return hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()

    def _npz(self, name: str, **arrays: npt.NDArray[Any]) -> None:
        with replacing(self.path / name) as beside, beside.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)


def _own(config: dict[str, Any]) -> dict[str, Any]:
    """What may not change while a run goes on: its settings without where data and weights lie."""
    own = without_folder({name: value for name, value in config.items() if name not in MAY_CHANGE})
    drawn = own.get("observation") or {}
    if drawn.get("model") == "file":
        own |= {
            "observe": "file",
            "observation": {name: value for name, value in drawn.items() if name != "path"},
        }
    return own


def _flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted names."""
    flat: dict[str, Any] = {}
    for name, value in config.items():
        flat |= (
            _flat(value, f"{prefix}{name}.")
            if isinstance(value, dict)
            else {f"{prefix}{name}": value}
        )
    return flat
