"""A trained model on disk, and the rule that turns its logits into tags.

Every command decides tags by `TagRule`, from the model's own logits and in float64, so that all of
them agree on an item whose probability is exactly at its threshold or too close to 1 for float32.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from spml.errors import DAMAGED, UserError
from spml.files import encodable, read_json, replacing, write_json
from spml.metrics.scores import HIGHEST, Mask, Values, as_numpy, reaches, sigmoid, threshold_logits
from spml.model.backbones import read_tensors
from spml.model.calibration import Calibration, Knots, Lines, calibration_problem
from spml.model.classifier import Classifier
from spml.model.query import EARLIER, RELEASED

BEST = "best"  # folder of the chosen model in a run folder
WEIGHTS, INFO, CARD = "model.safetensors", "model.json", "README.md"
FORMAT = 1
LOWEST = 1e-12  # lowest threshold, so that its logit is finite
CHECKSUM = "sha256"  # key in the file of weights, so that one file is replaced, not two
SURE = 1 - 2**-25
"""Probabilities from here on are 1 in float32, the precision in which they are written."""

Array = npt.NDArray[np.float64]


def tagged(logits: Values, thresholds: npt.ArrayLike) -> Mask:
    """Whether each calibrated logit (..., classes) is a tag.

    A threshold above `SURE` counts as `SURE`: a probability written as 1 reaches every threshold.
    """
    return reaches(logits, np.minimum(np.asarray(thresholds, np.float64), SURE))


@dataclass(frozen=True, eq=False)
class TagRule:
    """The tag rule of one model."""

    thresholds: Array  # one per class, on the calibrated probability
    knots: Knots | None = None  # None: not calibrated

    @cached_property
    def _lines(self) -> Lines | None:
        return None if self.knots is None else Lines(self.knots)

    def logits(self, logits: Values) -> Array:
        """Calibrated logits in float64; infinite logits of half precision become finite."""
        inside = np.clip(as_numpy(logits).astype(np.float64), -HIGHEST, HIGHEST)
        return inside if self._lines is None else self._lines(inside)

    def probabilities(self, logits: Values) -> Array:
        """Calibrated probabilities in float64."""
        return sigmoid(self.logits(logits))

    def tagged(self, logits: Values) -> Mask:
        """Which classes the model tags, from its own logits (..., classes)."""
        return tagged(self.logits(logits), self.thresholds)


@dataclass(frozen=True)
class ModelInfo:
    """The contents of model.json.

    Attributes:
        classes: names, in the order of the logits.
        backbone: name, to build it again.
        preprocessing: kind ("pictures" or "features"), size, upright, number of features
            and, if their data name them, their `columns`.
        thresholds: probability from which each class counts as present.
        training: data, method, options, selection, validation figure and seed of its training.
        versions: of the libraries.
        head: name, to build it again.
        head_structure: of a query head. Models stored before it was recorded have the earlier one.
        calibration: knots of `Calibration`; None if the model is not calibrated.
    """

    classes: list[str]
    backbone: str
    preprocessing: dict[str, Any]
    thresholds: list[float]
    training: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    head: str = "linear"  # also of models that were stored without naming it
    head_structure: str = RELEASED
    calibration: Knots | None = None
    format: int = FORMAT

    def calibrate(self) -> Calibration:
        """The module that calibrates logits; thresholds refer to the sigmoid of its output."""
        return Calibration(self.calibration, len(self.classes))

    def cuts(self) -> Tensor:
        """The model's own logit at which each class reaches its threshold."""
        inside = threshold_logits(np.clip(self.thresholds, LOWEST, SURE))
        return self.calibrate().inverse(torch.from_numpy(inside))

    @cached_property
    def tag_rule(self) -> TagRule:
        """The rule that decides which classes an item is tagged with."""
        return TagRule(np.array(self.thresholds, np.float64), self.calibration)


def save_model(folder: Path, model: Classifier | Mapping[str, Tensor], info: ModelInfo) -> None:
    """Write the weights, then the description.

    A reader between the two sees the new weights with the old description, which fits both.
    """
    from safetensors.torch import save

    state = model.state_dict() if isinstance(model, Classifier) else model
    tensors = {name: value.detach().cpu().contiguous() for name, value in state.items()}
    with replacing(folder / WEIGHTS) as beside:
        # save_file leaves files behind when killed
        beside.write_bytes(save(tensors, {CHECKSUM: _digest(tensors)}))
    write_json(folder / INFO, asdict(info))


def load_model(folder: str | Path) -> tuple[Classifier, ModelInfo]:
    """The classifier in a run folder or its `best`, ready to predict on the CPU, and its info."""
    folder = Path(folder)
    info, path = read_info(folder), model_folder(folder) / WEIGHTS
    features = info.preprocessing.get("features")
    try:
        model = Classifier.build(
            info.backbone, len(info.classes), "none", features, info.head, info.head_structure
        )
    except UserError as error:
        raise UserError(f"{path.with_name(INFO)}: {error}") from error
    tensors = _tensors(path)
    try:
        model.load_state_dict(dict(tensors))
    except RuntimeError as error:
        raise UserError(f"{path} does not fit its {INFO} ({_misfit(error)}); {DAMAGED}") from error
    return model.eval().requires_grad_(False), info


