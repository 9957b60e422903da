"""BoostLU: LL-R with the head that boosts positive class maps."""

from spml.losses.framework import Reduction, UnifiedLoss
from spml.losses.large_loss import SHARES, ll_r
from spml.losses.metadata import Citation, Share, method, published, searched

BOOSTLU_CODE = "youngwk/BridgeGapExplanationPAMC, defaults"


@method(
    order=130,
    citation=Citation(
        "Kim et al.",
        "Bridging the Gap between Model Explanations in Partially Annotated Multi-label "
        "Classification",
        "CVPR",
        2023,
        repository="https://github.com/youngwk/BridgeGapExplanationPAMC",
        commit="4a1986c",
        link="https://arxiv.org/abs/2304.01804",
        names=(
            "Youngwook Kim, Jae Myung Kim, Jieun Jeong, Cordelia Schmid, Zeynep Akata, Jungwoo Lee"
        ),
    ),
    presets=[published(BOOSTLU_CODE, delta=0.005, batch_size=16, lr=1e-5, epochs=10, head_lr=10)],
    head="boostlu",
    notes=r"""
    **Idea.** Models trained with missing labels find the right places in a picture, but with weaker
    values. A linear layer at each position gives a map for each class; positive values are
    multiplied by 5 before averaging.

    **Loss.** That of `ll_r`. The logit is the mean over the map of $g(x)$, $g(x)=5x$ if $x>0$, else
    $x$.

    **In the framework.** The loss is `ll_r`; the boost belongs to the classifier and applies in
    training and evaluation.

    **State and cost.** None, and no more parameters than the linear head. Needs a feature map or
    tokens.

    **Differences.** None known in the loss; the bias is boosted too, as published. The released
    code has other shares for LL-Ct and LL-Cp (0.2 % and 0.1 %). Logits are large, so probabilities
    saturate and are not calibrated.
    """,
    examples=["digits --method boostlu", "digits --method ll_ct --head boostlu"],
)
@searched({"delta": 0.002}, delta=SHARES)
def boostlu(delta: Share = 0.005, reduction: Reduction = "mean") -> UnifiedLoss:
    """Large loss, rejection, with the BoostLU head (Kim et al., 2023); see also --head boostlu.

    Args:
        delta: share of the batch's entries rejected, times (epoch - 1).
        reduction: mean (over all entries, rejected ones too), sum, sum_classes or none.
    """
    return ll_r(delta, reduction)
