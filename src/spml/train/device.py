"""Where and how a run computes: device, precision, processes. What is not said is chosen, and told."""

from __future__ import annotations

import logging
from typing import Any

import torch

from spml.errors import UserError
from spml.machine import launched
from spml.runs.settings import Settings

COMPILE_FROM = 300_000  # pictures trained on: below, the time that compiling takes is not won back
EVAL_AT_ONCE = 128  # pictures, at least, that a GPU scores together
HALF = ("16-mixed", "16")  # Lightning's names of float16 beside float32


def uses_cuda(settings: Settings) -> bool:
    """Whether training runs on NVIDIA or AMD hardware."""
    return settings.accelerator in ("cuda", "gpu") or (
        settings.accelerator == "auto" and torch.cuda.is_available()
    )


def uses_cpu(settings: Settings) -> bool:
    """Whether training runs on no accelerator, as far as Lightning looks for one."""
    found = torch.cuda.is_available() or torch.backends.mps.is_available()
    return settings.accelerator == "cpu" or (settings.accelerator == "auto" and not found)


def make_fabric(settings: Settings, *, unused: bool) -> Any:
    """Lightning's Fabric for these settings, or for the processes that torchrun or SLURM has started.

    Args:
        settings: resolved.
        unused: some parameters may get no gradient in a step.
    """
    from lightning.fabric import Fabric
    from lightning.fabric.strategies.ddp import DDPStrategy

    for name in ("lightning.fabric", "lightning.fabric.utilities.rank_zero", "lightning.pytorch"):
        logging.getLogger(name).setLevel(
            logging.WARNING
        )  # what is chosen is told in one line of ours
    if uses_cuda(settings):
        torch.set_float32_matmul_precision("high")  # of what is not in bfloat16 anyway
    devices, nodes = launched() or (settings.devices, settings.nodes)
    precision: Any = settings.precision or ("bf16-mixed" if uses_cuda(settings) else "32-true")
    if precision in HALF and uses_cpu(
        settings
    ):  # Lightning would take bfloat16, and the run would be noted as float16
        raise UserError(
            f"--precision {precision} needs a GPU; on a CPU give 32-true, its default, or bf16-mixed"
        )
    many = devices * nodes > 1
    if many and settings.compile not in (
        "auto",
        "none",
    ):  # it would go past what averages gradients over processes
        told = f"--compile {settings.compile} is for one process, and there are {devices * nodes}"
        raise UserError(f"{told}; leave it out")
    strategy: Any = (
        DDPStrategy(find_unused_parameters=unused, gradient_as_bucket_view=True) if many else "auto"
    )
    try:
        return Fabric(
            accelerator=settings.accelerator,
            strategy=strategy,
            devices=devices,
            num_nodes=nodes,
            precision=precision,
        )
    except (
        Exception
    ) as error:  # Lightning has its own errors for devices and precisions that are not there
        reason = " ".join(str(error).split())[:200]
        asked = f"--accelerator {settings.accelerator} --devices {devices} --precision {precision}"
        raise UserError(f"{asked}: {reason}") from error


def smallest_share(items: int, settings: Settings) -> int:
    """Items that batch norm may have to learn from at once: those of the last batch, or a process's share of them."""
    batch = settings.batch_size or 1
    last = items % batch or batch
    devices, nodes = launched() or (settings.devices, settings.nodes)
    return (
        max(last, 2)
        if uses_cuda(settings) and devices * nodes > 1
        else -(-last // (devices * nodes))
    )


def how_to_run(settings: Settings, device: torch.device, count: int, pictures: int) -> str:
    """none, graphs or compile: how the classifier's part of a training step is run.

    Args:
        settings: `compile` is what the user said.
        device: that trains.
        count: of processes.
        pictures: that training will see in all; 0 where items are feature vectors.
    """
    if settings.compile != "auto":
        return settings.compile
    if device.type != "cuda" or count > 1 or not pictures:
        return "none"
    return "compile" if pictures >= COMPILE_FROM else "graphs"


def compile_early(settings: Settings, pictures: int) -> None:
    """Start to compile the kernels of CUDA graphs while the model is built.

    Args:
        settings: resolved.
        pictures: number of pictures in all of training.
    """
    device = torch.device("cuda" if uses_cuda(settings) else "cpu")
    devices, nodes = launched() or (settings.devices, settings.nodes)
    if settings.fused_norm and how_to_run(settings, device, devices * nodes, pictures) == "graphs":
        from spml.model.graphs import DTYPES
        from spml.model.kernels.fused import compile_ahead

        compile_ahead(DTYPES.get(settings.precision or "bf16-mixed") or torch.float32)


def eval_batch(settings: Settings, device: torch.device) -> int:
    """Items scored together; no gradient is kept, so more than in training."""
    if settings.eval_batch_size is not None:
        return settings.eval_batch_size
    several = 4 * (settings.batch_size or 1)
    return max(several, EVAL_AT_ONCE) if device.type == "cuda" else several


def device_name(device: torch.device) -> str:
    """What a device is called: the model of a GPU, else its kind."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def described(
    settings: Settings,
    device: torch.device,
    precision: str,
    how: str,
    count: int,
    cache: str | None,
) -> str:
    """A line on what was chosen."""
    name = device_name(device)
    ways = {"graphs": "CUDA graphs", "compile": "compiled", "none": "eager"}
    parts = [f"{count} x {name}" if count > 1 else name, precision, ways[how]]
    parts.append(f"fused {settings.optimizer}" if device.type == "cuda" else settings.optimizer)
    parts.append(f"{eval_batch(settings, device) * count} scored at a time")
    return ", ".join(parts + ([f"pictures from {cache}"] if cache else []))
