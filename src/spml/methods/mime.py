"""MIME: normal embeddings of labels, and unknown labels with high scores become positives."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from spml.keyed import normal
from spml.losses.components import Context
from spml.losses.cross_entropy import an
from spml.losses.framework import Reduction
from spml.losses.metadata import (
    Citation,
    Count1,
    Eps,
    Range,
    Share,
    method,
    published,
    searched,
)
from spml.methods.parts.draws import EpochDraws
from spml.methods.parts.labels import known_labels
from spml.methods.parts.passes import PassMethod

MIME_CODE = "palm-biaoliu/mime, the newest of its versions, settings per data set"
Rule = Literal["add", "ignore"]


@method(
    order=170,
    table2=13,
    citation=Citation(
        "Liu et al.",
        "Revisiting Pseudo-Label for Single-Positive Multi-Label Learning",
        "ICML",
        2023,
        repository="https://github.com/palm-biaoliu/mime",
        commit="06e15de",
        link="https://proceedings.mlr.press/v202/liu23ar.html",
        names="Biao Liu, Ning Xu, Jiaqi Lv, Xin Geng",
    ),
    presets=[
        published(MIME_CODE, lr=1e-4, epochs=10, head_lr=10, optimizer="adamax", frozen_norm=True),
        published(MIME_CODE, head="query-normal", theta=0.95, beta=1e-4),
        published(MIME_CODE, "voc", "coco", batch_size=32, warmup=2),
        published(MIME_CODE, "nuswide", batch_size=16, warmup=2),
        published(MIME_CODE, "cub", batch_size=16, warmup=5),
    ],
    notes=r"""
    **Idea.** Each label has its own query and a normally distributed embedding, and a small
    divergence term limits the information in it. After each epoch from the warm-up on, unknown
    labels with a high probability become positives permanently.

    **Loss.** With the embedding's means $\mu$ and deviations $\sigma$, the logit
    $z=w\cdot\mu+b+\lVert w\odot\sigma\rVert\,\varepsilon/\sqrt{10}$,
    $\varepsilon\sim\mathcal N(0,1)$, and the table of labels observed or added as $t$,

    $$\mathrm{BCE}(t,z)+\beta\,\mathrm{mean}\,\tfrac12\bigl(\mu^2+\sigma^2-1-2\ln\sigma\bigr).$$

    `rule=add` sets $t=1$ if $p>\theta$; `rule=ignore` excludes the most probable unknown labels of
    each class from the loss until the end of the next epoch.

    **In the framework.** The first term fits, with $L_1=L_2=-\log p$, $L_3=-\log(1-p)$ and $\hat k$
    = 1 for added labels (or $v=0$ for ignored ones); but both come from a table of past scores, and
    the second term depends on embeddings, so the method is outside the framework.

    **State and cost.** Two bytes for every item and class, one of them in the state; six with
    `rule=ignore`. A pass over the training split after each epoch from the warm-up to the last but
    one. The query head has about 151 million parameters on ResNet-50.

    **Differences.** Three released versions disagree; the newest is the default, the second is
    `rule=ignore` (its `mean_inverse_positives` comes from complete labels). They draw ten
    embeddings, in evaluation too, so their predictions are random; here one number is drawn, with
    the distribution of the mean of ten, and evaluation uses the mean. A pass covers all items,
    without mirroring. The backbone's first layers learn too. The query head encodes no positions,
    so that a model fits pictures of any size, and has no dropout, so that an item's output depends
    on nothing else.

    On digits the gain over `an` comes from the head: `an` with the same head is as good
    ([table](#on-digits)).

    [Results on VOC2012](reproduction.md#query-heads) have the head's earlier structure; a
    transformer fails at high learning rates.
    """,
    examples=["digits --method mime --lr 1e-3 --head-lr 1"],
)
@searched({"theta": 0.8}, theta=(0.8, 0.9, 0.95, 0.99), warmup=(1, 2, 3), beta=(1e-5, 1e-4, 1e-3))
class mime(EpochDraws, PassMethod):  # noqa: N801  (methods are called by their names)
    """Pseudo-positives with an information bottleneck on label embeddings (Liu et al., ICML 2023).

    The published logit is that of the mean of ten sampled embeddings. It is normal, so one number
    is sampled for it: values have the same distribution, and gradients the same mean with less
    noise. Three versions were released; it is unknown which one produced the published figures. The
    last is the default. The first added labels from theta=0.8 on, trained with Adam at 1e-5.

    Args:
        rule: treatment of unknown labels after an epoch: "add" makes those with p above theta
            positives permanently; "ignore" excludes the most probable of each class from the loss
            until the end of the next epoch.
        theta: probability above which an unknown label is added; 1 adds none.
        warmup: first epoch, from 1, after which the rule applies.
        beta: weight of the divergence from the standard normal distribution.
        sample: sample the logit in training; otherwise use that of the mean embedding.
        mean_inverse_positives: mean over items of 1 / (number of positive labels), from another
            source, for "ignore": of a class with n observed positives it ignores n divided by this
            number.
        eps: added to probabilities inside the logs, as published (1e-5); None is the exact log.
        reduction: mean (over all entries, ignored ones too), sum, sum_classes or none.
    """

    needs = frozenset({"items", "index", "features", "pass"})
    head = vector_head = "query-normal"
    marked: Tensor
    unknown: Tensor

    def __init__(
        self,
        rule: Rule = "add",
        theta: Share = 0.95,
        warmup: Count1 = 2,
        beta: float = 1e-4,
        sample: bool = True,
        mean_inverse_positives: Annotated[float, Range(0, 1, "(]")] | None = None,
        eps: Eps = None,
        reduction: Reduction = "mean",
        *,
        items: int,
        classes: int,
        observed: Any,
    ) -> None:
        super().__init__()
        if rule == "ignore" and mean_inverse_positives is None:
            raise ValueError(
                "rule='ignore' needs mean_inverse_positives, the mean of 1 / (positives of an item)"
            )
        self.rule, self.theta, self.warmup, self.items = rule, theta, warmup, items
        self.beta, self.sample, self.reduction = beta, sample, reduction
        self.loss = an(eps, reduction="none")
        known = known_labels(observed, items, classes)
        share = mean_inverse_positives or 1.0
        counts = (known == 1).sum(dim=0).tolist()
        self.ignored = [math.floor(round(n / share, 9)) for n in counts]  # of each class
        marked = torch.zeros(items, classes, dtype=torch.bool)  # labels added or ignored
        self.register_buffer("marked", marked)
        self.register_buffer("unknown", known == 0, persistent=False)

    @classmethod
    def memory(cls, items: int, classes: int, **options: Any) -> int:
        """Two bytes for every label; with rule "ignore", also a score."""
        return items * classes * (6 if options.get("rule") == "ignore" else 2)

    def prepare(self, features: Tensor) -> None:
        """Reject features without a mean, a deviation and the logit's deviation for each label."""
        shape, classes = tuple(features.shape), self.marked.shape[1]
        if len(shape) != 3 or shape[1] != classes or shape[2] < 3 or shape[2] % 2 == 0:
            raise ValueError(
                "mime needs means and deviations of each label's embedding, "
                f"not features of {shape}; give --head query-normal"
            )

    def entries(self, logits: Tensor, context: Context) -> Tensor:
        """Loss of each entry.

        Features are (items, classes, 2d + 1): means, logs of deviations, deviation of the logit.
        """
        observed, index, features = context.observed, context.index, context.features
        marked = self.marked[index] & (observed == 0)
        mean, log_deviation, deviation = embedding_parts(features.to(logits.dtype))
        if self.sample:
            noise = normal(index, self.salt, logits.shape[1])
            logits = logits + deviation * noise.to(logits.dtype)
        if self.rule == "add":
            labels = replace(context, observed=observed.masked_fill(marked, 1))
            entries = self.loss.entries(logits, labels)
        else:
            entries = self.loss.entries(logits, context).masked_fill(marked, 0)
        return entries + self.beta * normal_divergence(mean, log_deviation)

    def take_scores(self, logits: Tensor, index: Tensor) -> None:
        """Add labels with high scores; with rule "ignore", keep the scores."""
        if self.rule == "add":
            self.marked[index] |= (logits.float().sigmoid() > self.theta) & self.unknown[index]
        else:
            super().take_scores(logits, index)

    def use_scores(self, scores: Tensor, epoch: int, epochs: int) -> None:
        """With rule "ignore", select the ignored labels again."""
        ranked = scores.masked_fill_(~self.unknown, -torch.inf)
        self.marked.zero_()
        for c, count in enumerate(self.ignored):
            self.marked[ranked[:, c].argsort(descending=True, stable=True)[:count], c] = True
        self.marked &= self.unknown


def embedding_parts(features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Split features of a query-normal head: means, logs of deviations, the logit's deviation."""
    size = features.shape[-1] // 2
    return features[..., :size], features[..., size : 2 * size], features[..., -1]


def normal_divergence(mean: Tensor, log_deviation: Tensor) -> Tensor:
    """KL divergence from the standard normal distribution, averaged over each embedding."""
    return (mean.square() + (2 * log_deviation).exp() - 1 - 2 * log_deviation).mean(dim=-1) / 2
