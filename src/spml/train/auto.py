"""`--method auto`: a race of methods that observed labels decide, and the winner's run."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from spml.data import Experiment
from spml.data.images.cache import Cache
from spml.errors import UserError
from spml.machine import launched, started_first
from spml.runs import names
from spml.runs.folder import RunFolder
from spml.runs.run import Run
from spml.runs.settings import Settings
from spml.train.device import uses_cuda
from spml.train.display import Display
from spml.train.portfolio import Candidate
from spml.train.race import Race, folder_of


def decide(
    experiment: Experiment,
    settings: Settings,
    out: Path,
    *,
    resume: bool,
    overwrite: bool,
    accept_changed_data: bool,
    quiet: bool,
    extra_config: Mapping[str, Any],
    cache: Cache | None,
) -> dict[str, Any]:
    """Choose a method by a race in `out`; return the arguments of `fit` that train the winner."""
    _check(settings)
    settings = replace(settings, selection="observed")
    # the other processes of the winner start after the race, and read what it decided
    decided = None if overwrite and started_first() else _decided(out)
    if decided is None:
        run = RunFolder(out)
        with run.claim, Display(quiet) as display:
            race = Race(experiment, settings, run, display, dict(extra_config), cache)
            ways = {"resume": resume, "overwrite": overwrite, "accepted": accept_changed_data}
            decided = race.run(**ways)
        resume = True
    winner, entry = decided
    settings = replace(settings, method=winner.method)
    if Run(folder_of(out, winner.name)).finished:  # one process tests the trained winner
        settings = replace(settings, devices=1)
    return {
        "settings": settings,
        "options": winner.options,
        "resume": resume,
        "accept_changed_data": accept_changed_data,
        "extra_config": {**extra_config, names.RACE_ENTRY: entry},
    }


def _check(settings: Settings) -> None:
    """Raise UserError for settings that a race cannot have."""
    if settings.selection == "complete":
        raise UserError(
            "--method auto chooses by observed labels alone; leave --selection out, "
            "or name a method"
        )
    gpus = torch.cuda.device_count()
    if uses_cuda(settings.accelerator) and settings.devices > max(gpus, 1):
        raise UserError(f"--devices {settings.devices}, but this machine has {gpus} GPUs")
    each, machines = launched() or (1, 1)
    if each * machines > 1:
        raise UserError(
            "--method auto starts a process for each of --devices itself; "
            "leave the launcher out, or name a method"
        )


def _decided(out: Path) -> tuple[Candidate, dict[str, Any]] | None:
    """Return the winner of a race that ended in this folder, and its entry of config.json."""
    run = Run(out)
    if not run.exists or names.RACE_ENTRY not in run.config:
        return None
    entry = run.config[names.RACE_ENTRY]
    return Candidate(entry["winner"], run.config["method"], run.config["options"]), entry
