"""Assume negative and its variants: cross-entropy with smoothed or weighted unknown labels."""

from torch import Tensor, nn

from spml.losses.components import Constant, OverOthers
from spml.losses.framework import Reduction, UnifiedLoss, assume_negative
from spml.losses.metadata import Citation, Eps, Share, Weight, method, published, searched
from spml.losses.terms import Absent, Log, Mixed

AS_PUBLISHED = {"eps": 1e-5}  # inside the logs of the published code; there is nothing else to try
RATES = (1e-2, 1e-3, 1e-4, 1e-5)
COLE = Citation(
    "Cole et al.",
    "Multi-Label Learning from Single Positive Labels",
    "CVPR",
    2021,
    repository="https://github.com/elijahcole/single-positive-multi-label",
    commit="89152d5",
    link="https://arxiv.org/abs/2106.09708",
    names="Elijah Cole, Oisin Mac Aodha, Titouan Lorieul, Pietro Perona, Dan Morris, Nebojsa Jojic",
)
COLE_CODE = "elijahcole/single-positive-multi-label"
COLE_TRAINING = published(COLE_CODE, tried={"lr": RATES, "batch_size": (8, 16)}, epochs=10)
EXPECTED_POSITIVES = tuple(
    published("Cole et al., CVPR 2021", data, expected_positives=number)
    for data, number in (("voc", 1.5), ("coco", 2.9), ("nuswide", 1.9), ("cub", 31.4))
)


@method(
    order=10,
    table2=1,
    citation=COLE,
    presets=[COLE_TRAINING],
    notes=r"""
    **Idea.** Assume negative: every unknown label is taken as absent. The baseline for all other
    methods; it learns to deny labels that nobody tagged.

    **Loss.** $-\log p$ if $s=1$, else $-\log(1-p)$.

    **In the framework.** $\hat k=0$, $v=1$.

    **State and cost.** None.

    **Differences.** Released code (Cole et al.) has ε = 1e-5 in the logs.
    """,
)
@searched(AS_PUBLISHED)
def an(eps: Eps = None, reduction: Reduction = "mean") -> UnifiedLoss:
    """Assume negative: binary cross-entropy, unknown labels taken as absent (Cole et al., 2021).

    Args:
        eps: added to probabilities inside the log, as published (1e-5); None is the exact log.
    """
    return assume_negative(Log(eps), Absent(Log(eps)), reduction=reduction)


@method(
    order=20,
    table2=2,
    citation=COLE,
    presets=[
        COLE_TRAINING,
        published(COLE_CODE, "voc", "coco", "cub", linear_batch_size=8),
        published(COLE_CODE, "nuswide", linear_batch_size=16),
        published(COLE_CODE, smoothing=0.1, linear_lr=1e-4),
    ],
    notes=r"""
    **Idea.** Assume negative with label smoothing: targets are 0.9 and 0.1 instead of 1 and 0. An
    unknown label is positive with a small probability, so missed positives hurt less.

    **Loss.** With λ the smoothing: $-(1-\lambda)\log p-\lambda\log(1-p)$ if $s=1$,
    $-\lambda\log p-(1-\lambda)\log(1-p)$ if $s=0$, $-\log(1-p)$ if $s=-1$.

    **In the framework.** $\hat k=\lambda$, $v=1$, and $L_1$ is the smoothed loss.

    **State and cost.** None.

    **Differences.** Released code has ε = 1e-5, and smooths every label; a known negative is not
    smoothed here. Elsewhere, smoothing of 0.1 means targets of 0.95 and 0.05: that is
    `smoothing=0.05` here.
    """,
    examples=["digits --method an_ls --set smoothing=0.05"],
)
@searched({"smoothing": 0.2}, smoothing=(0.02, 0.05, 0.1, 0.2, 0.3))
def an_ls(smoothing: Share = 0.1, eps: Eps = None, reduction: Reduction = "mean") -> UnifiedLoss:
    """Assume negative with label smoothing: targets 1 - smoothing, smoothing (Cole et al., 2021).

    An unknown label is positive with probability `smoothing`; a known negative is not smoothed.

    Args:
        smoothing: distance of the targets from 1 and 0.
        eps: added to probabilities inside the log, as published (1e-5); None is the exact log.
    """
    present, absent = Log(eps), Absent(Log(eps))
    l1 = Mixed(1 - smoothing, present, absent)
    return UnifiedLoss(Constant(smoothing), Constant(1), l1, present, absent, reduction=reduction)


