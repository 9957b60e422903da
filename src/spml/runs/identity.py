"""What makes two runs the same: the roles of the entries of config.json, and all that reads them.

The role of a setting is metadata of its field in `Settings`. The other entries have theirs in
`PARTS`. An entry with no role of its own, such as one that a caller of `fit` adds, changes the
result.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from spml.runs.settings import PART, Part, Role, Settings

Config = dict[str, Any]

DATA_HASH = "data_sha256"
PARTS: dict[str, Part] = {
    # The hashes below decide whether a run resumes on the same data; the file may have moved.
    "data": Part(place=True, resumable=True),
    "classes": Part(place=True, resumable=True),
    # These name a file if the observed labels come from one.
    "observe": Part(place=True),
    "observation": Part(place=True),
    "options": Part(Role.METHOD),
    "side_information": Part(Role.METHOD),
    "method_sha256": Part(Role.METHOD, mismatch="other code of its method"),
    # Hashes of the labels and rows that the seeds drew.
    "observed_sha256": Part(Role.SEED, mismatch="other data"),
    DATA_HASH: Part(Role.SEED, mismatch="other data"),
    # Read only if the data lie elsewhere than before; older runs lack it.
    "sample_sha256": Part(Role.EXECUTION),
    **dict.fromkeys(("root", "val", "test", "out"), Part(Role.LOCATION, place=True)),
    **dict.fromkeys(("command", "versions", "device"), Part(Role.PROVENANCE)),
    **{field.name: field.metadata.get(PART, Part()) for field in fields(Settings)},
}
SEEDS = tuple(item.name for item in fields(Settings) if PARTS[item.name].role is Role.SEED)
DEFINING = (Role.RESULT, Role.METHOD, Role.SEED)  # a plan of runs names these
RECORDED = (*DEFINING, Role.DEVICE)  # config.json holds the settings of these roles
REPEATED = (Role.RESULT, Role.METHOD)  # equal in the repetitions of an experiment
STUDIED = (Role.RESULT, Role.SEED)  # equal in the runs of a study
FOREIGN = (Role.LOCATION, Role.PROVENANCE)  # mean nothing on another machine
# The values of entries that config.json did not have before they were introduced.
INTRODUCED: Config = {
    "head": "linear",
    "linear_init": 0,
    "linear_lr": None,
    "linear_batch_size": None,
    "schedule": "constant",
    "crop": None,
    "frozen_norm": False,
    "on_nan": "stop",
    "classes": None,
    "observe": "uniform",
}


def part(name: str) -> Part:
    """Return how an entry of config.json takes part in the identity of a run."""
    return PARTS.get(name, Part())


def upgrade(config: Mapping[str, Any]) -> Config:
    """Return the configuration of a run of any version as today's version would write it."""
    return {**config, **{name: INTRODUCED[name] for name in INTRODUCED if name not in config}}


def recorded(settings: Mapping[str, Any]) -> Config:
    """Return the settings that config.json holds."""
    return _with_roles(settings, RECORDED)


def defines_run(name: str) -> bool:
    """Whether a setting defines a run, rather than how and where it is executed."""
    return part(name).role in DEFINING


def resume_key(config: Mapping[str, Any]) -> Config:
    """Return what a stopped run must resume with."""
    return _without_paths(
        {
            name: value
            for name, value in config.items()
            if part(name).role in RECORDED and not part(name).resumable
        }
    )


def mismatch(stored: Mapping[str, Any], config: Mapping[str, Any]) -> str | None:
    """Describe why a stored run cannot resume with a configuration; None if it can."""
    before = _flat(resume_key(upgrade(stored)))
    for name, value in _flat(resume_key(json.loads(json.dumps(config)))).items():
        if before.get(name) != value:
            return part(name).mismatch or f"{name} = {before.get(name)!r}, not {value!r}"
    return None


def places(config: Mapping[str, Any]) -> Config:
    """Return the entries that contain paths, which resuming brings up to date."""
    return {name: value for name, value in config.items() if part(name).place}


def group_key(config: Mapping[str, Any]) -> Config:
    """Return what the repetitions of one experiment share: everything but draws and execution."""
    shared = _without_paths(_with_roles(upgrade(config), REPEATED))
    if isinstance(drawn := shared.get("observation"), dict):
        shared["observation"] = {name: drawn[name] for name in drawn if name != "seed"}
    return shared


def study_key(config: Mapping[str, Any]) -> Config:
    """Return what the runs of one study share: everything but the method and execution.

    The name of a weights file does not matter: only whether training started from weights.
    """
    shared = _without_paths(_with_roles(upgrade(config), STUDIED))
    return {**shared, "weights": "none" if shared.get("weights") == "none" else "pretrained"}


def portable(config: Mapping[str, Any]) -> Config:
    """Return the entries that mean the same on another machine."""
    return _with_weights_name(
        {name: value for name, value in config.items() if part(name).role not in FOREIGN}
    )


def _with_roles(config: Mapping[str, Any], roles: tuple[Role, ...]) -> Config:
    return {name: value for name, value in config.items() if part(name).role in roles}


def _without_paths(config: Config) -> Config:
    """Remove the folders of weights and of observed labels: the same files may lie elsewhere."""
    config = _with_weights_name(config)
    drawn = config.get("observation")
    if isinstance(drawn, dict) and drawn.get("model") == "file":
        drawn = {name: value for name, value in drawn.items() if name != "path"}
        return {**config, "observe": "file", "observation": drawn}
    return config


def _with_weights_name(config: Config) -> Config:
    weights = config.get("weights")
    if weights in (None, "none", "pretrained"):
        return config
    return {**config, "weights": Path(str(weights)).name}


def _flat(config: Config, prefix: str = "") -> Config:
    """Return nested entries by dotted names."""
    flat: Config = {}
    for name, value in config.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat
