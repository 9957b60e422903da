"""CUDA graphs: record a training step or a scoring function for one batch shape, then replay it."""

import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from spml.model.classifier import Classifier, Output

DTYPES = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16, "32-true": None}
WARM_UPS = 2  # runs of a scoring function before it is recorded

Report = Callable[[str], None]
Score = Callable[[Tensor], Tensor]
Recorded = TypeVar("Recorded")


def attempt(
    record: Callable[[], Recorded], report: Report | None, *, module: nn.Module | None = None
) -> Recorded | None:
    """Return the recording, or None if it fails; `report` then receives the reason.

    The module runs while it is recorded: its buffers are restored, and its gradients removed.
    """
    buffers = [] if module is None else [buffer.clone() for buffer in module.buffers()]
    try:
        return record()
    except Exception as error:  # a backbone may raise any type
        if report is not None:
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
            report(f"no CUDA graph ({reason})")
        return None
    finally:
        if module is not None:
            for buffer, value in zip(module.buffers(), buffers, strict=True):
                buffer.copy_(value)
            module.zero_grad(set_to_none=True)


class FastForward:
    """Forward pass of a training step: eager (`how` none), from CUDA graphs, or compiled.

    A graph or compiled step serves batches of one shape, that of the first batch. Other batches,
    such as the last of an epoch, run eagerly.
    """

    def __init__(
        self,
        wrapped: Any,
        classifier: Classifier,
        how: str,
        precision: str,
        *,
        detailed: bool,
        report: Report,
    ) -> None:
        self.wrapped, self.detailed = wrapped, detailed
        self.classifier, self.report = classifier, report
        self.how = how if precision in DTYPES else "none"
        self.dtype = DTYPES.get(precision)
        self.shape: torch.Size | None = None
        self.fast: Any = None

    def __call__(self, x: Tensor) -> Output:
        """Return logits, or logits and features."""
        self.prepare(x)
        outcome: Output
        if self.fast is None or x.shape != self.shape:
            outcome = self.wrapped(x, True) if self.detailed else self.wrapped(x)
            return outcome
        if self.how == "compile":
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        outcome = self.fast(x)
        return outcome

    def prepare(self, x: Tensor) -> None:
        """Record or compile for batches like this one, once; the classifier is in training mode."""
        if self.how == "none" or self.shape is not None:
            return
        self.shape = x.shape
        step = _Cast(self.classifier, x.device.type, self.dtype, self.detailed)
        if self.how == "compile":
            mode = "reduce-overhead" if x.is_cuda else None
            self.fast = torch.compile(step, mode=mode, dynamic=False)
            return
        self.fast = self._record(step, x)

    def _record(self, step: nn.Module, x: Tensor) -> Any:
        """Return the step as a graph; None if recording fails."""
        # torch warns of graphs whose loss is computed outside, as it is here
        warnings.filterwarnings("ignore", message="Attempting to run cuBLAS")
        torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)

        def record() -> Any:
            began = time.perf_counter()
            graph = torch.cuda.make_graphed_callables(step, (x.clone(),), allow_unused_input=True)
            self.report(f"CUDA graphs recorded in {time.perf_counter() - began:.1f} s")
            return graph

        # make_graphed_callables also runs the step, three times.
        return attempt(record, self.report, module=self.classifier)


class _Cast(nn.Module):
    """The classifier in its precision, from tensors to float32 tensors as Fabric returns them."""

    def __init__(
        self, classifier: Classifier, device: str, dtype: torch.dtype | None, detailed: bool
    ) -> None:
        super().__init__()
        self.classifier = classifier
        self.device = device
        self.dtype = dtype
        self.detailed = detailed

    def forward(self, x: Tensor) -> Output:
        """Return logits, or logits and features."""
        cast: Any = nullcontext()
        if self.dtype is not None:
            # A cache of casts would outlive the recording.
            cast = torch.autocast(self.device, self.dtype, cache_enabled=False)
        with cast:
            outcome: Output = self.classifier(x, self.detailed)
        if isinstance(outcome, Tensor):
            return outcome.float()
        return outcome[0].float(), outcome[1].float()


def record_scoring(score: Score, x: Tensor) -> Score:
    """Record a scoring function as a CUDA graph for batches like `x`."""
    for _ in range(WARM_UPS):
        score(x)
    graph, static = torch.cuda.CUDAGraph(), x.clone()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        outcome = score(static)

    def replay(x: Tensor) -> Tensor:
        static.copy_(x)
        graph.replay()
        return outcome.clone()

    return replay


class Replayed:
    """A scoring function that replays a CUDA graph for batches of the prepared shape.

    Threads that decode compete for the GIL and the processor with the thread that launches the
    model's kernels, hundreds per batch. A replay is a single launch.
    """

    def __init__(
        self,
        score: Score,
        device: torch.device | str,
        report: Report | None = None,
        record: Callable[[Score, Tensor], Score] = record_scoring,
    ) -> None:
        self.score, self.device = score, torch.device(device)
        self.report, self.record = report, record
        self.shape: torch.Size | None = None
        self.fast = score

    def prepare(self, shape: Sequence[int]) -> None:
        """Record for batches of pictures of this shape, before decoding threads start."""
        if self.device.type != "cuda":
            return

        @torch.inference_mode()
        def record() -> tuple[Score, torch.Size]:
            zeros = torch.zeros(*shape, dtype=torch.uint8, device=self.device)
            x = zeros.to(memory_format=torch.channels_last)
            return self.record(self.score, x), x.shape

        # Fails if a backbone waits for the device, or if memory is short.
        recorded = attempt(record, self.report)
        if recorded is not None:
            self.fast, self.shape = recorded

    def __call__(self, x: Tensor) -> Tensor:
        """Return the scores of a batch."""
        return self.fast(x) if x.shape == self.shape else self.score(x)