def check_weights(folder: Path) -> None:
    """Raise UserError if the file of weights is missing or changed; the model is not built."""
    _tensors(model_folder(folder) / WEIGHTS)


def check_model(folder: Path, best: int, last: int | None = None) -> None:
    """Raise UserError if a run's model is damaged, or not that of the best epoch.

    One of an epoch after `last` is accepted: that epoch is trained again.
    """
    check_weights(folder)
    stored = read_info(folder).training.get("epoch")
    repeated = last is not None and isinstance(stored, int) and stored > last
    if stored != best and not repeated:
        raise UserError(f"{folder}: of epoch {stored}, but {best} is the best epoch; {DAMAGED}")


def _tensors(path: Path) -> Mapping[str, Tensor]:
    from safetensors import safe_open

    if not path.is_file():
        raise UserError(f"{path}: no such file of weights; {DAMAGED}")
    try:
        tensors = read_tensors(path)
    except UserError as error:
        raise UserError(f"{error}; {DAMAGED}") from error
    with safe_open(path, "pt") as file:
        checksum = (file.metadata() or {}).get(CHECKSUM)  # older models have none
    if checksum not in (None, _digest(tensors)):
        raise UserError(
            f"{path}: its checksum does not fit: it was changed or is damaged; {DAMAGED}"
        )
    return tensors


def _misfit(error: RuntimeError) -> str:
    """The first reason in torch's message on tensors that do not fit."""
    lines = [line.strip() for line in str(error).splitlines()]
    return (lines[1] if len(lines) > 1 else lines[0]).rstrip(".")[:150]


def write_info(folder: Path, info: ModelInfo) -> None:
    """Replace the description of the model in a run folder or its `best`."""
    if problem := _problem(info):
        raise ValueError(problem)
    write_json(model_folder(folder) / INFO, asdict(info))


def model_folder(folder: Path) -> Path:
    """The folder of the model's files: `best` of a run folder, else the folder itself."""
    return folder / BEST if (folder / BEST).is_dir() else folder


def _digest(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of names, types, shapes and values."""
    digest = hashlib.sha256()
    for name, value in sorted(tensors.items()):
        digest.update(f"{name} {value.dtype} {list(value.shape)}".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def read_info(folder: Path) -> ModelInfo:
    """The description alone, of the model in a run folder or its `best`."""
    path = model_folder(folder) / INFO
    if not path.is_file():
        why = f"no {path.name}" if path.parent.is_dir() else "it is not a folder"
        raise UserError(f"{path.parent}: no model here ({why}); give the folder of a finished run")
    try:
        values = {"head_structure": EARLIER, **read_json(path)}
        if int(values["format"]) > FORMAT:
            raise UserError(f"{path}: written by a newer version of spml; update spml to read it")
        optional = {"head", "calibration"} - set(values)  # missing in older files
        names = [item.name for item in fields(ModelInfo) if item.name not in optional]
        info = ModelInfo(**{name: values[name] for name in names})
        problem = _problem(info)
    except KeyError as error:
        raise UserError(f"{path}: not a model description (no {error}); {DAMAGED}") from error
    except (ValueError, TypeError) as error:  # UserError is a ValueError
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path}: not a model description ({error}); {DAMAGED}") from error
    if problem:
        raise UserError(f"{path}: {problem}; {DAMAGED}")
    return info


def _problem(info: ModelInfo) -> str | None:
    """Return what is wrong with a description, or None."""
    classes, thresholds, how = info.classes, info.thresholds, info.preprocessing
    if not _all_are(classes, str) or not classes:
        return "classes must be a list of names"
    if not encodable("".join(classes)):
        return "a class name is no text"
    if len(set(classes)) < len(classes):
        return "a class stands twice"
    if not _all_are(thresholds, int | float) or not all(0 <= value <= 1 for value in thresholds):
        return "thresholds must be probabilities"
    if len(classes) != len(thresholds):
        return f"{len(classes)} classes but {len(thresholds)} thresholds"
    if info.calibration is not None and (
        problem := calibration_problem(info.calibration, len(classes))
    ):
        return problem
    if not isinstance(info.backbone, str) or not isinstance(info.head, str):
        return "backbone and head must be names"
    if info.head_structure not in (RELEASED, EARLIER):
        return f"head_structure must be {RELEASED} or {EARLIER}"
    if not all(isinstance(table, dict) for table in (how, info.training, info.versions)):
        return "preprocessing, training and versions must be tables"
    wanted = {"pictures": "size", "features": "features"}.get(str(how.get("kind")))
    if wanted is None or how.get("upright") is not True:
        return "preprocessing must say kind (pictures or features), size, features, upright: true"
    if type(how.get(wanted)) is not int or how[wanted] < 1:
        return f"preprocessing: {wanted} must be a whole number above 0"
    if "columns" in how and not (
        _all_are(how["columns"], str) and len(how["columns"]) == how["features"]
    ):
        return "preprocessing: columns must be a list of one name for each feature"
    return None


def _all_are(values: Any, kind: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, kind) for value in values)


def versions() -> dict[str, str]:
    """Versions of Python and of the libraries that a result depends on."""
    import platform
    from importlib.metadata import version

    import spml

    others = {name: version(name) for name in ("torchvision", "timm", "lightning", "numpy")}
    python = platform.python_version()
    return {"spml": spml.__version__, "python": python, "torch": torch.__version__, **others}
