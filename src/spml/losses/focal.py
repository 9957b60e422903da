"""Losses that down-weight easy or suspicious entries: focal, asymmetric, Hill, SPLC."""

from typing import Annotated, Any, Literal

from spml.losses.components import Constant, Step
from spml.losses.framework import Reduction, UnifiedLoss, assume_negative
from spml.losses.metadata import Citation, Eps, Range, Share, Weight, method, published, searched
from spml.losses.terms import Absent, AsymmetricNegative, Focal, Hill, Log, Term

ZHANG = Citation(
    "Zhang et al.",
    "Simple and Robust Loss Design for Multi-Label Learning with Missing Labels",
    "arXiv",
    2021,
    repository="https://github.com/xinyu1205/robust-loss-mlml",
    commit="dcfa4d5",
    link="https://arxiv.org/abs/2112.07368",
    names="Youcai Zhang, Yuhao Cheng, Xinyu Huang, Fei Wen, Rui Feng, Yaqian Li, Yandong Guo",
)
ZHANG_CODE = "xinyu1205/robust-loss-mlml"
ZHANG_COCO = (
    f"{ZHANG_CODE}, its training script for COCO; it stops after 31 epochs of a longer cycle"
)
# One-cycle training on COCO; its weight decay belongs to losses that are summed.
ONE_CYCLE: dict[str, Any] = {
    "batch_size": 128,
    "lr": 1e-4,
    "head_lr": 1,
    "schedule": "one-cycle",
    "weight_decay": 1e-4,
    "reduction": "sum",
}


@method(
    order=60,
    table2=3,
    citation=Citation(
        "Lin et al.",
        "Focal Loss for Dense Object Detection",
        "ICCV",
        2017,
        link="https://arxiv.org/abs/1708.02002",
        names="Tsung-Yi Lin, Priya Goyal, Ross Girshick, Kaiming He, Piotr Dollár",
    ),
    presets=[
        published(
            "Lin et al., ICCV 2017; the GR Loss paper does not state the values of its row",
            gamma=2.0,
        )
    ],
    notes=r"""
    **Idea.** Focal loss: entries that the model already gets right count less. Designed for the
    imbalance between few positives and many negatives, not for missing labels.

    **Loss.** $-(1-p)^\gamma\log p$ if $s=1$, else $-p^\gamma\log(1-p)$.

    **In the framework.** $\hat k=0$, $v=1$, with focal $L_1$ and $L_3$. The gradient goes through
    the weight.

    **State and cost.** None.

    **Differences.** Published with `sum`. Its balance factor between the two sides is not
    implemented. The GR Loss paper does not state the values that its row was trained with.
    """,
    examples=["digits --method focal --set gamma=1"],
)
@searched({"gamma": 1.0}, gamma=(0.5, 1.0, 2.0, 3.0))
def focal(gamma: Weight = 2.0, reduction: Reduction = "mean") -> UnifiedLoss:
    """Focal loss, unknown labels taken as absent (Lin et al., 2017).

    Args:
        gamma: strength of the down-weighting of easy entries.
        reduction: mean, sum (as published), sum_classes or none.
    """
    return assume_negative(Focal(gamma), Absent(Focal(gamma)), reduction=reduction)


@method(
    order=70,
    citation=Citation(
        "Ridnik et al.",
        "Asymmetric Loss For Multi-Label Classification",
        "ICCV",
        2021,
        repository="https://github.com/Alibaba-MIIL/ASL",
        commit="8c9e0bd",
        link="https://arxiv.org/abs/2009.14119",
        names=(
            "Tal Ridnik, Emanuel Ben-Baruch, Nadav Zamir, Asaf Noy, Itamar Friedman, "
            "Matan Protter, Lihi Zelnik-Manor"
        ),
    ),
    presets=[
        published("Alibaba-MIIL/ASL, class defaults", gamma_neg=4.0, gamma_pos=1.0, clip=0.05),
        published(
            "Alibaba-MIIL/ASL, its training script for COCO with complete labels; it stops at 40 "
            "of a cycle of 80 epochs, and excludes biases and batch norm from the weight decay",
            "coco",
            **ONE_CYCLE,
            gamma_pos=0.0,
            epochs=40,
        ),
    ],
    notes=r"""
    **Idea.** Asymmetric loss: absent labels are focused more strongly than present ones, and those
    with a very low probability drop out. The remaining negatives are the hard ones, among them the
    missed positives.

    **Loss.** $-(1-p)^{\gamma^+}\log p$ if $s=1$, else $-m^{\gamma^-}\log(1-m)$ with
    $m=\max(p-c,0)$.

    **In the framework.** $\hat k=0$, $v=1$.

    **State and cost.** None.

    **Differences.** Published with `sum`, for complete labels. The released training script keeps
    the gradient out of the focusing weight, as here; the released class by default does not
    (`detach=false`). The script for COCO has γ⁺ = 0, the class γ⁺ = 1. Its constant of 1e-8
    vanishes in half precision and gives infinite losses; here that cannot happen. Its recipe also
    has Cutout, RandAugment, unnormalised inputs and averaged weights, and chooses the epoch on the
    test set; none of these is implemented here.
    """,
    examples=[
        "coco --method asl --optimizer adam --schedule one-cycle --lr 1e-4 \\\n"
        "  --head-lr 1 --weight-decay 1e-4 --batch-size 128 --epochs 40"
    ],
)
@searched(
    {"gamma_pos": 0.0},
    {"gamma_neg": 2.0},
    gamma_neg=(1.0, 2.0, 4.0),
    gamma_pos=(0.0, 1.0),
    clip=(0.0, 0.05, 0.1),
)
def asl(
    gamma_neg: Weight = 4.0,
    gamma_pos: Weight = 1.0,
    clip: Annotated[float, Range(0, 1, "[)")] = 0.05,
    detach: bool = True,
    reduction: Reduction = "mean",
) -> UnifiedLoss:
    """Asymmetric loss, unknown labels taken as absent (Ridnik et al., 2021).

    Args:
        gamma_neg: focusing of absent labels.
        gamma_pos: focusing of present labels.
        clip: subtracted from probabilities of absent labels, so very easy ones drop out.
        detach: stop the gradient in the focusing weight, as the published training script does.
        reduction: mean, sum (as published), sum_classes or none.
    """
    l3: Term = AsymmetricNegative(gamma_neg, clip, detach)
    if clip == 0:
        l3 = Absent(Focal(gamma_neg, detach=detach))
    return assume_negative(Focal(gamma_pos, detach=detach), l3, reduction=reduction)


