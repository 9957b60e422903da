"""Losses that down-weight easy or suspicious entries: focal, asymmetric, Hill, and self-paced correction."""

from __future__ import annotations

from typing import Literal

from spml.losses.components import Constant, Step
from spml.losses.search import searched
from spml.losses.terms import Absent, AsymmetricNegative, Focal, Hill, Log
from spml.losses.unified import Reduction, UnifiedLoss, assume_negative


@searched({"gamma": 1.0}, gamma=(0.5, 1.0, 2.0, 3.0))
def focal(gamma: float = 2.0, reduction: Reduction = "mean") -> UnifiedLoss:
    """Focal loss, unknown labels taken as absent (Lin et al., 2017).

    Args:
        gamma: how strongly easy entries are down-weighted.
        reduction: mean, sum (as published), sum_classes or none.
    """
    return assume_negative(Focal(gamma), Absent(Focal(gamma)), reduction=reduction)


@searched(
    {"gamma_pos": 0.0},
    {"gamma_neg": 2.0},
    gamma_neg=(1.0, 2.0, 4.0),
    gamma_pos=(0.0, 1.0),
    clip=(0.0, 0.05, 0.1),
)
def asl(
    gamma_neg: float = 4.0,
    gamma_pos: float = 1.0,
    clip: float = 0.05,
    detach: bool = True,
    reduction: Reduction = "mean",
) -> UnifiedLoss:
    """Asymmetric loss, unknown labels taken as absent (Ridnik et al., 2021).

    Args:
        gamma_neg: focusing of absent labels.
        gamma_pos: focusing of present labels.
        clip: probabilities of absent labels are lowered by this much, so very easy ones drop out.
        detach: keep the gradient out of the focusing weight, as the published training script does.
        reduction: mean, sum (as published), sum_classes or none.
    """
    l3 = AsymmetricNegative(gamma_neg, clip, detach)
    return assume_negative(Focal(gamma_pos, detach=detach), l3, reduction=reduction)


@searched(
    {"variant": "gr"}, {"variant": "original"}, variant=("original", "gr"), lam=(1.3, 1.5, 1.7)
)
def hill(
    variant: Literal["original", "gr"] = "original",
    lam: float = 1.5,
    margin: float = 1.0,
    gamma: float = 2.0,
    eps: float | None = None,
    reduction: Reduction = "mean",
) -> UnifiedLoss:
    """Hill loss: a negative loss that lets go of entries with p near 1 (Zhang et al., 2021).

    Args:
        variant: "original" has focal-margin positives; "gr", as in the GR Loss code, has -log p.
        lam: height of the hill; at 1.5 its gradient is symmetric.
        margin: by which positive logits are lowered in the original.
        gamma: focusing of positives in the original.
        eps: for "gr", added to p inside the log (published: 1e-7); None is the exact log.
        reduction: mean, sum (as published), sum_classes or none.
    """
    l1 = Focal(gamma, margin) if variant == "original" else Log(eps)
    return assume_negative(l1, Hill(lam), reduction=reduction)


@searched(
    {"variant": "gr"}, {"variant": "original"}, variant=("original", "gr"), tau=(0.5, 0.6, 0.7, 0.8)
)
def splc(
    variant: Literal["original", "gr"] = "original",
    tau: float = 0.6,
    margin: float = 1.0,
    gamma: float = 2.0,
    lam: float = 1.5,
    negative: Literal["focal", "hill"] | None = None,
    margin_on_pseudo: bool | None = None,
    from_epoch: int = 2,
    reduction: Reduction = "mean",
) -> UnifiedLoss:
    """Self-paced loss correction: unknown labels above a threshold become positives (Zhang et al., 2021).

    Args:
        variant: sets the defaults of the next two: "original" as released (focal, False), "gr" as the GR Loss
            paper's Table 1 has it (hill, True).
        tau: threshold on the probability.
        margin: by which positive logits are lowered.
        gamma: focusing.
        lam: height of the hill.
        negative: loss of an absent label, "focal" or "hill".
        margin_on_pseudo: whether corrected labels have the margin too.
        from_epoch: the first epoch that corrects, from 1.
        reduction: mean, sum (as published), sum_classes or none.
    """
    if not 0 <= tau <= 1:
        raise ValueError(f"tau is a probability, not {tau}")
    negative = negative or ("focal" if variant == "original" else "hill")
    if margin_on_pseudo is None:
        margin_on_pseudo = variant == "gr"
    return UnifiedLoss(
        khat=Step(tau, from_epoch),
        weight=Constant(1),
        l1=Focal(gamma, margin),
        l2=Focal(gamma, margin if margin_on_pseudo else 0),
        l3=Hill(lam) if negative == "hill" else Absent(Focal(gamma)),
        reduction=reduction,
    )
