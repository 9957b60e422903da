"""How a training step uses its device: its share of the peak, and its time by operation."""

from __future__ import annotations

import json
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from common import Step, seconds
from torch import Tensor

STEPS = 10
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")  # categories of a trace
KINDS = {  # the first kind with a part of the kernel's name
    "optimiser": ("adam", "multi_tensor"),
    "copies and casts": (
        "memcpy",
        "memset",
        "copy_kernel",
        "copy_device_to_device",
        "nchwtonhwc",
        "nhwctonchw",
        "catarray",
    ),
    "batch norm": (
        *("batch_norm", "batchnorm", "bn_fw", "bn_bw", "bnorm", "welford"),
        *("_moments", "_statistics", "_normalise", "_sums", "_gather", "_backward"),  # ours
    ),
    "convolution and matrix products": (
        *(
            "conv",
            "fprop",
            "dgrad",
            "wgrad",
            "gemm",
            "cutlass",
            "cudnn",
            "xmma",
            "winograd",
            "splitk",
            "cublas",
        ),
        *("nvjet", "_stem", "_weights"),  # the last two ours
    ),
    "elementwise, pooling and sums": (
        "elementwise",
        "pool",
        "reduce",
        "triton",
        "vectorized",
        "index",
        "softmax",
    ),
}


def peak(device: torch.device, size: int | None = None) -> float:
    """FLOP/s of bf16 matrix products, the best of several rounds."""
    size = size or (8192 if device.type == "cuda" else 1024)
    a, b = (torch.randn(size, size, device=device).to(torch.bfloat16) for _ in range(2))
    out = torch.empty_like(a)
    repeats = 10 if device.type == "cuda" else 1

    def products() -> None:
        for _ in range(repeats):
            torch.mm(a, b, out=out)

    products()
    best = min(seconds(products, device.type) for _ in range(5))
    return 2 * size**3 * repeats / best


def flops(model: Callable[[Tensor], Tensor], x: Tensor) -> int:
    """Floating point operations of forward and backward of a batch."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        model(x).sum().backward()
    return int(counter.get_total_flops())


def kind(name: str) -> str:
    """The kind of a kernel, by its name."""
    lower = name.lower()
    return next(
        (title for title, parts in KINDS.items() if any(part in lower for part in parts)), "others"
    )


def busy(spans: list[tuple[float, float]]) -> float:
    """Time covered by spans of (start, length); overlaps count once."""
    total, end = 0.0, float("-inf")
    for start, length in sorted(spans):
        total += max(start + length - max(start, end), 0.0)
        end = max(end, start + length)
    return total


def by_kind(events: list[dict[str, Any]], steps: int, step_seconds: float) -> dict[str, float]:
    """Seconds of a step by kind of operation, from the events of a trace.

    The idle time refers to a step without the profiler, which takes `step_seconds`.
    """
    on_device = [event for event in events if event.get("cat") in ON_DEVICE]
    spent: dict[str, float] = {}
    for event in on_device:
        title = "copies and casts" if event["cat"] != "kernel" else kind(str(event["name"]))
        spent[title] = spent.get(title, 0.0) + float(event["dur"]) / 1e6 / steps
    covered = busy([(float(e["ts"]), float(e["dur"])) for e in on_device]) / 1e6 / steps
    return {
        **dict(sorted(spent.items(), key=lambda pair: -pair[1])),
        "idle": max(step_seconds - covered, 0.0),
    }


def host_seconds(step: Step) -> float:
    """Seconds in which the host launches a step; the device waits only if it is faster."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(STEPS):
        step()
    spent = (time.perf_counter() - begin) / STEPS
    torch.cuda.synchronize()
    return spent


def waits(step: Step) -> list[str]:
    """Lines of code in which a step makes the host wait for the device, as torch reports them."""
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return [f"{Path(w.filename).name}:{w.lineno}" for w in caught if "synchroniz" in str(w.message)]


def profile(
    step: Step, step_seconds: float, names: int = 12
) -> tuple[dict[str, float], list[tuple[str, float]]]:
    """Seconds of a step by kind, and the slowest kernels, on a GPU."""
    from torch.profiler import ProfilerActivity

    for _ in range(3):
        step()
    torch.cuda.synchronize()
    with torch.profiler.profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]
    ) as recorded:
        for _ in range(STEPS):
            step()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        recorded.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text())["traceEvents"]
    longest: dict[str, float] = {}
    for event in events:
        if event.get("cat") in ON_DEVICE:
            longest[event["name"]] = longest.get(event["name"], 0.0) + event["dur"] / 1e6 / STEPS
    most = sorted(longest.items(), key=lambda pair: -pair[1])[:names]
    return by_kind(events, STEPS, step_seconds), most
