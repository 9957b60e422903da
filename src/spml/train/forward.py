"""The classifier in a training step: as it is, replayed from CUDA graphs, or compiled."""

from __future__ import annotations

import time
import warnings
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from spml.model import Classifier
from spml.model.kernels.fused import compile_ahead, our_kernels
from spml.runs.settings import Resolved
from spml.train.display import Display

DTYPES = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16, "32-true": None}
_PLAIN: AbstractContextManager[Any] = nullcontext()
Output = Tensor | tuple[Tensor, Tensor]


class Forward:
    """Logits of a batch, with features where they are wanted.

    A graph, and what was compiled, is for batches of one shape: that of the first. Others, such as the last of an
    epoch, are run as they are.

    Args:
        wrapped: the classifier as Fabric wraps it.
        classifier: itself.
        how: none, graphs or compile.
        precision: of Fabric.
        detailed: features are wanted.
        display: told where a graph cannot be had.
        fused: in graphs, what our kernels can do is run by these.
    """

    def __init__(
        self,
        wrapped: Any,
        classifier: Classifier,
        how: str,
        precision: str,
        *,
        detailed: bool,
        display: Display,
        fused: bool = True,
    ) -> None:
        self.wrapped, self.classifier, self.detailed, self.display = (
            wrapped,
            classifier,
            detailed,
            display,
        )
        self.how = how if precision in DTYPES else "none"
        self.dtype = DTYPES.get(precision)
        self.fused = fused
        self.shape: torch.Size | None = None
        self.fast: Any = None

    def __call__(self, x: Tensor) -> Output:
        """Logits, or logits and features."""
        self.prepare(x)
        outcome: Output
        if self.fast is None or x.shape != self.shape:
            outcome = self.wrapped(x, True) if self.detailed else self.wrapped(x)
        else:
            if self.how == "compile":
                torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
            outcome = self.fast(x)
        return outcome

    def prepare(self, x: Tensor) -> None:
        """Record or compile for batches like this one, unless that is done; the classifier is in training mode."""
        if self.how == "none" or self.shape is not None:
            return
        self.shape = x.shape
        step = _Cast(self.classifier, x.device.type, self.dtype, self.detailed)
        if self.how == "compile":
            self.fast = torch.compile(
                step, mode="reduce-overhead" if x.is_cuda else None, dynamic=False
            )
            return
        self.fast = self._record(step, x, our_kernels(self.classifier)) if self.fused else None
        self.fused = self.fast is not None
        if self.fast is None:
            self.fast = self._record(step, x, _PLAIN)

    def scoring(self) -> AbstractContextManager[Any]:
        """In which pictures are scored: by our kernels too, once these have been seen to work."""
        return (
            our_kernels(self.classifier)
            if self.fused and self.how == "graphs" and self.fast is not None
            else _PLAIN
        )

    def _record(self, step: nn.Module, x: Tensor, ways: AbstractContextManager[Any]) -> Any:
        """The step as a graph; None where it cannot be had."""
        _keep_quiet()
        kept = [
            buffer.clone() for buffer in self.classifier.buffers()
        ]  # what is recorded is also done, three times
        try:
            began = time.perf_counter()
            with ways:
                graph = torch.cuda.make_graphed_callables(
                    step, (x.clone(),), allow_unused_input=True
                )
            self.display.line(f"CUDA graphs recorded in {time.perf_counter() - began:.1f} s")
            return graph
        except Exception as error:  # a compiler of kernels has errors of many kinds
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
            self.display.line(
                f"no CUDA graph {'' if ways is _PLAIN else 'with our kernels '}({reason})"
            )
            return None
        finally:
            for buffer, value in zip(self.classifier.buffers(), kept, strict=True):
                buffer.copy_(value)
            self.classifier.zero_grad(set_to_none=True)


def begin_early(settings: Resolved) -> None:
    """Begin what recording will need, while the model is made and libraries are loaded."""
    if settings.fused_norm and settings.compile == "graphs":
        compile_ahead(DTYPES.get(settings.precision) or torch.float32)


def _keep_quiet() -> None:
    """What torch says of every graph whose loss is computed outside of it, which is how it is meant here."""
    warnings.filterwarnings("ignore", message="Attempting to run cuBLAS")
    mismatch = getattr(torch.autograd.graph, "set_warn_on_accumulate_grad_stream_mismatch", None)
    if mismatch is not None:
        mismatch(False)


class _Cast(nn.Module):
    """The classifier under its precision, with tensors alone going in and out; these are float32, as Fabric's are."""

    def __init__(
        self, classifier: Classifier, device: str, dtype: torch.dtype | None, detailed: bool
    ) -> None:
        super().__init__()
        self.classifier, self.device, self.dtype, self.detailed = (
            classifier,
            device,
            dtype,
            detailed,
        )

    def forward(self, x: Tensor) -> Output:
        """Logits, or logits and features."""
        cast: Any = nullcontext()
        if self.dtype is not None:
            cast = torch.autocast(
                self.device, self.dtype, cache_enabled=False
            )  # a cache would outlive the recording
        with cast:
            outcome: Output = self.classifier(x, self.detailed)
        return (
            outcome.float()
            if isinstance(outcome, Tensor)
            else (outcome[0].float(), outcome[1].float())
        )
