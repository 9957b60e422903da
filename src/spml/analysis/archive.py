"""The finished runs in a folder, identified by their configuration rather than by their names."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from spml.bench.plan import Case, trimmed
from spml.bench.record import check_result
from spml.bench.store import SCORED
from spml.errors import UserError
from spml.files import demand, read_json
from spml.runs.names import RESULT, SCORES
from spml.runs.run import Run
from spml.runs.settings import study_key, upgrade

RECORDS = ("", "records")  # folders of records
RUNS = ("", "runs", SCORED)  # folders of run folders


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """A finished run; `folder` is its run folder if that holds scores."""

    name: str
    config: dict[str, Any]
    history: list[dict[str, Any]]
    result: dict[str, Any]
    folder: Path | None = None

    def setting(self) -> dict[str, Any]:
        """Return the settings in which comparable runs agree."""
        return study_key(self.config)

    def of(self, case: Case) -> bool:
        """Return whether it trained the method and options of a case."""
        if case.method != self.config["method"]:
            return False
        data, own = str(self.config["data"]), self.config["options"]
        # an option that the case leaves open matches any value that the data decided
        open_ = set(self.config.get("options_from_data", ())) - set(case.options)
        options = {name: own[name] for name in own if name not in open_}
        return trimmed(case.method, data, options) == trimmed(case.method, data, case.options)


def find(folder: Path) -> tuple[list[FinishedRun], list[str]]:
    """Read the finished runs of a folder from records (ID.json) and run folders; and problems.

    Records may be in the folder or in its subfolder `records`, run folders in the folder or in
    its subfolders `runs` and `scores`.
    """
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder")
    runs: dict[str, FinishedRun] = {}
    problems = []
    for path in _files(folder, RECORDS, "*.json"):
        try:
            record = read_json(path)
            if not {"config", "history", "result"} <= set(record):
                continue
            _check(record["config"], record["result"], path)
        except UserError as error:
            problems.append(str(error))
        else:
            config = upgrade(record["config"])
            runs[path.stem] = FinishedRun(path.stem, config, record["history"], record["result"])
    for path in _files(folder, RUNS, f"*/{RESULT}"):
        run = Run(path.parent)
        name = run.folder.name
        try:
            result = run.require_result()
            _check(run.config, result, run.folder)
            known = runs.get(name) or FinishedRun(name, run.config, run.history, result)
        except UserError as error:
            problems.append(str(error))
            continue
        scored = (run.folder / SCORES).is_dir()
        runs[name] = replace(known, folder=run.folder if scored else None)
    return [runs[name] for name in sorted(runs)], problems


def _check(config: Any, result: Any, where: Path) -> None:
    """Raise UserError if the configuration or the result lacks what a study needs."""
    known = config if isinstance(config, dict) else {}
    demand(known, ("data", "method", "options"), f"{where}: its configuration")
    check_result(result, where)


def _files(folder: Path, places: Sequence[str], pattern: str) -> list[Path]:
    return [path for place in places for path in sorted((folder / place).glob(pattern))]


def comparable(
    runs: Iterable[FinishedRun], cases: Sequence[Case], required: Mapping[str, Any] | None = None
) -> list[FinishedRun]:
    """Return the runs of the setting and seed with the most cases.

    Of several, the lower seed is preferred, then the higher validation figures.

    Args:
        runs: Finished runs.
        cases: Cases of the study.
        required: Settings that the runs must have.
    """
    groups: dict[str, list[FinishedRun]] = {}
    for run in runs:
        if all(run.config.get(name) == value for name, value in (required or {}).items()):
            groups.setdefault(json.dumps(run.setting(), sort_keys=True), []).append(run)

    def rank(group: list[FinishedRun]) -> tuple[int, int, float]:
        chosen = [run for case in cases if (run := run_of(case, group)) is not None]
        figures = sum(float(run.result.get("val_map") or 0.0) for run in chosen)
        return len(chosen), -int(group[0].config.get("seed", 0)), figures

    return max(groups.values(), key=rank, default=[])


def run_of(case: Case, runs: Iterable[FinishedRun]) -> FinishedRun | None:
    """Return the run of a case; of several, one with scores."""
    matching = [run for run in runs if run.of(case)]
    scored = [run for run in matching if run.folder is not None]
    return next(iter(scored or matching), None)
