"""Roles: resuming, grouping, studies, records and plans agree on what makes two runs the same."""

import json
from dataclasses import asdict, fields
from pathlib import Path

import pytest

from spml.analysis.archive import FinishedRun
from spml.cli.many_runs import ManyRuns
from spml.report.groups import group_runs
from spml.runs.run import Run
from spml.runs.settings import (
    INTRODUCED,
    SEEDS,
    Part,
    Role,
    Settings,
    group_key,
    mismatch,
    part,
    portable,
    recorded,
    resume_key,
    study_key,
    upgrade,
    with_paths,
)

RECORDS = Path(__file__).parents[2] / "benchmarks" / "results" / "voc2012-lite0"
SETTINGS = {item.name: part(item.name) for item in fields(Settings)}
CONFIG = {
    "data": "photos.csv",
    "data_version": None,
    "labels": "observed",
    "classes": None,
    **recorded(asdict(Settings(backbone="tiny", weights="none", size=16, epochs=2, lr=0.1))),
    "options": {"q3": 1.0},
    "observation": {"model": "uniform", "positives": 1, "seed": 1200},
    "side_information": {},
    "observed_sha256": "a",
    "data_sha256": "b",
    "sample_sha256": "c",
    "method_sha256": "d",
    "versions": {"torch": "2"},
    "root": "here",
    "val": None,
    "test": None,
    "observe": "uniform",
    "command": "spml train photos.csv",
    "pixels": "jpeg88",
}
# For each role: whether resuming, groups and studies compare it, and whether records keep it.
COMPARED = {
    Role.RESULT: (True, True, True, True),
    Role.METHOD: (True, True, False, True),
    Role.SEED: (True, False, True, True),
    Role.DEVICE: (True, False, False, True),
    Role.EXECUTION: (False, False, False, True),
    Role.LOCATION: (False, False, False, False),
    Role.PROVENANCE: (False, False, False, False),
}
OTHER = {"weights": "pretrained", "observation": {"model": "frequency"}, "options": {"q3": 2.0}}


def changed(name):
    """The configuration with another value of one entry."""
    return {**CONFIG, name: OTHER.get(name, "another")}


def test_every_setting_has_a_role():
    assert all(isinstance(SETTINGS[item.name].role, Role) for item in fields(Settings))
    roles = {role: {name for name in SETTINGS if SETTINGS[name].role is role} for role in Role}
    assert roles[Role.METHOD] == {"method"}
    assert roles[Role.SEED] == {"seed", "observe_seed", "split_seed"} == set(SEEDS)
    assert roles[Role.DEVICE] == {"accelerator"}
    assert roles[Role.EXECUTION] == {
        *("devices", "nodes", "compile", "eval_batch_size", "checkpoint_minutes"),
        *("cache", "race_budget"),
    }
    assert roles[Role.LOCATION] == {"cache_dir"} and not roles[Role.PROVENANCE]
    assert set(COMPARED) == set(Role) and part("an entry of a caller") == Part()
    unrecorded = roles[Role.EXECUTION] | roles[Role.LOCATION]
    assert set(recorded(asdict(Settings()))) == set(SETTINGS) - unrecorded


@pytest.mark.parametrize("name", [*CONFIG, *sorted(set(SETTINGS) - set(CONFIG))])
def test_resuming_reports_studies_and_records_follow_the_role(name, tmp_path):
    resumes, groups, studies, keeps = COMPARED[part(name).role]
    other = changed(name)
    assert (mismatch(CONFIG, other) is not None) == (resumes and not part(name).resumable)
    assert (group_key(CONFIG) != group_key(other)) == groups
    assert (study_key(CONFIG) != study_key(other)) == studies
    assert (name in portable(other)) == keeps
    for folder, config in (("a", CONFIG), ("b", other)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "config.json").write_text(json.dumps(config))
    runs = [Run(tmp_path / "a"), Run(tmp_path / "b")]
    # The same seeds drew other rows: other data, which a group does not mix.
    separate = groups or name == "data_sha256"
    assert len(group_runs(runs)) == (2 if separate else 1)
    first, second = (FinishedRun(run.name, run.config, [], {}) for run in runs)
    assert (first.setting() != second.setting()) == studies


@pytest.mark.parametrize("name", SETTINGS)
def test_a_plan_names_the_settings_that_define_a_run(name):
    if name in ("method", "seed"):  # a plan varies these itself
        return
    defining, making = ManyRuns(data="digits", **{name: "another"}).changed_settings()
    role = SETTINGS[name].role
    executes = role in (Role.DEVICE, Role.EXECUTION, Role.LOCATION)
    assert (set(making), set(defining)) == (({name}, set()) if executes else (set(), {name}))


