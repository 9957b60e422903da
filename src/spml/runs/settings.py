"""Training settings: the options of `spml train`, the entries of config.json, and their roles."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from spml.errors import UserError

if TYPE_CHECKING:
    from spml.data import Experiment

Selection = Literal["observed", "complete"]
PROTOCOL_SEED = 1200


class Role(Enum):
    """What a setting, or another entry of config.json, means for the identity of a run."""

    RESULT = "changes the result"
    METHOD = "describes the method, which a study varies"
    SEED = "is a random draw: runs that differ only here are repetitions"
    DEVICE = "selects the kind of device: changes the result by rounding"
    EXECUTION = "controls execution or is a note: changes no result"
    LOCATION = "locates a file or folder"
    PROVENANCE = "describes the process and the machine that trained"


@dataclass(frozen=True)
class Part:
    """How a setting, or another entry of config.json, takes part in the identity of a run.

    Attributes:
        role: See `Role`.
        place: The value contains a path. Resuming stores the current one.
        resumable: A stopped run may resume with another value.
        mismatch: How an error describes a different value, if the value itself says nothing.
    """

    role: Role = Role.RESULT
    place: bool = False
    resumable: bool = False
    mismatch: str = ""


PART = "part"  # key of a field's metadata; a field without it is Part()
_METHOD = {PART: Part(Role.METHOD)}
_WEIGHTS = {PART: Part(place=True)}
_SEED = {PART: Part(Role.SEED)}
# `auto` resolves to the device at hand. The same precision on another device changes a result by
# rounding only, so such runs belong together; a single run still resumes on one kind of device.
# `precision` is a RESULT: 16-bit training can move the figures.
_DEVICE = {PART: Part(Role.DEVICE)}
_EXECUTION = {PART: Part(Role.EXECUTION)}
_LOCATION = {PART: Part(Role.LOCATION)}
# A run that stopped at a NaN loss may resume with `skip`.
_ON_NAN = {PART: Part(resumable=True)}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to train; `resolve` decides what is None by the data."""

    method: str = field(default="gr", metadata=_METHOD)
    """Method by name, or package.module:function for one's own."""
    backbone: str | None = None
    """tiny, linear (for feature vectors) or any timm model. Default: resnet50; tiny for digits; linear for features."""
    weights: str | None = field(default=None, metadata=_WEIGHTS)
    """none, pretrained, or a file of tensors. Default: pretrained where there are pretrained weights."""
    size: int | None = None
    """Height and width pictures are resized to. Default: 448; arrays keep their own size, or take the longer side."""
    head: str | None = None
    """linear, boostlu (boosted class maps), query or query-normal (a transformer). Default: what the method wants."""
    epochs: int | None = None
    """Default: what the benchmark's protocol says; 10 for one's own pictures and digits; 30 for features."""
    batch_size: int | None = None
    """Default: what the benchmark's protocol says; 16 for one's own pictures; 32 for digits; 64 for features."""
    lr: float | None = None
    """Learning rate of the backbone. Default: the protocol's; one's own pictures 5e-5; digits 3e-3; features 1e-4."""
    head_lr: float | None = None
    """The head learns this many times as fast. Default: 10; 1 for a query head, but on the benchmarks."""
    linear_init: int = 0
    """Epochs that train the head alone, on frozen features, before all is trained; published: 25."""
    linear_lr: float | None = None
    """Learning rate of the head in those. Default: that of the head in the others."""
    linear_batch_size: int | None = None
    """Batch size in those. Default: that of the others."""
    optimizer: Literal["adam", "adamw", "adamax", "sgd"] = "adam"
    """Adam as the protocol has it, one of its relatives, or SGD with momentum 0.9."""
    schedule: Literal["constant", "one-cycle"] = "constant"
    """Learning rates as they are, or rising over the first fifth of training and falling to nothing."""
    weight_decay: float = 0.0
    """Of the optimiser."""
    flip: bool | None = None
    """Mirror pictures at random while training. Default: yes for pictures, no for digits."""
    crop: float | None = None
    """Cut a random part out of each picture while training, of at least this share of its area. Default: no."""
    frozen_norm: bool = False
    """Batch norm of the backbone keeps the statistics, scale and shift that it came with."""
    seed: int = field(default=0, metadata=_SEED)
    """Of initialisation, order and augmentation."""
    observe_seed: int = field(default=PROTOCOL_SEED, metadata=_SEED)
    """Of the draw of single positives, where labels are complete."""
    split_seed: int = field(default=PROTOCOL_SEED, metadata=_SEED)
    """Of the validation rows, where the data bring none."""
    selection: Selection | None = None
    """Labels that choose the epoch. Default: complete where the validation rows have them, else observed."""
    patience_drop: float | None = None
    """Stop when the validation figure is this many points below its best. Default: never."""
    precision: str | None = None
    """Of Lightning Fabric: 32-true, bf16-mixed, 16-mixed. Default: bf16-mixed on a GPU, 32-true elsewhere."""
    accelerator: str = field(default="auto", metadata=_DEVICE)
    """auto, cpu, cuda or mps."""
    devices: int = field(default=1, metadata=_EXECUTION)
    """Processes, each with a device of its own, that share every batch; under torchrun and SLURM, theirs count."""
    nodes: int = field(default=1, metadata=_EXECUTION)
    """Machines with that many devices each."""
    compile: Literal["auto", "none", "graphs", "compile"] = field(
        default="auto", metadata=_EXECUTION
    )
    """Run the model eager, from CUDA graphs, or compiled. Default: graphs on one GPU, compiled if training is long."""
    fused_norm: bool = field(default=True, metadata=_EXECUTION)
    """With CUDA graphs, run batch norm with what follows it, and channelwise convolutions, by kernels of our own."""
    eval_batch_size: int | None = field(default=None, metadata=_EXECUTION)
    """Items scored together. Default: four times the batch size, on a GPU at least 128."""
    on_nan: Literal["stop", "skip"] = field(default="stop", metadata=_ON_NAN)
    """What a loss that is NaN or infinite does: end the run, or leave its batch out and be counted."""
    checkpoint_minutes: float = field(default=10.0, metadata=_EXECUTION)
    """A checkpoint is also written within an epoch once this time has passed since the last."""
    cache: Literal["none", "disk", "memory", "device"] | None = field(
        default=None, metadata=_EXECUTION
    )
    """Where decoded pictures are kept; changes no result. Default: device where a GPU has room for them, else disk."""
    cache_dir: Path | None = field(default=None, metadata=_LOCATION)
    """Folder of the decoded pictures. Default: $SPML_CACHE, or ~/.cache/spml."""


