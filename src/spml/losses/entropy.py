"""Entropy maximisation: the loss rewards uncertainty about unknown labels."""

from spml.losses.components import Constant
from spml.losses.framework import Reduction, UnifiedLoss
from spml.losses.metadata import Citation, Eps, method, published, searched
from spml.losses.terms import Absent, Log, NegativeEntropy

ZHOU = Citation(
    "Zhou et al.",
    "Acknowledging the Unknown for Multi-label Learning with Single Positive Labels",
    "ECCV",
    2022,
    repository="https://github.com/Correr-Zhou/SPML-AckTheUnknown",
    commit="ae1ccaf",
    link="https://arxiv.org/abs/2203.16219",
    names="Donghao Zhou, Pengfei Chen, Qiong Wang, Guangyong Chen, Pheng-Ann Heng",
)
ZHOU_CODE = "Correr-Zhou/SPML-AckTheUnknown, settings per data set"
EM_TRAINING = (
    published(ZHOU_CODE, epochs=10, head_lr=1),
    published(ZHOU_CODE, "voc", batch_size=8, lr=1e-5, alpha=0.2),
    published(ZHOU_CODE, "coco", "nuswide", batch_size=16, lr=1e-5, alpha=0.1),
    published(ZHOU_CODE, "cub", batch_size=8, lr=1e-4, alpha=0.01),
)


@method(
    order=140,
    table2=10,
    citation=ZHOU,
    presets=[*EM_TRAINING, published(ZHOU_CODE, patience_drop=0)],
    notes=r"""
    **Idea.** Entropy maximisation: the loss rewards uncertainty about unknown labels. Its gradient
    vanishes at $p=0.5$ and at both ends, so the known labels decide what the model predicts.

    **Loss.** $-\log p$ if $s=1$; $\alpha [p\log p+(1-p)\log(1-p)]$ if $s=0$; $-\log(1-p)$ if
    $s=-1$. It can be negative, down to $-0.693 \alpha$ per unknown entry, and is negative in a
    batch without known labels.

    **In the framework.** $\hat k=1$, $v=\alpha$, $L_2$ the negative entropy; the gradient goes
    through both of its factors.

    **State and cost.** None.

    **Differences.** Released code has ε = 1e-5, one learning rate for backbone and head, and stops
    at the first epoch that does not improve validation mAP (`--patience-drop 0`). The column "EM"
    of the GR Loss paper's Table 1 is EM with pseudo-labels, which is [`em_apl`](#em_apl).
    """,
    examples=["digits --method em --set alpha=0.1"],
)
@searched({"alpha": 0.1}, {"alpha": 0.2}, alpha=(0.01, 0.05, 0.1, 0.2, 0.4))
def em(alpha: float = 0.2, eps: Eps = None, reduction: Reduction = "mean") -> UnifiedLoss:
    """Entropy maximisation on unknown labels; the loss may be negative (Zhou et al., 2022).

    Args:
        alpha: weight of the entropy.
        eps: added to probabilities inside the logs, as published (1e-5); None is the exact log.
    """
    return UnifiedLoss(
        khat=Constant(1),
        weight=Constant(alpha),
        l1=Log(eps),
        l2=NegativeEntropy(eps),
        l3=Absent(Log(eps)),
        reduction=reduction,
    )
