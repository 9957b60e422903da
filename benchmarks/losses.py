"""Speed of the losses, forward and backward, against the reference formulation in the same process.

python benchmarks/losses.py [--large] [--compile] [--json results.json]

The reference assigns through boolean masks on probabilities, as the published code does. The two
implementations alternate, timed by events on a GPU and by a clock on a CPU; figures are medians.
"""

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from common import Step, environment, medians
from torch import Tensor

from spml import losses

SHAPES = [(16, 80), (256, 312), (4096, 9605)]
EPOCH, EPOCHS = 5, 8
EPS = 1e-7


def reference_an(p: Tensor, observed: Tensor) -> Tensor:
    loss = torch.zeros_like(p)
    loss[observed == 1] = -torch.log(p[observed == 1] + EPS)
    loss[observed == 0] = -torch.log(1 - p[observed == 0] + EPS)
    return loss.mean()


def reference_em(p: Tensor, observed: Tensor, alpha: float = 0.2) -> Tensor:
    loss = torch.zeros_like(p)
    loss[observed == 1] = -torch.log(p[observed == 1] + EPS)
    unknown = p[observed == 0]
    entropy = -(unknown * torch.log(unknown + EPS) + (1 - unknown) * torch.log(1 - unknown + EPS))
    loss[observed == 0] = -alpha * entropy
    return loss.mean()


def reference_gr(p: Tensor, observed: Tensor, q2: float = 0.01, q3: float = 1.0) -> Tensor:
    beta, alpha = (EPOCH - 1) / EPOCHS, EPOCH / EPOCHS
    w, b, mu, sigma = 10 * beta, -2 - 6 * beta, 0.5 + 0.3 * alpha, 2 - 1.5 * alpha
    loss = torch.zeros_like(p)
    loss[observed == 1] = -torch.log(p[observed == 1] + EPS)
    unknown = p[observed == 0]
    k = 1 / (1 + torch.exp(-(w * unknown.detach() + b)))
    v = torch.exp(-((unknown.detach() - mu) ** 2) / (2 * sigma**2))
    loss[observed == 0] = v * (
        k * (1 - unknown**q2) / q2 + (1 - k) * (1 - (1 - unknown) ** q3) / q3
    )
    return loss.mean()


REFERENCES = {"gr": reference_gr, "an": reference_an, "em": reference_em}


def ours(name: str) -> torch.nn.Module:
    return losses.create(name, **(losses.preset("gr", "coco").options if name == "gr" else {}))


def batch(shape: tuple[int, int], device: str) -> tuple[Tensor, Tensor]:
    """Logits around the usual starting point, and one known positive per row."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(shape, generator=generator) * 2 - 2
    observed = torch.zeros(shape, dtype=torch.int8)
    observed[torch.arange(shape[0]), torch.randint(shape[1], (shape[0],), generator=generator)] = 1
    return logits.to(device).requires_grad_(), observed.to(device)


def reference_step(name: str, logits: Tensor, observed: Tensor) -> None:
    logits.grad = None
    REFERENCES[name](torch.sigmoid(logits), observed).backward()


def our_step(loss: Callable[..., Tensor], logits: Tensor, observed: Tensor) -> None:
    logits.grad = None
    loss(logits, observed, epoch=EPOCH, epochs=EPOCHS).backward()


def captured(step: Step) -> Step:
    """The same work replayed from a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def variants(name: str, logits: Tensor, observed: Tensor, compiled: bool) -> dict[str, Step]:
    device = logits.device.type
    steps: dict[str, Step] = {
        "reference": partial(reference_step, name, logits, observed),
        "spml": partial(our_step, ours(name), logits, observed),
    }
    if device == "cuda":
        steps["graph"] = captured(
            partial(our_step, ours(name), logits.detach().clone().requires_grad_(), observed)
        )
    if compiled:
        steps["compiled"] = partial(
            our_step, torch.compile(ours(name), dynamic=False), logits, observed
        )
        one_pass = torch.compile(losses.value_and_gradient(ours(name)), dynamic=False)
        steps["one pass"] = partial(one_pass, logits.detach(), observed, epoch=EPOCH, epochs=EPOCHS)
    if compiled and device == "cuda":
        steps["one pass+graph"] = captured(steps["one pass"])
        compiled_loss = torch.compile(ours(name), dynamic=False)
        steps["compiled+graph"] = captured(
            partial(our_step, compiled_loss, logits.detach().clone().requires_grad_(), observed)
        )
    return steps


def check(steps: dict[str, Step], logits: Tensor) -> None:
    """Exit unless every implementation that writes logits.grad has the reference's gradient."""
    steps["reference"]()
    expected = logits.grad
    assert expected is not None
    for name in ("spml", "compiled"):
        if name in steps:
            steps[name]()
            assert logits.grad is not None
            error = ((logits.grad - expected).abs().max() / expected.abs().max()).item()
            if error > 1e-3:
                raise SystemExit(
                    f"{name} differs from the reference by {error:.1e} of the largest gradient"
                )


def three_passes(tensor: Tensor) -> tuple[float, float]:
    """Seconds of three float32 passes over the tensor at copy bandwidth; that bandwidth in B/s."""
    source = torch.empty(tensor.shape, dtype=torch.float32, device=tensor.device)
    target = torch.empty_like(source)
    size = source.numel() * source.element_size()
    copy = medians({"copy": lambda: target.copy_(source)}, tensor.device.type, budget=0.5)["copy"]
    bandwidth = 2 * size / copy
    return 3 * size / bandwidth, bandwidth


def measure(arguments: argparse.Namespace) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for device in arguments.devices:
        for shape in SHAPES:
            if shape == SHAPES[-1] and device == "cpu" and not arguments.large:
                continue
            for name in REFERENCES:
                logits, observed = batch(shape, device)
                torch.compiler.reset()  # stay below the limit on recompilations
                steps = variants(name, logits, observed, arguments.compile)
                check(steps, logits)
                times = medians(steps, device, arguments.budget)
                row: dict[str, object] = {
                    "device": device,
                    "loss": name,
                    "shape": list(shape),
                    "seconds": times,
                }
                if shape == SHAPES[-1] and device == "cuda":
                    row["three_passes_seconds"], row["copy_bytes_per_second"] = three_passes(logits)
                rows.append(row)
                print(line(row), flush=True)
    return rows


def line(row: dict[str, object]) -> str:
    times: dict[str, float] = row["seconds"]  # type: ignore[assignment]
    rows, columns = row["shape"]  # type: ignore[misc]
    start = f"{row['device']:4}  {row['loss']:3}  {rows}x{columns}"
    figures = [
        f"{name} {value * 1e3:.3f} ms ({times['reference'] / value:.1f}x)"
        for name, value in times.items()
    ]
    passes = row.get("three_passes_seconds")
    if isinstance(passes, float):
        best = min(seconds for name, seconds in times.items() if name != "reference")
        figures.append(f"three passes {passes * 1e3:.3f} ms, ours {best / passes:.2f} of that")
    return f"{start:22}  " + "  ".join(figures)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--devices", nargs="+", default=["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    )
    parser.add_argument(
        "--compile", action="store_true", help="also measure torch.compile of our losses"
    )
    parser.add_argument("--large", action="store_true", help="the largest shape on the CPU too")
    parser.add_argument(
        "--budget", type=float, default=1.0, help="seconds for each row of the table"
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()

    print(
        "median time of forward and backward; in brackets how many times as fast as the reference"
    )
    rows = measure(arguments)
    if arguments.json:
        arguments.json.write_text(
            json.dumps({"environment": environment(), "rows": rows}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