@dataclass(frozen=True)
class DataDefaults:
    """Settings that belong to a kind of data."""

    backbone: str
    weights: str
    size: int | None
    epochs: int
    batch_size: int
    lr: float
    flip: bool
    head_lr: float = 10.0


PICTURES = DataDefaults(
    "resnet50", "pretrained", 448, epochs=10, batch_size=16, lr=5e-5, flip=True
)  # lr: docs/faq.md
DIGITS = DataDefaults(
    "tiny", "none", None, epochs=10, batch_size=32, lr=3e-3, flip=False
)  # lr: docs/digits.md
DIGITS_QUERY = replace(DIGITS, lr=1e-3, head_lr=1.0)  # a transformer fails at 3e-2: docs/methods.md
FEATURES = DataDefaults("linear", "none", None, epochs=30, batch_size=64, lr=1e-4, flip=False)


def data_defaults(experiment: Experiment, head: str = "linear") -> DataDefaults:
    """What is not said belongs to the data: the benchmark's protocol, digits' own, or one's own data's."""
    from spml.data.benchmarks import NAMES
    from spml.data.readers.digits import SETTINGS
    from spml.losses import preset

    if experiment.name in SETTINGS:
        return DIGITS_QUERY if head.startswith("query") else DIGITS
    x = experiment.observed.x
    if x is not None and x.ndim == 2:
        own = FEATURES
    elif experiment.name not in NAMES:
        own = PICTURES if x is None else replace(PICTURES, size=_square(*x.shape[-2:]))
    else:
        training = preset(
            "gr", experiment.name
        ).training  # the protocol that the paper trains every method with
        return replace(PICTURES, **{key: training[key] for key in ("epochs", "batch_size", "lr")})
    return replace(own, head_lr=1.0) if head.startswith("query") else own  # docs/faq.md


