"""Where a run computes: device, precision, and the processes that share every batch."""

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from spml.data.images.loader import Rows
from spml.errors import UserError
from spml.model import Classifier
from spml.model.classifier import batch_norms
from spml.runs.settings import Resolved

HALF = ("16-mixed", "16")  # Lightning's names of float16 mixed precision


def uses_cuda(accelerator: str) -> bool:
    """Whether training runs on NVIDIA or AMD hardware."""
    if accelerator == "auto":
        return torch.cuda.is_available()
    return accelerator in ("cuda", "gpu")


def make_fabric(settings: Resolved, *, unused: bool) -> Any:
    """Build Lightning's Fabric."""
    from lightning.fabric import Fabric
    from lightning.fabric.strategies.ddp import DDPStrategy

    for name in ("lightning.fabric", "lightning.fabric.utilities.rank_zero", "lightning.pytorch"):
        logging.getLogger(name).setLevel(logging.WARNING)  # the first line of a run says it all
    if uses_cuda(settings.accelerator):
        torch.set_float32_matmul_precision("high")  # for what is not in bfloat16 anyway
    precision: Any = settings.precision
    gpu = torch.cuda.is_available() or torch.backends.mps.is_available()
    on_cpu = settings.accelerator == "cpu" or (settings.accelerator == "auto" and not gpu)
    if precision in HALF and on_cpu:
        # Lightning would use bfloat16, and the run would be recorded as float16
        raise UserError(
            f"--precision {precision} needs a GPU; on a CPU use 32-true, the default, or bf16-mixed"
        )
    count = settings.devices * settings.nodes
    if count > 1 and settings.compile != "none":  # would bypass the averaging of gradients
        raise UserError(
            f"--compile {settings.compile} is for one process, not {count}; leave it out"
        )
    strategy: Any = "auto"
    if count > 1:
        strategy = DDPStrategy(find_unused_parameters=unused, gradient_as_bucket_view=True)
    try:
        return Fabric(
            accelerator=settings.accelerator,
            strategy=strategy,
            devices=settings.devices,
            num_nodes=settings.nodes,
            precision=precision,
        )
    except Exception as error:  # Lightning has its own errors for missing devices and precisions
        reason = " ".join(str(error).split())[:200]
        options = f"--accelerator {settings.accelerator} --devices {settings.devices}"
        raise UserError(f"{options} --precision {precision}: {reason}") from error


