import csv
import importlib.machinery
import sys
from dataclasses import replace
from types import MappingProxyType, ModuleType, SimpleNamespace

import lightning.pytorch.loggers
import pytest

from spml.cli import main
from spml.files import read_json
from spml.train import fit
from spml.train.loggers import RunLogger
from tests.conftest import TINY, contents, failing, history, outcome, refused


def events(run):
    """Every (name, epoch, value), over all event files."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    for path in sorted((run / "tensorboard").iterdir()):
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                yield value.tag, event.step, value.tensor.float_val[0]


def cells(run):
    """Every (name, epoch, value) of the CSV file."""
    with (run / "csv" / "metrics.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            step = int(row.pop("step"))
            yield from ((name, step, float(value)) for name, value in row.items() if value)


def expected(run):
    """Every (name, epoch) and its value, of the history and the test."""
    result = read_json(run / "result.json")
    figures = {"test_map": result["test_map"]}
    figures |= {f"test_ap/{name}": value for name, value in result["per_class_ap"].items()}
    lines = [*history(run), {"epoch": result["best_epoch"], **figures}]
    return {
        (name, line["epoch"]): value
        for line in lines
        for name, value in line.items()
        if name != "epoch"
    }


def check(run, sent):
    """Every number was sent, and once."""
    values = {(name, step): value for name, step, value in sent}
    assert len(values) == len(sent)
    assert values == pytest.approx(expected(run), rel=1e-6)


@pytest.mark.parametrize(("name", "read"), [("tensorboard", events), ("csv", cells)])
def test_a_resumed_run_has_every_number_once(scenes, quick, finished, tmp_path, name, read):
    if name == "tensorboard":
        pytest.importorskip(name)
    run = tmp_path / "run"
    with failing(3), RunLogger(name) as logger:
        fit(scenes, quick, run, quiet=True, logger=logger)
    assert any(one[:2] == ("loss", 2) for one in read(run))
    with RunLogger(name) as logger:
        fit(scenes, quick, run, quiet=True, logger=logger, resume=True)
        logger.attach()  # there is nowhere to send files to
    check(run, list(read(run)))
    assert outcome(run) == outcome(finished)
    own = {file: text for file, text in contents(run).items() if not file.startswith(name)}
    assert own == contents(finished)
    fit(scenes, replace(quick, epochs=1), run, quiet=True, overwrite=True)
    assert not (run / name).exists()


class StandIn:
    """A logger of Lightning, with the tracker behind it."""

    runs = MappingProxyType({})  # what each run of the tracker received; the fixture replaces it

    def __init__(self, *words, **options):
        self.version = self.run_id = options.get("id") or options.get("run_id") or "number-1"
        self.received = self.runs.setdefault(self.version, [])
        self.options, self.experiment = (*words, options), self
        self.files, self.ended = {}, []

    def log_metrics(self, figures, step):
        self.received += [(name, step, value) for name, value in figures.items()]

    def log_hyperparams(self, config):
        self.config = config

    def save(self):
        pass

    def finalize(self, status):
        self.ended.append(status)

    # of the tracker's own run
    def finish(self, exit_code):
        self.ended.append(exit_code)

    def log_artifact(self, artifact, path=None):
        self.files |= {"report": path} if path else artifact.files

    def log_artifacts(self, number, folder, name):
        self.files[name] = folder


class Artifact:
    def __init__(self, name, type):
        self.type, self.files = type, {}

    def add_file(self, path):
        self.files[self.type] = path

    add_dir = add_file


@pytest.fixture(params=["wandb", "mlflow"])
def tracker(request, monkeypatch):
    """The name of a tracker whose package is replaced, and the loggers that it made."""
    module = ModuleType(request.param)
    module.__spec__ = importlib.machinery.ModuleSpec(request.param, None)
    module.Artifact = Artifact
    module.get_tracking_uri = lambda: "sqlite:///mlflow.db"
    monkeypatch.setitem(sys.modules, request.param, module)
    monkeypatch.setattr(StandIn, "runs", {})
    loggers = []

    def make(*words, **options):
        loggers.append(StandIn(*words, **options))
        return loggers[-1]

    for name in ("WandbLogger", "MLFlowLogger"):
        monkeypatch.setattr(lightning.pytorch.loggers, name, make)
    return SimpleNamespace(name=request.param, loggers=loggers)


def test_a_tracker_has_curves_figures_report_and_model(tracker, scenes, quick, tmp_path):
    run = tmp_path / "run"
    with failing(3), RunLogger(tracker.name) as logger:
        fit(scenes, quick, run, quiet=True, logger=logger)
    with RunLogger(tracker.name) as logger:
        fit(scenes, quick, run, quiet=True, logger=logger, resume=True)
        logger.attach()
    first, last = tracker.loggers
    check(run, StandIn.runs["number-1"])
    assert first.config["method"] == "gr" and not hasattr(last, "config")
    assert last.files == {"report": str(run / "report.html"), "model": str(run / "best")}
    ends = {"wandb": (["failed", 1], ["success", 0]), "mlflow": (["failed"], ["success"])}
    assert (first.ended, last.ended) == ends[tracker.name]


def test_the_flag_sends_the_report_after_it_is_written(tracker, scenes_file, here):
    words = ["--method", "gr", "--out", "run", "--logger", tracker.name, *TINY.split()]
    assert main(["train", str(scenes_file), *words]) == 0
    assert tracker.loggers[0].files["report"] == "run/report.html"
    assert (here / "run" / "report.html").is_file()


def test_a_class_has_a_metric_that_mlflow_accepts(tracker, tmp_path):
    with RunLogger(tracker.name) as logger:
        logger.open(tmp_path, {})
        logger.finish({"best_epoch": 1, "per_class_ap": {"cat": 3.0, "鳥": 1.0, "魚": 2.0}})
    names = {"wandb": ["cat", "鳥", "魚"], "mlflow": ["cat", "_ 2", "_ 3"]}[tracker.name]
    assert [name for name, *_ in StandIn.runs["number-1"]] == [f"test_ap/{one}" for one in names]


def test_an_error_of_the_tracker_is_one_line_and_leaves_nothing(
    tracker, scenes, quick, tmp_path, monkeypatch
):
    def refuse(self, config):
        raise RuntimeError("No API key configured.\nLog in.")

    monkeypatch.setattr(StandIn, "log_hyperparams", refuse)
    message = f"--logger {tracker.name}: No API key configured. Log in."
    with refused(message), RunLogger(tracker.name) as logger:
        fit(scenes, quick, tmp_path / "run", quiet=True, logger=logger)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "mlflow"])
def test_a_missing_package_is_named_before_anything_is_written(
    name, scenes_file, here, monkeypatch, capsys
):
    monkeypatch.setitem(sys.modules, name, None)
    flag = ["--tensorboard"] if name == "tensorboard" else ["--logger", name]
    words = ["--method", "gr", "--out", "run", *flag, *TINY.split()]
    assert main(["train", str(scenes_file), *words]) == 2
    needs = f"spml: --logger {name} needs a package that is not installed: pip install {name}\n"
    assert capsys.readouterr().err == needs
    assert not (here / "run").exists()