@method(
    order=80,
    table2=4,
    citation=ZHANG,
    presets=[
        published(ZHANG_CODE, lam=1.5, margin=1.0, gamma=2.0),
        published(ZHANG_COCO, "coco", **ONE_CYCLE, epochs=31),
    ],
    notes=r"""
    **Idea.** A negative loss shaped like a hill: it rises with $p$ and flattens again towards
    $p=1$, where an unknown label is probably a missed positive. The loss ignores such labels rather
    than pushing them down.

    **Loss.** $(\lambda-p)p^2$ if $s\neq1$; $-(1-p_m)^\gamma\log p_m$ with $p_m=\sigma(z-m)$ if
    $s=1$. At λ = 1.5 the slope in $z$ of the first is $3p^2(1-p)^2$.

    **In the framework.** $\hat k=0$, $v=1$, $L_3$ the hill.

    **State and cost.** None.

    **Differences.** Published with `sum`; its released form gives NaN at very low logits, this one
    does not. The GR Loss paper gives $-\log p$ for positives, as does its code, with `mean`:
    `variant="gr"`. The paper's Table 1 has one minus too many.
    """,
    examples=["digits --method hill --set variant=gr"],
)
@searched(
    {"variant": "gr"}, {"variant": "original"}, variant=("original", "gr"), lam=(1.3, 1.5, 1.7)
)
def hill(
    variant: Literal["original", "gr"] = "original",
    lam: float = 1.5,
    margin: float = 1.0,
    gamma: Weight = 2.0,
    eps: Eps = None,
    reduction: Reduction = "mean",
) -> UnifiedLoss:
    """Hill loss: a negative loss that ignores entries with p near 1 (Zhang et al., 2021).

    Args:
        variant: "original" has focal-margin positives; "gr", as in the GR Loss code, has -log p.
        lam: height of the hill; at 1.5 its gradient is symmetric.
        margin: subtracted from positive logits in the original.
        gamma: focusing of positives in the original.
        eps: for "gr", added to p inside the log (published: 1e-7); None is the exact log.
        reduction: mean, sum (as published), sum_classes or none.
    """
    l1 = Focal(gamma, margin) if variant == "original" else Log(eps)
    return assume_negative(l1, Hill(lam), reduction=reduction)


@method(
    order=90,
    table2=5,
    citation=ZHANG,
    presets=[
        published(ZHANG_CODE, tau=0.6, margin=1.0, gamma=2.0, from_epoch=2),
        published(ZHANG_COCO, "coco", **ONE_CYCLE, epochs=31),
    ],
    notes=r"""
    **Idea.** Self-paced loss correction: from the second epoch on, an unknown label with a high
    probability is taken as positive. The decision is made again in every batch and not stored.

    **Loss.** $-(1-p_m)^\gamma\log p_m$ with $p_m=\sigma(z-m)$ if $s=1$; if $s=0$,
    $-(1-p)^\gamma\log p$ if $p>\tau$, else $-p^\gamma\log(1-p)$.

    **In the framework.** $\hat k=1$ if $\bar p>\tau$, else 0; $v=1$.

    **State and cost.** None.

    **Differences.** Published with `sum`. The GR Loss paper describes it with Hill loss for
    negatives and with the margin on corrected labels too; the released code has the focal loss and
    no margin there. `variant="gr"` is the paper's form; `negative` and `margin_on_pseudo` set each
    difference separately. See also [below](#comparing-with-the-papers-table) on its figures.
    """,
    examples=["digits --method splc --set tau=0.8"],
)
@searched(
    {"variant": "gr"}, {"variant": "original"}, variant=("original", "gr"), tau=(0.5, 0.6, 0.7, 0.8)
)
def splc(
    variant: Literal["original", "gr"] = "original",
    tau: Share = 0.6,
    margin: float = 1.0,
    gamma: Weight = 2.0,
    lam: float = 1.5,
    negative: Literal["focal", "hill"] | None = None,
    margin_on_pseudo: bool | None = None,
    from_epoch: int = 2,
    reduction: Reduction = "mean",
) -> UnifiedLoss:
    """Self-paced loss correction: unknown labels with high p become positives (Zhang et al., 2021).

    Args:
        variant: sets the defaults of negative and margin_on_pseudo: "original" as released
            (focal, False), "gr" as in Table 1 of the GR Loss paper (hill, True).
        tau: threshold on the probability.
        margin: subtracted from positive logits.
        gamma: focusing.
        lam: height of the hill.
        negative: loss of an absent label, "focal" or "hill".
        margin_on_pseudo: whether the margin also applies to corrected labels.
        from_epoch: first epoch with corrections; epochs count from 1.
        reduction: mean, sum (as published), sum_classes or none.
    """
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
