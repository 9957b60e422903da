"""Training settings, their roles, and what makes two runs the same.

The role of a setting is metadata of its field in `Settings`; the other entries of config.json have
theirs in `PARTS`. An entry without a role, such as one that a caller of `fit` adds, changes the
result.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from pathlib import Path
from typing import Any, Literal

Selection = Literal["observed", "complete"]
PROTOCOL_SEED = 1200
AUTO = "auto"  # the method that is a race: spml.train.auto


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
    """How a setting, or another entry of config.json, takes part in the identity of a run."""

    role: Role = Role.RESULT
    has_path: bool = False  # the value contains a path; resuming stores the current one
    resumable: bool = False  # a stopped run may resume with another value
    mismatch: str = ""  # describes a different value, if the value itself says nothing


PART = "part"  # key of a field's metadata; a field without it is Part()
_METHOD = {PART: Part(Role.METHOD)}
_WEIGHTS = {PART: Part(has_path=True)}
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
    """How to train. `spml.train.resolve.resolve` replaces every None by a value for the data."""

    method: str | None = field(default=None, metadata=_METHOD)
    """Name of a method, package.module:function, or auto, a race.
    Default: auto; gr for the benchmarks and digits."""
    race_budget: float = field(default=2.5, metadata=_EXECUTION)
    """What the race of --method auto may cost besides the winner's training, in multiples of it.
    0 takes the first candidate without a race; from 45 on, five folds cross-fit all candidates."""
    backbone: str | None = None
    """tiny, linear (for feature vectors) or any timm model.
    Default: tf_efficientnet_lite0; resnet50 for benchmarks, tiny for digits,
    linear for features."""
    weights: str | None = field(default=None, metadata=_WEIGHTS)
    """none, pretrained, or a file of tensors.
    Default: pretrained if the backbone has pretrained weights."""
    size: int | None = None
    """Height and width to which pictures are resized.
    Default: 448; square arrays keep their size, others take their longer side."""
    head: str | None = None
    """linear, boostlu (boosted class maps), query or query-normal (a transformer).
    Default: the head of the method."""
    epochs: int | None = None
    """Number of epochs.
    Default: the benchmark's protocol; else 10 for pictures and digits, 30 for features."""
    batch_size: int | None = None
    """Items per training step.
    Default: the benchmark's protocol; else 16 for pictures, 32 for digits; for features a fiftieth
    of the training rows, from 16 to 128."""
    lr: float | None = None
    """Learning rate of the backbone.
    Default: the benchmark's protocol; else pictures 5e-5 (up to 1.5e-4 if they are few), digits
    3e-3, features 2e-4."""
    head_lr: float | None = None
    """Head learning rate as a multiple of --lr.
    Default: 10; 1 for a query head, except on the benchmarks, where it is the published one."""
    linear_init: int = 0
    """Epochs of linear initialisation: train only the head, on frozen features. Published: 25."""
    linear_lr: float | None = None
    """Head learning rate during linear initialisation. Default: the head's usual rate."""
    linear_batch_size: int | None = None
    """Batch size during linear initialisation. Default: --batch-size."""
    optimizer: Literal["adam", "adamw", "adamax", "sgd"] = "adam"
    """Optimiser. The protocol uses Adam; SGD has momentum 0.9."""
    schedule: Literal["constant", "one-cycle"] = "constant"
    """Learning rate: constant, or rising over the first fifth of training and then falling to 0."""
    weight_decay: float = 0.0
    """Weight decay of the optimiser."""
    flip: bool | None = None
    """Mirror training pictures at random. Default: yes for pictures, no for digits."""
    crop: float | None = None
    """Train on random crops of pictures, of at least this share of their area. Default: no crop."""
    frozen_norm: bool | None = None
    """Freeze the backbone's batch norm: its statistics, scale and shift stay as loaded.
    Default: yes for pretrained weights with lagc, mime and smile."""
    ema: float = 0.0
    """Decay of the average of the weights that is validated, selected and tested; 0: no average."""
    seed: int = field(default=0, metadata=_SEED)
    """Seed of initialisation, order and augmentation."""
    observe_seed: int = field(default=PROTOCOL_SEED, metadata=_SEED)
    """Seed of the draw of single positives, if labels are complete."""
    split_seed: int = field(default=PROTOCOL_SEED, metadata=_SEED)
    """Seed of the draw of validation rows, if the data mark none."""
    selection: Selection | None = None
    """Validation labels that select the best epoch.
    Default: complete if the validation rows have them, else observed."""
    patience_drop: float | None = None
    """Stop when the validation figure falls this many points below its best. Default: never."""
    precision: str | None = None
    """32-true, bf16-mixed or 16-mixed. Default: bf16-mixed on a GPU, else 32-true."""
    accelerator: str = field(default="auto", metadata=_DEVICE)
    """Kind of device: auto, cpu, cuda or mps."""
    devices: int = field(default=1, metadata=_EXECUTION)
    """Processes per machine, each on its own device; they share every batch.
    A race trains a candidate on each. torchrun and SLURM set the number themselves."""
    nodes: int = field(default=1, metadata=_EXECUTION)
    """Machines, each with --devices devices."""
    compile: Literal["auto", "none", "graphs", "compile"] = field(
        default="auto", metadata=_EXECUTION
    )
    """Run the model eagerly (none), from CUDA graphs, or compiled.
    auto: graphs on one GPU, compiled if training is long."""
    eval_batch_size: int | None = field(default=None, metadata=_EXECUTION)
    """Items per batch when scoring. Default: four times the batch size, on a GPU at least 128."""
    on_nan: Literal["stop", "skip"] = field(default="stop", metadata=_ON_NAN)
    """If the loss is NaN or infinite: stop the run, or skip the batch and count it."""
    checkpoint_minutes: float = field(default=10.0, metadata=_EXECUTION)
    """Also write a checkpoint within an epoch once this many minutes have passed since the last."""
    cache: Literal["none", "disk", "memory", "device"] | None = field(
        default=None, metadata=_EXECUTION
    )
    """Storage of decoded pictures; changes no result.
    Default: device if they fit into GPU memory, else disk."""
    cache_dir: Path | None = field(default=None, metadata=_LOCATION)
    """Folder of decoded pictures. Default: $SPML_CACHE, or ~/.cache/spml."""


