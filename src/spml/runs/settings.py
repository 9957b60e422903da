"""Settings of a run: what the user asks for, and the same with every decision made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

Selection = Literal["observed", "complete"]
PROTOCOL_SEED = 1200
# what a run that does not name these was made with: it is older than they are
UNNAMED: dict[str, Any] = {
    "head": "linear",
    "linear_init": 0,
    "linear_lr": None,
    "linear_batch_size": None,
    "schedule": "constant",
    "crop": None,
    "frozen_norm": False,
    "on_nan": "stop",
    "classes": None,
}


RUNNING = (
    "devices",
    "nodes",
    "eval_batch_size",
    "checkpoint_minutes",
)  # must be above 0; change no result


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to train; what is None is decided by the data (see `resolve`)."""

    method: str = "gr"
    """Method by name, or package.module:function for one's own."""
    backbone: str | None = None
    """tiny, linear (for feature vectors) or any timm model. Default: resnet50; tiny for digits; linear for features."""
    weights: str | None = None
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
    seed: int = 0
    """Of initialisation, order and augmentation."""
    observe_seed: int = PROTOCOL_SEED
    """Of the draw of single positives, where labels are complete."""
    split_seed: int = PROTOCOL_SEED
    """Of the validation rows, where the data bring none."""
    selection: Selection | None = None
    """Labels that choose the epoch. Default: complete where the validation rows have them, else observed."""
    patience_drop: float | None = None
    """Stop when the validation figure is this many points below its best. Default: never."""
    precision: str | None = None
    """Of Lightning Fabric: 32-true, bf16-mixed, 16-mixed. Default: bf16-mixed on a GPU, 32-true elsewhere."""
    accelerator: str = "auto"
    """auto, cpu, cuda or mps."""
    devices: int = 1
    """Processes, each with a device of its own, that share every batch; under torchrun and SLURM, theirs count."""
    nodes: int = 1
    """Machines with that many devices each."""
    compile: Literal["auto", "none", "graphs", "compile"] = "auto"
    """Run the model eager, from CUDA graphs, or compiled. Default: graphs on one GPU, compiled if training is long."""
    fused_norm: bool = True
    """With CUDA graphs, run batch norm with what follows it, and channelwise convolutions, by kernels of our own."""
    eval_batch_size: int | None = None
    """Items scored together. Default: four times the batch size, on a GPU at least 128."""
    on_nan: Literal["stop", "skip"] = "stop"
    """What a loss that is NaN or infinite does: end the run, or leave its batch out and be counted."""
    checkpoint_minutes: float = 10.0
    """A checkpoint is also written within an epoch once this time has passed since the last."""
    cache: Literal["none", "disk", "memory", "device"] | None = None
    """Where decoded pictures are kept; changes no result. Default: device where a GPU has room for them, else disk."""
    cache_dir: Path | None = None
    """Folder of the decoded pictures. Default: $SPML_CACHE, or ~/.cache/spml."""


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """Settings with every decision made: no field is None. `spml.train.resolve.resolve` builds it.

    Fields mean what they mean in `Settings`. Whatever is off has a value: crop 1.0 shows the whole
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
    linear_init: int
    linear_lr: float
    linear_batch_size: int
    optimizer: Literal["adam", "adamw", "adamax", "sgd"]
    schedule: Literal["constant", "one-cycle"]
    weight_decay: float
    flip: bool
    crop: float
    frozen_norm: bool
    seed: int
    observe_seed: int
    split_seed: int
    selection: Selection
    patience_drop: float
    precision: str
    accelerator: str
    devices: int
    nodes: int
    compile: Literal["none", "graphs", "compile"]
    fused_norm: bool
    eval_batch_size: int
    on_nan: Literal["stop", "skip"]
    checkpoint_minutes: float
    cache: Literal["none", "disk", "memory", "device"]
    cache_dir: Path
    unset: frozenset[str]

    def as_config(self) -> dict[str, Any]:
        """Return the settings by name, as config.json records them."""
        names = [item.name for item in fields(self) if item.name != "unset"]
        return {name: None if name in self.unset else getattr(self, name) for name in names}


def without_folder(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration with the name alone of a file of weights, which is the same wherever it lies."""
    weights = config.get("weights")
    return (
        {**config}
        if weights in (None, "none", "pretrained")
        else {**config, "weights": Path(str(weights)).name}
    )