@pytest.mark.parametrize("data", [{}, {"val": "v.csv", "test": "t.csv", "labels": "complete"}])
def test_a_plan_names_the_files_of_the_data_but_not_their_folder(data):
    assert ManyRuns(data="mine.csv", root=Path("here"), **data).changed_settings() == (data, {})


def test_files_may_move():
    moved = {**CONFIG, "weights": "elsewhere/w.pt", "root": "there", "data": "there/photos.csv"}
    here = {**CONFIG, "weights": "w.pt"}
    assert mismatch(here, moved) is None
    assert portable(moved)["weights"] == "w.pt" == group_key(moved)["weights"]
    assert study_key(moved)["weights"] == "pretrained" != study_key(CONFIG)["weights"]
    drawn = {"model": "file", "path": "a.csv"}
    file = {**CONFIG, "observe": "file:a.csv", "observation": drawn}
    other = {**file, "observe": "file:b.csv", "observation": {**drawn, "path": "b.csv"}}
    assert mismatch(file, other) is None and group_key(file) == group_key(other)
    assert mismatch(CONFIG, file) == "observation.model = 'uniform', not 'file'"
    assert portable(file)["observe"] == "file:a.csv"  # `spml eval` reads it again
    assert set(with_paths(CONFIG)) == {
        *("data", "classes", "weights", "root", "val", "test", "observe", "observation")
    }


def test_a_removed_setting_changes_nothing():
    old = {**CONFIG, "fused_norm": False, "command": "spml train photos.csv --no-fused-norm"}
    assert mismatch(old, CONFIG) is None and portable(old)["fused_norm"] is False
    assert group_key(old) == group_key(CONFIG) and study_key(old) == study_key(CONFIG)


def test_a_mismatch_is_described():
    assert mismatch(CONFIG, {**CONFIG, "lr": 0.2}) == "lr = 0.1, not 0.2"
    assert mismatch(CONFIG, {**CONFIG, "options": {"q3": 2}}) == "options.q3 = 1.0, not 2"
    assert mismatch(CONFIG, {**CONFIG, "data_sha256": "z"}) == "other data"
    assert mismatch(CONFIG, {**CONFIG, "method_sha256": "z"}) == "other code of its method"


def recorded_configs():
    """Configurations of recorded runs: of each form, one; and one of the first release's tests."""
    by_form = {}
    for path in sorted(RECORDS.glob("*.json")):
        config = json.loads(path.read_text(encoding="utf-8")).get("config")
        if config:
            by_form.setdefault((frozenset(config), config["weights"] == "none"), config)
    configs = list(by_form.values())
    copied = sorted((RECORDS / "scores").glob("*/config.json"))[:1]
    configs += [json.loads(path.read_text(encoding="utf-8")) for path in copied]
    assert len(configs) >= 3
    first = {
        "data": "digits", "method": "gr",
        "options": {"variant": "official", "q3": 1.5, "w": [0, 10]},
        "backbone": "tiny", "weights": "none", "size": 40,
        "epochs": 8, "batch_size": 32, "lr": 0.001,
        "seed": 0, "observe_seed": 1200, "split_seed": 1200, "selection": "complete",
        "device": {"kind": "cpu", "precision": "32-true"}, "side_information": {},
        "versions": {"spml": "0.1.0", "torch": "2.14.1", "numpy": "2.4.6"},
        "command": "spml train digits --method gr --seed 0 --out runs/gr-0",
    }  # fmt: skip
    return [*configs, first]


@pytest.mark.parametrize("config", recorded_configs())
def test_an_old_configuration_equals_that_of_a_new_run(config):
    shorter = {
        name: value
        for name, value in config.items()
        if name not in INTRODUCED or value != INTRODUCED[name]
    }
    settings = {name: value for name, value in config.items() if name in SETTINGS}
    left_open = {name: INTRODUCED[name] for name in ("head", "frozen_norm")}
    new = {**config, **recorded(asdict(Settings(**{**left_open, **settings})))}
    # The oldest configuration is one of a test, which does not name every setting.
    new = {name: value for name, value in new.items() if name in {*config, *INTRODUCED}}
    for old in (config, shorter):
        assert upgrade(old) == upgrade(new) and set(upgrade(old)) >= set(INTRODUCED)
        assert mismatch(old, new) is None
        assert group_key(old) == group_key(new) and study_key(old) == study_key(new)


def test_upgrading_keeps_what_a_run_names():
    assert list(upgrade(CONFIG).items()) == list(CONFIG.items())
    assert upgrade({})["head"] == "linear" and upgrade({"head": "query"})["head"] == "query"


def test_the_checkpoint_of_a_run_fits_after_an_upgrade():
    old = {name: value for name, value in CONFIG.items() if name not in INTRODUCED}
    assert set(resume_key(old)) <= set(old)  # its hash does not change when entries are introduced
    assert not set(resume_key(CONFIG)) & {"versions", "command", "root", "data", "on_nan"}
