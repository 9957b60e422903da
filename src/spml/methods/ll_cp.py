"""LL-Cp: the unknown labels with the largest loss become positives permanently."""

from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from spml.losses.components import Context, largest_unknown
from spml.losses.cross_entropy import an
from spml.losses.framework import Method, Reduction
from spml.losses.large_loss import LARGE_LOSS, LARGE_LOSS_ISSUE, LARGE_LOSS_TRAINING, ll_ct
from spml.losses.metadata import Share, method, published, searched


@method(
    order=120,
    table2=8,
    citation=LARGE_LOSS,
    presets=[
        *LARGE_LOSS_TRAINING,
        published(LARGE_LOSS_ISSUE, "voc", delta=0.001),
        published(LARGE_LOSS_ISSUE, "coco", "nuswide", "cub", delta=0.002),
    ],
    notes=r"""
    **Idea.** Large loss, permanent correction: in each step from the second epoch on, the unknown
    labels of the batch with the largest loss become positive permanently.

    **Loss.** As `an` on the corrected labels; $\lceil BC \Delta\rceil$ more are corrected in each
    step, a constant number.

    **In the framework.** It does not fit: which labels count as positive depends on earlier
    corrections.

    **State and cost.** One byte per item and class; one selection of the largest entries of a
    batch.

    **Differences.** As `ll_r`; and the released code never corrects permanently. It compares the
    scheme's name from the command line by identity, which fails: it runs as `ll_ct`, with a growing
    number and nothing stored. Which code produced the published figures is unknown;
    `variant="released"` repeats the upload. When it does store (BoostLU's copy fixes the
    comparison), the original omits the entry at the boundary; here every correction is stored. The
    method stores the labels and does not change the data.
    """,
)
@searched({"variant": "released"}, delta=(0.0005, 0.001, 0.002, 0.003))
class ll_cp(Method):  # noqa: N801  (methods are called by their names)
    """Large loss, permanent correction: labels with large loss become positives (Kim et al., 2022).

    Args:
        delta: share of the batch's entries corrected in each step from the second epoch on.
        variant: "meant" stores corrections; "released" is the behaviour of the published code for a
            scheme named on the command line: it stores nothing and corrects as LL-Ct does.
    """

    needs = frozenset({"items", "index"})
    corrected: Tensor

    def __init__(
        self,
        delta: Share = 0.001,
        variant: Literal["meant", "released"] = "meant",
        reduction: Reduction = "mean",
        *,
        items: int,
        classes: int,
        observed: Any = None,
    ) -> None:
        super().__init__()
        self.delta, self.variant, self.reduction = delta, variant, reduction
        self.loss = an(reduction="none") if variant == "meant" else ll_ct(delta, reduction="none")
        self.register_buffer("corrected", torch.zeros(items, classes, dtype=torch.bool))

    @classmethod
    def memory(cls, items: int, classes: int, **options: Any) -> int:
        return items * classes

    def entries(self, logits: Tensor, context: Context) -> Tensor:
        """Loss of each entry; training stores corrections from the second epoch on."""
        observed, index = context.observed, context.index
        if self.variant == "released":
            return self.loss.entries(logits, context)
        labels = observed.masked_fill(self.corrected[index] & (observed == 0), 1)
        later = context.epoch > 1
        selected = largest_unknown(context.logits, labels, self.delta) if later else None
        if selected is not None:
            labels = labels.masked_fill(selected, 1)
            if self.training:
                self.corrected[index] |= selected
        return self.loss.entries(logits, replace(context, observed=labels))