def smallest_share(items: int, settings: Resolved) -> int:
    """Return the fewest items that batch norm sees at once: a process's share of the last batch."""
    last = items % settings.batch_size or settings.batch_size
    count = settings.devices * settings.nodes
    if uses_cuda(settings.accelerator) and count > 1:
        return max(last, 2)  # statistics are computed over all processes
    return -(-last // count)


def device_name(device: torch.device) -> str:
    """Return the model of a GPU, or the kind of another device."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def described(
    settings: Resolved, device: torch.device, precision: str, count: int, cached: bool
) -> str:
    """Describe in one line how a run computes."""
    name = device_name(device)
    modes = {"graphs": "CUDA graphs", "compile": "compiled", "none": "eager"}
    parts = [f"{count} x {name}" if count > 1 else name, precision, modes[settings.compile]]
    parts.append(f"fused {settings.optimizer}" if device.type == "cuda" else settings.optimizer)
    parts.append(f"{settings.eval_batch_size * count} scored at a time")
    return ", ".join(parts + ([f"pictures from {settings.cache}"] if cached else []))


def synchronised(model: Classifier) -> Classifier:
    """Replace batch norm by one whose statistics are computed over all processes."""
    from timm.layers.norm_act import convert_sync_batchnorm

    converted: Classifier = convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
    return converted


class Processes:
    """The processes of a run. Each computes its share of every batch and receives the whole.

    Every process calls the method with the whole batch, so that what the method counts, ranks or
    stores is the same in all processes, and the same as in a run of one process.
    """

    def __init__(self, rank: int = 0, count: int = 1, device: torch.device | str = "cpu") -> None:
        self.rank, self.count, self.device = rank, count, torch.device(device)

    @property
    def first(self) -> bool:
        """Whether this process writes files and prints."""
        return self.rank == 0

    def share(self, rows: Rows) -> Rows:
        """Return this process's rows. Shares have equal lengths; the last is padded with rows."""
        if self.count == 1:
            return rows
        each = -(-len(rows) // self.count)
        return np.resize(rows, each * self.count)[self.rank * each : (self.rank + 1) * each]

    def share_of(self, tensor: Tensor) -> Tensor:
        """Return this process's share of a tensor with one row per item of the batch."""
        if self.count == 1:
            return tensor
        return tensor[torch.from_numpy(self.share(np.arange(len(tensor)))).to(tensor.device)]

    def whole(self, part: Tensor, length: int) -> Tensor:
        """Gather the whole batch from all shares; gradients flow back into this process's share."""
        if self.count == 1:
            return part
        gathered: Tensor = _Gather.apply(part, self.rank, self.count)
        return gathered[:length]

    def agreed(self, value: bool) -> bool:
        """Return the value that rank 0 has, in every process."""
        if self.count == 1:
            return value
        flag = torch.tensor(int(value), device=self.device)
        dist.broadcast(flag, src=0)
        return bool(flag.item())

    def wait(self) -> None:
        """Wait until all processes have called this."""
        if self.count > 1:
            dist.barrier()


@contextmanager
def launch(fabric: Any, settings: Resolved, abandon: Callable[[], object]) -> Iterator[Processes]:
    """Start the processes of a run, and yield them."""
    if settings.devices * settings.nodes == 1:
        fabric.launch()
        yield Processes(device=fabric.device)
        return
    from spml.train.supervisor import Supervisor, starting

    with starting(fabric, settings) as workers:
        fabric.launch()
    processes = Processes(fabric.global_rank, fabric.world_size, fabric.device)
    with Supervisor(processes, workers, abandon):
        yield processes


class Stop:
    """Notes a first Ctrl-C or SIGTERM, so that a run saves before it ends; a second interrupts.

    The loss of the terminal counts as well. A signal that the program was started to ignore stays
    ignored.
    """

    def __init__(self, processes: Processes) -> None:
        self.processes, self.asked = processes, False
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for name in ("SIGINT", "SIGTERM", "SIGHUP"):
                number = getattr(signal, name, None)
                if number is not None and signal.getsignal(number) != signal.SIG_IGN:
                    self._handlers[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *details: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def agreed(self, poll: bool) -> bool:
        """Whether to stop. Several processes agree on it only if all of them `poll`."""
        return (poll or self.processes.count == 1) and self.processes.agreed(self.asked)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


class _Gather(torch.autograd.Function):
    """Rows of all processes in the order of their ranks.

    Every process computes the same loss from the same gathered rows, and DDP averages the
    gradients over processes. Each process therefore multiplies the gradient of its own rows by the
    number of processes, so that the average is the sum.
    """

    @staticmethod
    def forward(ctx: Any, part: Tensor, rank: int, count: int) -> Tensor:
        ctx.rank, ctx.count, ctx.rows = rank, count, len(part)
        parts = [torch.empty_like(part) for _ in range(count)]
        dist.all_gather(parts, part.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        own = gradients[0][ctx.rank * ctx.rows : (ctx.rank + 1) * ctx.rows]
        return own * ctx.count, None, None


def norm_note(model: Classifier, processes: Processes) -> str | None:
    """Warn if each process normalises its share of a batch by itself; None if none does."""
    separate = processes.count > 1 and processes.device.type != "cuda"
    if not separate or not any(batch_norms(model)):
        return None
    return (
        f"batch norm on {processes.device.type} uses the share of each of {processes.count} "
        "processes, not the whole batch; results differ from those of one process"
    )
