"""The finished runs that a folder holds, found again by what was trained rather than by their names."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from spml.bench.plan import Case, trimmed
from spml.bench.record import check_result
from spml.errors import UserError
from spml.runs.files import demand, read_history, read_json
from spml.runs.settings import UNNAMED

# what may differ between the runs of one study, and what is of one machine alone
_OWN = (
    "method",
    "options",
    "seed",
    "side_information",
    "versions",
    "command",
    "accelerator",
    "precision",
)
_PLACE = ("root", "val", "test", "observe", "device", "sample_sha256")


@dataclass(frozen=True, eq=False)
class Made:
    """A run that is done.

    Attributes:
        name: of its folder or record.
        config: what was asked for.
        history: a record an epoch.
        result: the outcome.
        folder: where its scores are; None where only its record is there.
    """

    name: str
    config: dict[str, Any]
    history: list[dict[str, Any]]
    result: dict[str, Any]
    folder: Path | None = None

    def setting(self) -> dict[str, Any]:
        """What makes its figure comparable with another's: all but method, options and seed."""
        named = {**UNNAMED, **self.config}
        rest = {name: value for name, value in named.items() if name not in (*_OWN, *_PLACE)}
        return {**rest, "weights": "none" if rest.get("weights") == "none" else "pretrained"}

    def of(self, case: Case) -> bool:
        """Whether it trained what the case says."""
        data = str(self.config["data"])
        return case.method == self.config["method"] and trimmed(
            case.method, data, self.config["options"]
        ) == trimmed(case.method, data, case.options)


def find(folder: Path) -> tuple[list[Made], list[str]]:
    """Finished runs, from records (ID.json) and run folders, there or under records, runs and scores; and problems."""
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder")
    made: dict[str, Made] = {}
    problems = []
    for path in _files(folder, ("", "records"), "*.json"):
        try:
            record = read_json(path)
            if not {"config", "history", "result"} <= set(record):
                continue
            _check(record["config"], record["result"], path)
        except UserError as error:
            problems.append(str(error))
        else:
            made[path.stem] = Made(path.stem, record["config"], record["history"], record["result"])
    for path in _files(folder, ("", "runs", "scores"), "*/result.json"):
        home = path.parent
        try:
            config, result = read_json(home / "config.json"), read_json(path)
            history = read_history(home / "history.jsonl")
            _check(config, result, home)
        except UserError as error:
            problems.append(str(error))
            continue
        known = made.get(home.name, Made(home.name, config, history, result))
        made[home.name] = replace(known, folder=home if (home / "scores").is_dir() else None)
    return [made[name] for name in sorted(made)], problems


def _check(config: Any, result: Any, where: Path) -> None:
    """Raise UserError where it cannot be told what was trained, or what came of it."""
    demand(
        config if isinstance(config, dict) else {},
        ("data", "method", "options"),
        f"{where}: its configuration",
    )
    check_result(result, where)


def _files(folder: Path, places: Sequence[str], pattern: str) -> list[Path]:
    return [path for place in places for path in sorted((folder / place).glob(pattern))]


def comparable(
    made: Iterable[Made], cases: Sequence[Case], given: Mapping[str, Any] | None = None
) -> list[Made]:
    """The runs of one setting and seed: of all that are there, the one with most of the cases.

    Of several with as many, that of the lower seed counts, and then the one with the higher validation figures.

    Args:
        made: runs.
        cases: wanted.
        given: settings that the runs must have.
    """
    groups: dict[str, list[Made]] = {}
    for run in made:
        if all(run.config.get(name) == value for name, value in (given or {}).items()):
            setting = json.dumps([run.setting(), run.config.get("seed")], sort_keys=True)
            groups.setdefault(setting, []).append(run)

    def rank(group: list[Made]) -> tuple[int, int, float]:
        found = [run for case in cases if (run := the(case, group)) is not None]
        figures = sum(float(run.result.get("val_map") or 0.0) for run in found)
        return len(found), -int(group[0].config.get("seed", 0)), figures

    return max(groups.values(), key=rank, default=[])


def the(case: Case, made: Iterable[Made]) -> Made | None:
    """The run of a case; of several, one with scores."""
    found = [run for run in made if run.of(case)]
    return next((run for run in found if run.folder is not None), found[0] if found else None)
