"""Losses for noisy labels, in their two-class form, with unknown labels taken as absent."""

from dataclasses import replace

from spml.losses.components import RampLike
from spml.losses.framework import Reduction, UnifiedLoss, assume_negative
from spml.losses.gr import TRAINING
from spml.losses.metadata import Citation, Count1, method, published, searched
from spml.losses.terms import GCE, Absent, Symmetric, Taylor, Term

WANG = "Wang et al., ICCV 2019, A as it is quoted; common code has log 1e-4"
NOT_RUN = tuple(
    replace(
        entry, source="the GR Loss setting for this data: the authors did not run the method on it"
    )
    for entry in TRAINING
)


@method(
    order=180,
    citation=Citation(
        "Zhang & Sabuncu",
        "Generalized Cross Entropy Loss for Training Deep Neural Networks with Noisy Labels",
        "NeurIPS",
        2018,
        link="https://arxiv.org/abs/1805.07836",
        names="Zhilu Zhang, Mert R. Sabuncu",
    ),
    presets=[*NOT_RUN, published("Zhang & Sabuncu, NeurIPS 2018", q=0.7)],
    notes=r"""
    **Idea.** Generalised cross-entropy: between cross-entropy, which learns fast, and absolute
    error, which is robust to wrong labels. Unknown labels are taken as absent.

    **Loss.** $(1-p^q)/q$ if $s=1$, else $(1-(1-p)^q)/q$.

    **In the framework.** $\hat k=0$, $v=1$. `gr` uses the same terms with a $q$ for each of L1, L2
    and L3.

    **State and cost.** None.

    **Differences.** The original is a softmax loss; this two-class form is ours, as in `sce` and
    `taylor_ce`. The gradient stays finite even if $p$ rounds to 0.
    """,
    examples=["digits --method gce --set q=0.3"],
)
@searched({"q": 0.3}, q=(0.1, 0.3, 0.5, 0.7, 0.9))
def gce(q: RampLike = 0.7, reduction: Reduction = "mean") -> UnifiedLoss:
    """Generalised cross-entropy (Zhang & Sabuncu, 2018).

    Args:
        q: 0 is cross-entropy, 1 mean absolute error; a number, (start, end), or one per class.
    """
    return _both_sides(GCE(q), reduction)


@method(
    order=190,
    citation=Citation(
        "Wang et al.",
        "Symmetric Cross Entropy for Robust Learning with Noisy Labels",
        "ICCV",
        2019,
        link="https://arxiv.org/abs/1908.06112",
        names="Yisen Wang, Xingjun Ma, Zaiyi Chen, Yuan Luo, Jinfeng Yi, James Bailey",
    ),
    presets=[
        *NOT_RUN,
        published(WANG, alpha=0.1, beta=1.0, A=-4.0),
    ],
    notes=r"""
    **Idea.** Symmetric cross-entropy: cross-entropy plus the same with label and prediction
    swapped, which is robust to wrong labels. Unknown labels are taken as absent.

    **Loss.** With $\pi=p$ if $s=1$, else $1-p$: $-\alpha\log\pi-\beta A (1-\pi)$, where $A$ stands
    for log 0.

    **In the framework.** $\hat k=0$, $v=1$.

    **State and cost.** None.

    **Differences.** Two-class form, as `gce`. $A$ is −4 here; common code has log 1e-4 = −9.21.
    """,
    examples=["digits --method sce --set A=-9.21"],
)
@searched({"A": -9.21}, alpha=(0.01, 0.1, 1.0), beta=(0.1, 1.0), A=(-4.0, -9.21))
def sce(
    alpha: float = 0.1, beta: float = 1.0, A: float = -4.0, reduction: Reduction = "mean"
) -> UnifiedLoss:
    """Symmetric cross-entropy (Wang et al., 2019).

    Args:
        alpha: weight of cross-entropy.
        beta: weight of reverse cross-entropy.
        A: replaces log 0; common code has log(1e-4) = -9.21.
    """
    return _both_sides(Symmetric(alpha, beta, A), reduction)


@method(
    order=200,
    citation=Citation(
        "Feng et al.",
        "Can Cross Entropy Loss Be Robust to Label Noise?",
        "IJCAI",
        2020,
        link="https://www.ijcai.org/Proceedings/2020/0305.pdf",
        names="Lei Feng, Senlin Shu, Zhuoyi Lin, Fengmao Lv, Li Li, Bo An",
    ),
    presets=[*NOT_RUN, published("Feng et al., IJCAI 2020", order=2)],
    notes=r"""
    **Idea.** Taylor cross-entropy: the first terms of the series of the log. One term is absolute
    error, all of them cross-entropy. Unknown labels are taken as absent.

    **Loss.** With $\pi$ as in `sce`: $\sum_{i=1}^{n}(1-\pi)^i/i$.

    **In the framework.** $\hat k=0$, $v=1$.

    **State and cost.** None.

    **Differences.** Two-class form, as `gce`.
    """,
    examples=["digits --method taylor_ce --set order=6"],
)
@searched({"order": 4}, order=(1, 2, 4, 6))
def taylor_ce(order: Count1 = 2, reduction: Reduction = "mean") -> UnifiedLoss:
    """Taylor cross-entropy (Feng et al., 2020).

    Args:
        order: number of terms; 1 is mean absolute error, many approach cross-entropy.
    """
    return _both_sides(Taylor(order), reduction)


def _both_sides(term: Term, reduction: Reduction) -> UnifiedLoss:
    return assume_negative(term, Absent(term), reduction=reduction)
