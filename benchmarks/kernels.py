"""Compare our GPU kernels with torch: each convolution of a backbone, and scoring.

python benchmarks/kernels.py [--backbone tf_efficientnet_lite0] [--size 448] [--batch 8]
    [--json results.json]

Convolutions are timed as in training, in bfloat16 and from a CUDA graph, including the copies that
torch makes for padding. Errors are relative to torch in float32 on the same rounded values.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from common import environment
from torch import Tensor, nn

from spml.data.images.decode import channels_first
from spml.model import Classifier
from spml.model.kernels.fused import _is_depthwise, _is_stem, convolve, our_kernels

REPEATED = 10  # times in a graph
HALF = torch.bfloat16

Function = Callable[[Tensor], Tensor]


def microseconds(work: Callable[[], object]) -> float:
    """Device time of one call in microseconds, the best of several replays."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(REPEATED):
            work()
    times = []
    for _ in range(5):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(float(begin.elapsed_time(end)) * 1e3 / REPEATED)
    return min(times)


def layers(model: Classifier, size: int) -> list[tuple[nn.Conv2d, tuple[int, ...], int]]:
    """Convolutions that our kernels support, with input shape and number of equal layers."""
    records: dict[Any, tuple[nn.Conv2d, tuple[int, ...], int]] = {}

    def note(conv: nn.Conv2d, inputs: tuple[Tensor], _: Tensor) -> None:
        shape = inputs[0].shape
        key = (shape, conv.weight.shape, conv.stride)
        count = records[key][2] + 1 if key in records else 1
        records[key] = (conv, tuple(shape[1:]), count)

    for module in model.backbone.modules():
        if _is_depthwise(module) or _is_stem(module):
            module.register_forward_hook(note)  # type: ignore[arg-type]
    with torch.inference_mode():
        model(torch.zeros(1, 3, size, size, dtype=torch.uint8, device=model.mean.device))
    return list(records.values())


def trained(function: Function, x: Tensor, weight: Tensor) -> tuple[Tensor, list[Tensor]]:
    """The output, and the gradients of its product with a fixed random tensor."""
    y = function(x)
    leaves = [weight, x] if x.requires_grad else [weight]
    torch.manual_seed(1)
    return y, list(
        torch.autograd.grad(y, leaves, torch.randn(y.shape, device=y.device).to(y.dtype))
    )


def compared(conv: nn.Conv2d, shape: tuple[int, ...]) -> dict[str, Any]:
    """Error and microseconds of one convolution, forward and with its gradients."""
    torch.manual_seed(0)
    x = torch.randn(shape, device="cuda").to(HALF).to(memory_format=torch.channels_last)
    x.requires_grad_(shape[1] > 3)  # pictures need no gradient
    conv = copy.deepcopy(conv)
    conv.weight.data = conv.weight.data.to(HALF).float()
    rounded = copy.deepcopy(conv).to(HALF)
    y, gradients = trained(lambda x: convolve(conv, x), x, conv.weight)
    exact, expected = trained(conv, x.detach().float().requires_grad_(x.requires_grad), conv.weight)
    pairs = zip([y, *gradients], [exact, *expected], strict=True)
    errors = [float((ours.float() - theirs).norm() / theirs.norm()) for ours, theirs in pairs]
    ways: dict[str, tuple[Function, Tensor]] = {
        "torch": (rounded, rounded.weight),
        "ours": (lambda x: convolve(conv, x), conv.weight),
    }
    seconds = {}
    for name, (function, weight) in ways.items():
        with torch.no_grad():
            alone = microseconds(lambda function=function: function(x))
        output = function(x)
        gradient, leaves = torch.ones_like(output), [weight, x] if x.requires_grad else [weight]
        whole = microseconds(
            lambda function=function, gradient=gradient, leaves=leaves: torch.autograd.grad(
                function(x), leaves, gradient
            )
        )
        seconds[name] = {"forward": alone, "with gradients": whole}
    return {"error": max(errors), "microseconds": seconds}


def scoring(model: Classifier, size: int, count: int = 128) -> dict[str, float]:
    """Pictures per second scored in bfloat16, with torch and with our kernels."""
    x = channels_first(torch.randint(256, (count, size, size, 3), dtype=torch.uint8, device="cuda"))
    speeds: dict[str, float] = {}
    for name, ways in (("torch", nullcontext()), ("ours", our_kernels(model))):
        with torch.inference_mode(), torch.autocast("cuda", HALF), ways:
            for repeats in (3, 5):
                torch.cuda.synchronize()
                began = time.perf_counter()
                for _ in range(repeats):
                    model(x)
                torch.cuda.synchronize()
        speeds[name] = 5 * count / (time.perf_counter() - began)
    return speeds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backbone", default="tf_efficientnet_lite0")
    parser.add_argument("--size", type=int, default=448)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("our kernels are for a GPU, and there is none")
    torch.backends.cudnn.allow_tf32 = False  # errors are measured against float32
    model, rows = Classifier.build(options.backbone, 20).cuda().eval(), []
    for conv, shape, times in layers(model, options.size):
        what = {
            "shape": shape,
            "side": conv.kernel_size[0],
            "stride": conv.stride[0],
            "times": times,
        }
        rows.append({**what, **compared(conv, (options.batch, *shape))})
        print(rows[-1], flush=True)
    torch.backends.cudnn.allow_tf32 = True
    record = {
        "settings": {"backbone": options.backbone, "size": options.size, "batch": options.batch},
        "rows": rows,
    }
    record |= {"scoring": scoring(model, options.size), "environment": environment()}
    print(record["scoring"])
    if options.json:
        options.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