@dataclass(frozen=True, kw_only=True)
class Resolved(Settings):
    """Settings with every decision made: no field is None. `spml.train.resolve.resolve` builds it.

    Whatever is off has a value: crop 1.0 shows the whole
    picture, patience_drop infinity never stops early, size 0 is that of feature vectors.

    Attributes:
        unset: settings that are off, or depend on the machine; config.json records them as null, so
            that a run can be resumed on another machine.
    """

    method: str
    backbone: str
    weights: str
    size: int
    head: str
    epochs: int
    batch_size: int
    lr: float
    head_lr: float
    linear_lr: float
    linear_batch_size: int
    flip: bool
    crop: float
    frozen_norm: bool
    selection: Selection
    patience_drop: float
    precision: str
    compile: Literal["none", "graphs", "compile"]
    eval_batch_size: int
    cache: Literal["none", "disk", "memory", "device"]
    cache_dir: Path
    unset: frozenset[str]

    def as_config(self) -> dict[str, Any]:
        """Return the settings by name, as config.json records them."""
        names = [item.name for item in fields(self) if item.name != "unset"]
        return {name: None if name in self.unset else getattr(self, name) for name in names}


Config = dict[str, Any]

DATA_HASH = "data_sha256"
SAMPLE = "sample_sha256"  # of the content of some items
CHANGED = "changed_data"  # the changed data that the run was resumed on
PROVENANCE = ("command", "versions", "device", "threads", "processes", CHANGED)
PARTS: dict[str, Part] = {
    # The hashes below decide whether a run resumes on the same data; the file may have moved.
    "data": Part(has_path=True, resumable=True),
    "classes": Part(has_path=True, resumable=True),
    # These name a file if the observed labels come from one.
    "observe": Part(has_path=True),
    "observation": Part(has_path=True),
    # The race that chose the method; the method and options beside it decide what resumes.
    "race": Part(Role.METHOD, resumable=True),
    # Of a query head; older runs with one lack the entry.
    "head_structure": Part(mismatch="another structure of its query head"),
    "options": Part(Role.METHOD),
    "side_information": Part(Role.METHOD),
    "method_sha256": Part(Role.METHOD, mismatch="other code of its method"),
    # Hashes of the labels and rows that the seeds drew.
    "observed_sha256": Part(Role.SEED, mismatch="other data"),
    DATA_HASH: Part(Role.SEED, mismatch="other data"),
    # Read only if the data lie elsewhere than before or their hashes are lost; older runs lack it.
    SAMPLE: Part(Role.EXECUTION),
    "options_from_data": Part(Role.EXECUTION),  # names of options; `options` has their values
    "fused_norm": Part(Role.EXECUTION),  # a setting that was removed
    **dict.fromkeys(("root", "val", "test", "out"), Part(Role.LOCATION, has_path=True)),
    **dict.fromkeys(PROVENANCE, Part(Role.PROVENANCE)),
    **{field.name: field.metadata.get(PART, Part()) for field in fields(Settings)},
}
SEEDS = tuple(item.name for item in fields(Settings) if PARTS[item.name].role is Role.SEED)
DEFINING = (Role.RESULT, Role.METHOD, Role.SEED)  # a plan of runs names these
RECORDED = (*DEFINING, Role.DEVICE)  # config.json holds the settings of these roles
REPEATED = (Role.RESULT, Role.METHOD)  # equal in the repetitions of an experiment
STUDIED = (Role.RESULT, Role.SEED)  # equal in the runs of a study
FOREIGN = (Role.LOCATION, Role.PROVENANCE)  # mean nothing on another machine
# Flags of settings that were removed; recorded commands may have them.
REMOVED_FLAGS = ("--fused-norm", "--no-fused-norm")
# Flags that had no value, and what they mean now.
FORMER_SWITCHES = {
    "--frozen-norm": ("--frozen-norm", "True"),
    "--no-frozen-norm": ("--frozen-norm", "False"),
}
# The values of entries that config.json did not have before they were introduced.
INTRODUCED: Config = {
    "head": "linear",
    "linear_init": 0,
    "linear_lr": None,
    "linear_batch_size": None,
    "schedule": "constant",
    "crop": None,
    "frozen_norm": False,
    "ema": 0.0,
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
    entries = _with_roles(config, RECORDED)
    return _without_paths({name: entries[name] for name in entries if not part(name).resumable})


def mismatch(stored: Mapping[str, Any], config: Mapping[str, Any]) -> str | None:
    """Describe why a stored run cannot resume with a configuration; None if it can."""
    before = _flat(resume_key(upgrade(stored)))
    for name, value in _flat(resume_key(json.loads(json.dumps(config)))).items():
        if before.get(name) != value:
            return part(name).mismatch or f"{name} = {before.get(name)!r}, not {value!r}"
    return None


def with_paths(config: Mapping[str, Any]) -> Config:
    """Return the entries that contain paths, which resuming brings up to date."""
    return {name: value for name, value in config.items() if part(name).has_path}


def group_key(config: Mapping[str, Any]) -> Config:
    """Return what the repetitions of one experiment share: everything but draws and execution."""
    shared = _without_paths(_with_roles(upgrade(config), REPEATED))
    if "race" in shared:  # runs of one race belong together, whichever method won in each
        shared |= {"method": "auto", "options": {}, "side_information": {}, "race": None}
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
        _with_roles(config, tuple(role for role in Role if role not in FOREIGN))
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