@method(
    order=30,
    citation=COLE,
    presets=[COLE_TRAINING],
    notes=r"""
    **Idea.** Weak assume negative: all unknown labels of an item together count as much as its one
    positive. A wrong "absent" then weighs little against a correct "present".

    **Loss.** $-\log p$ if $s=1$, $-\frac{1}{C-1}\log(1-p)$ if $s=0$, $-\log(1-p)$ if $s=-1$.

    **In the framework.** $\hat k=0$, $v=1/(C-1)$.

    **State and cost.** None.

    **Differences.** Released code has ε = 1e-5 and no known negatives, which are not down-weighted
    here.
    """,
)
@searched(AS_PUBLISHED)
def wan(eps: Eps = None, reduction: Reduction = "mean") -> UnifiedLoss:
    """Weak assume negative: each unknown label has weight 1 / (C - 1) (Cole et al., 2021).

    Args:
        eps: added to probabilities inside the log, as published (1e-5); None is the exact log.
    """
    return assume_negative(Log(eps), Absent(Log(eps)), weight=OverOthers(), reduction=reduction)


@method(
    order=40,
    citation=COLE,
    presets=[COLE_TRAINING, *EXPECTED_POSITIVES],
    notes=r"""
    **Idea.** Expected positive regularisation: the model learns known labels only, and a penalty
    keeps the number of predicted positives in a batch close to the expected number. No single
    unknown label is assumed positive or negative.

    **Loss.** $-\log p$ if $s=1$, nothing if $s=0$, and on the batch
    $R(p)=\bigl(\frac1B\sum_{b,c}p_{bc}-k\bigr)^2/C^2$, with $k$ the mean number of positives per
    item.

    **In the framework.** $v=0$, with $R$ as a regulariser.

    **State and cost.** None. $k$ must come from another source; runs record it as side information.

    **Differences.** Released code has ε = 1e-5. The GR Loss paper names EPR as a limit case of its
    framework, and its code has a loss of that name without $R$: positives alone, which is not this
    method. $R$ looks at one batch, so it is noisy at batch size 8 and depends on the batch size, as
    published.
    """,
    examples=["digits --method epr --set expected_positives=1.5"],
)
@searched(AS_PUBLISHED)
def epr(
    expected_positives: Weight = 1.5, eps: Eps = None, reduction: Reduction = "mean"
) -> UnifiedLoss:
    """Expected positive regularisation: learn positives and their number (Cole et al., 2021).

    Args:
        expected_positives: mean number of positive labels per item, from another source.
        eps: added to probabilities inside the log, as published (1e-5); None is the exact log.
    """
    return assume_negative(
        Log(eps),
        Absent(Log(eps)),
        weight=Constant(0),
        regulariser=ExpectedPositives(expected_positives),
        reduction=reduction,
    )


class ExpectedPositives(nn.Module):
    """Penalty on the distance of the mean number of predicted positives from the expected one."""

    def __init__(self, expected: float) -> None:
        super().__init__()
        self.expected = expected
        self.formula = f"(Σp/B − {expected:g})²/C²"

    def forward(self, p: Tensor) -> Tensor:
        """One number for the batch."""
        return (p.sum(dim=-1).mean() - self.expected).square() / p.shape[-1] ** 2

    def extra_repr(self) -> str:
        """The formula, for logs."""
        return self.formula


@method(
    order=260,
    presets=[COLE_TRAINING],
    notes=r"""
    **Idea.** Cross-entropy on complete labels: an upper bound for training without missing labels.
    For comparison only.

    **Loss.** $-\log p$ if the label is positive, $-\log(1-p)$ if it is negative.

    **In the framework.** $v=0$; labels that are unknown nevertheless do not count.

    **State and cost.** None. Trains on the complete table, which the data must have; runs record it
    as side information.

    **Differences.** None known.
    """,
)
@searched(AS_PUBLISHED)
def full(eps: Eps = None, reduction: Reduction = "mean") -> UnifiedLoss:
    """Binary cross-entropy on complete labels: the upper bound. Unknown labels do not count.

    Args:
        eps: added to probabilities inside the log; None is the exact log.
    """
    return assume_negative(
        Log(eps), Absent(Log(eps)), weight=Constant(0), reduction=reduction, trains_on="complete"
    )
