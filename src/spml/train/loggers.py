"""Trackers of experiments: TensorBoard, a CSV file, Weights & Biases, MLflow.

Lightning's loggers write to them. TensorBoard and CSV files are in the run folder and are written
anew from the whole history when a run is resumed; the other two continue what they have.
"""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Self

from spml.errors import UserError
from spml.files import read_json, write_json
from spml.runs import names
from spml.runs.run import Run
from spml.runs.settings import portable

LoggerName = Literal["tensorboard", "csv", "wandb", "mlflow"]
PROJECT = "spml"  # if the environment names no other one


class RunLogger:
    """Sends the history and the figures of a run to a tracker, and its report and model as files.

    `fit` opens it; leaving its context closes it. The constructor raises UserError if the tracker's
    package is not installed.

    Args:
        name: of the tracker.
    """

    def __init__(self, name: LoggerName) -> None:
        self.name = name
        self.remote = name in ("wandb", "mlflow")
        self._run = Run(Path())
        self._logger: Any = None
        self._written = 0  # lines of the history
        if name != "csv" and find_spec(name) is None:
            raise UserError(
                f"--logger {name} needs a package that is not installed: pip install {name}"
            )

    def open(self, run: Path, config: Mapping[str, Any]) -> None:
        """Begin or continue the run at the tracker; UserError if the tracker refuses."""
        from lightning.fabric.loggers.csv_logs import CSVLogger
        from lightning.fabric.loggers.tensorboard import TensorBoardLogger

        self._run = Run(run)
        if not self.remote:
            shutil.rmtree(run / self.name, ignore_errors=True)
            kind = CSVLogger if self.name == "csv" else TensorBoardLogger
            self._logger = kind(run, name="", version=self.name)
            return
        stored = self._stored()
        try:
            self._logger = _remote_logger(self.name, self._run, stored.get("id"))
            if not stored:
                self._logger.log_hyperparams(portable(config))
        except Exception as error:  # each tracker raises errors of its own
            reason = " ".join(str(error).split())[:300] or type(error).__name__
            raise UserError(f"--logger {self.name}: {reason}") from error
        self._written = stored.get("lines", 0)
        self._store()

    def follow(self, history: Sequence[Mapping[str, Any]]) -> None:
        """Send the new lines of the history."""
        for line in history[self._written :]:
            self._logger.log_metrics(_numbers(line), step=line["epoch"])
        self._written = len(history)
        self._logger.save()
        self._store()

    def finish(self, result: Mapping[str, Any]) -> None:
        """Send the test figures, at the chosen epoch."""
        figures = {name: result.get(name) for name in ("test_map", "test_score")}
        for i, (name, value) in enumerate((result.get("per_class_ap") or {}).items()):
            figures[f"test_ap/{self._metric(name, i)}"] = value
        self._logger.log_metrics(_numbers(figures), step=result["best_epoch"])

    def attach(self) -> None:
        """Send the report and the folder of the chosen model, if the tracker stores files."""
        if self._logger is None or not self.remote:
            return
        experiment, report, model = self._logger.experiment, self._run.report, self._run.model
        if self.name == "mlflow":
            experiment.log_artifact(self._logger.run_id, str(report))
            experiment.log_artifacts(self._logger.run_id, str(model), "model")
            return
        import wandb

        named = re.sub(r"[^\w.-]", "-", self._run.name, flags=re.ASCII)
        page, folder = wandb.Artifact(f"{named}-report", "report"), wandb.Artifact(named, "model")
        page.add_file(str(report))
        folder.add_dir(str(model))
        for artifact in (page, folder):
            experiment.log_artifact(artifact)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *details: object) -> None:
        if self._logger is None:
            return
        self._logger.finalize("success" if kind is None else "failed")
        if self.name == "wandb":  # Lightning leaves its run open
            self._logger.experiment.finish(exit_code=int(kind is not None))

    def _metric(self, name: str, number: int) -> str:
        """Return the name of a class as the tracker takes it, unique by its number."""
        plain = re.sub(r"[^\w/. -]", "_", name, flags=re.ASCII)
        if self.name != "mlflow" or plain == name:
            return name
        return f"{plain} {number + 1}"

    def _stored(self) -> dict[str, Any]:
        """Return what an earlier process noted: the tracker's run and the lines that it has."""
        path = self._run.folder / names.LOGGER
        stored = read_json(path) if path.is_file() else {}
        return stored if stored.get("logger") == self.name else {}

    def _store(self) -> None:
        if self.remote:
            entry = {"logger": self.name, "id": self._logger.version, "lines": self._written}
            write_json(self._run.folder / names.LOGGER, entry)


def _remote_logger(name: str, run: Run, number: str | None) -> Any:
    """Return Lightning's logger of a tracker, connected; it continues the run of this number."""
    from lightning.pytorch.loggers import MLFlowLogger, WandbLogger

    logger: Any
    if name == "wandb":
        project = os.environ.get("WANDB_PROJECT", PROJECT)
        logger = WandbLogger(run.name, run.folder, id=number, project=project)
    else:
        import mlflow

        logger = MLFlowLogger(
            os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT),
            run.name,
            tracking_uri=mlflow.get_tracking_uri(),
            run_id=number,
        )
    assert logger.experiment is not None
    return logger


def _numbers(line: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures of a line without its epoch."""
    return {
        name: value
        for name, value in line.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and name != "epoch"
    }