def _square(height: int, width: int) -> int | None:
    """None, for their own size, where arrays of pictures are square: a model is used at one height and width."""
    return None if height == width else max(height, width)


def resolve(settings: Settings, experiment: Experiment) -> Settings:
    """The same with every None decided, and refused where it cannot be carried out."""
    from spml.losses.registry import as_python, head

    settings = replace(
        settings, **{name: as_python(value) for name, value in vars(settings).items()}
    )
    x = experiment.observed.x
    meant = settings.head or head(settings.method, pictures=x is None or x.ndim == 4) or "linear"
    defaults = data_defaults(experiment, meant)
    chosen = {name: getattr(settings, name) for name in vars(defaults)}
    filled = {
        name: getattr(defaults, name) if value is None else value for name, value in chosen.items()
    }
    if settings.weights is None and filled["backbone"] in ("tiny", "linear"):
        filled["weights"] = "none"
    selection = settings.selection or (
        "complete" if experiment.validates_completely else "observed"
    )
    if selection not in ("complete", "observed"):
        raise UserError(f"selection must be 'complete' or 'observed', not {selection!r}")
    if selection == "complete" and not experiment.validates_completely:
        raise UserError(
            "selection 'complete' needs complete validation labels, which these data lack; use 'observed'"
        )
    resolved = replace(settings, **filled, selection=selection, head=meant)
    for name in (
        "epochs",
        "batch_size",
        "lr",
        "head_lr",
        "size",
        "linear_lr",
        "linear_batch_size",
        "devices",
        "nodes",
        "eval_batch_size",
        "checkpoint_minutes",
    ):
        value = getattr(resolved, name)
        if value is not None and not value > 0:
            raise UserError(f"{name} must be above 0, not {value}")
    if resolved.crop is not None and not 0 < resolved.crop < 1:
        raise UserError(f"crop is a share of the area, above 0 and below 1, not {resolved.crop}")
    for name in ("seed", "linear_init", "weight_decay", "patience_drop"):
        value = getattr(resolved, name)
        if value is not None and not value >= 0:
            raise UserError(f"{name} must not be negative, as {value} is")
    if x is not None and x.ndim == 2:
        for name in ("size", "flip", "crop"):
            if getattr(settings, name):
                raise UserError(
                    f"{name} is for pictures, and these data are feature vectors; leave it out"
                )
    return _with_linear_init(resolved)


def _with_linear_init(settings: Settings) -> Settings:
    """The same with the settings of the head's own epochs decided, where there are such."""
    from spml.losses.registry import needs

    if not settings.linear_init:
        return settings
    if settings.backbone == "linear":
        raise UserError(
            "--linear-init trains the head before the rest; backbone 'linear' has no rest: leave it out"
        )
    if "views" in needs(settings.method):
        raise UserError(
            f"--linear-init has one view of each picture, {settings.method} needs two: leave it out"
        )
    lr = settings.linear_lr or (settings.lr or 0.0) * (settings.head_lr or 1.0)
    return replace(
        settings, linear_lr=lr, linear_batch_size=settings.linear_batch_size or settings.batch_size
    )


def method_options(method: str, data: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Every option of the method: the given value, else the one published for that data, else the default."""
    from spml.data.benchmarks import NAMES
    from spml.losses import names, options, preset
    from spml.losses.registry import REQUIRED, as_python

    defaults = {
        option.name: option.default for option in options(method) if option.default is not REQUIRED
    }
    published = preset(method, data).options if data in NAMES and method in names() else {}
    plain = {name: as_python(value) for name, value in given.items()}
    for name, value in plain.items():
        try:
            json.dumps(value)
        except TypeError as error:
            told = f"option {name} cannot be kept in config.json as it is"
            raise UserError(f"{told}; give numbers, text, or lists of them, not arrays") from error
    return {**defaults, **published, **plain}
