"""Large-loss methods: the unknown labels with the largest loss are probably missed positives."""

from spml.losses.components import Constant, Largest
from spml.losses.framework import Reduction, UnifiedLoss, assume_negative
from spml.losses.metadata import Citation, Share, method, published, searched
from spml.losses.terms import Absent, Log

SHARES = (0.001, 0.002, 0.004, 0.005, 0.01)
LARGE_LOSS = Citation(
    "Kim et al.",
    "Large Loss Matters in Weakly Supervised Multi-Label Classification",
    "CVPR",
    2022,
    repository="https://github.com/snucml/LargeLossMatters",
    commit="5025d16",
    link="https://arxiv.org/abs/2206.03740",
    names="Youngwook Kim, Jae Myung Kim, Zeynep Akata, Jungwoo Lee",
)
LARGE_LOSS_ISSUE = "snucml/LargeLossMatters, issue 4"
LARGE_LOSS_TRAINING = (
    published(LARGE_LOSS_ISSUE, batch_size=16, epochs=10, head_lr=10),
    published(LARGE_LOSS_ISSUE, "voc", lr=5e-3, optimizer="sgd", weight_decay=1e-3),
    published(LARGE_LOSS_ISSUE, "coco", "nuswide", lr=1e-5, optimizer="adam", weight_decay=0),
    published(LARGE_LOSS_ISSUE, "cub", lr=7.5e-5, optimizer="adam", weight_decay=0),
    published("snucml/LargeLossMatters", patience_drop=3),
)


@method(
    order=100,
    table2=6,
    citation=LARGE_LOSS,
    presets=[
        *LARGE_LOSS_TRAINING,
        published(LARGE_LOSS_ISSUE, "voc", delta=0.002),
        published(LARGE_LOSS_ISSUE, "coco", "nuswide", "cub", delta=0.004),
    ],
    notes=r"""
    **Idea.** Large loss, rejection: of the labels assumed absent, those with the largest loss are
    probably wrong. In each batch they are ignored, more of them with every epoch.

    **Loss.** As `an`, but 0 for the $\lceil BC \Delta(t-1)\rceil$ unknown entries of the batch with
    the largest loss. The mean is over all entries, rejected ones included.

    **In the framework.** $\hat k=0$; $v=0$ for selected entries, else 1.

    **State and cost.** None; one selection of the largest entries of a batch.

    **Differences.** If the number to reject exceeds the unknown entries, the released code rejects
    known positives too; here known labels are never selected. Δ is a fraction (0.002), there a
    percentage (0.2). Rounding up is as published: at batch 16 and 20 classes, 0.2 % in the second
    epoch is one entry, 0.31 %. The GR Loss paper writes the rule as a threshold on $p$; it is a
    rank within the batch.
    """,
    examples=["digits --method ll_r --set delta=0.005"],
)
@searched({"delta": 0.005}, delta=SHARES)
def ll_r(delta: Share = 0.002, reduction: Reduction = "mean") -> UnifiedLoss:
    """Large loss, rejection: set the largest losses of unknown labels to 0 (Kim et al., 2022).

    Args:
        delta: share of the batch's entries rejected, times (epoch - 1).
        reduction: mean (over all entries, rejected ones too), sum, sum_classes or none.
    """
    return assume_negative(Log(), Absent(Log()), weight=Largest(delta, 0), reduction=reduction)


@method(
    order=110,
    table2=7,
    citation=LARGE_LOSS,
    presets=[
        *LARGE_LOSS_TRAINING,
        published(LARGE_LOSS_ISSUE, "voc", "coco", "nuswide", delta=0.002),
        published(LARGE_LOSS_ISSUE, "cub", delta=0.004),
    ],
    notes=r"""
    **Idea.** Large loss, temporary correction: as `ll_r`, but the suspicious labels are taken as
    positive in this step instead of being ignored.

    **Loss.** As `an`, but $-\log p$ for the entries that `ll_r` would ignore.

    **In the framework.** $\hat k=1$ for selected entries, else 0; $v=1$.

    **State and cost.** None; one selection of the largest entries of a batch.

    **Differences.** As `ll_r`.
    """,
    examples=["digits --method ll_ct --set delta=0.005"],
)
@searched({"delta": 0.005}, delta=SHARES)
def ll_ct(delta: Share = 0.002, reduction: Reduction = "mean") -> UnifiedLoss:
    """Large loss, temporary correction: large losses are positive for a step (Kim et al., 2022).

    Args:
        delta: share of the batch's entries corrected, times (epoch - 1).
    """
    return UnifiedLoss(
        Largest(delta, 1), Constant(1), Log(), Log(), Absent(Log()), reduction=reduction
    )
