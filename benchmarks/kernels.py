"""Our kernels against what torch does in their place, on a GPU: each convolution of a backbone, and scoring with it.

python benchmarks/kernels.py [--backbone tf_efficientnet_lite0] [--size 448] [--batch 8] [--json results.json]

Convolutions are timed as they are trained, in bfloat16 and from a CUDA graph, what torch copies to put zeros around a
picture included. Their error is measured against torch in float32 from the same rounded values.
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
    """Of the device for one call, the best of several replays."""
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
    """Convolutions that our kernels can do, the shape of what each is given of one picture, and how many are alike."""
    found: dict[Any, tuple[nn.Conv2d, tuple[int, ...], int]] = {}

    def note(conv: nn.Conv2d, given: tuple[Tensor], _: Tensor) -> None:
        key = (given[0].shape, conv.weight.shape, conv.stride)
        found[key] = (conv, tuple(given[0].shape[1:]), found[key][2] + 1 if key in found else 1)

    for module in model.backbone.modules():
        if _is_depthwise(module) or _is_stem(module):
            module.register_forward_hook(note)  # type: ignore[arg-type]
    with torch.inference_mode():
        model(torch.zeros(1, 3, size, size, dtype=torch.uint8, device=model.mean.device))
    return list(found.values())


def trained(function: Function, x: Tensor, weight: Tensor) -> tuple[Tensor, list[Tensor]]:
    """What comes out, and the gradients of its product with something fixed."""
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
    x.requires_grad_(shape[1] > 3)  # pictures need none
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
    """Pictures a second in bfloat16, without gradient, by torch and with our kernels."""
    x = channels_first(torch.randint(256, (count, size, size, 3), dtype=torch.uint8, device="cuda"))
    found: dict[str, float] = {}
    for name, ways in (("torch", nullcontext()), ("ours", our_kernels(model))):
        with torch.inference_mode(), torch.autocast("cuda", HALF), ways:
            for repeats in (3, 5):
                torch.cuda.synchronize()
                began = time.perf_counter()
                for _ in range(repeats):
                    model(x)
                torch.cuda.synchronize()
        found[name] = 5 * count / (time.perf_counter() - began)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backbone", default="tf_efficientnet_lite0")
    parser.add_argument("--size", type=int, default=448)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("our kernels are for a GPU, and there is none")
    torch.backends.cudnn.allow_tf32 = False  # of what errors are measured against
    model, rows = Classifier.build(given.backbone, 20).cuda().eval(), []
    for conv, shape, times in layers(model, given.size):
        what = {
            "shape": shape,
            "side": conv.kernel_size[0],
            "stride": conv.stride[0],
            "times": times,
        }
        rows.append({**what, **compared(conv, (given.batch, *shape))})
        print(rows[-1], flush=True)
    torch.backends.cudnn.allow_tf32 = True
    record = {
        "settings": {"backbone": given.backbone, "size": given.size, "batch": given.batch},
        "rows": rows,
    }
    record |= {"scoring": scoring(model, given.size), "environment": environment()}
    print(record["scoring"])
    if given.json:
        given.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
