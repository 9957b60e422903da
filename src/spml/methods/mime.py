"""MIME: labels have normal embeddings, and unknown labels that the model is sure of become positives."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor

from spml.keyed import normal
from spml.losses.cross_entropy import an
from spml.losses.framework import Reduction, prepared, reduce
from spml.losses.metadata import Citation, method, published, searched
from spml.methods.parts.draws import EpochDraws
from spml.methods.parts.labels import label_parts, rows_of

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
    ),
    presets=[
        published(
            MIME_CODE,
            lr=1e-4,
            epochs=10,
            head_lr=10,
            optimizer="adamax",
            frozen_norm=True,
            head="query-normal",
            theta=0.95,
            beta=1e-4,
        ),
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
    without mirroring. Positions are not encoded and there is no dropout.

    On digits the gain over `an` comes from the head: `an` with the same head is as good, see the
    table above.

    Its head on pictures is a transformer, which fails at high learning rates: [results on
    VOC2012](reproduction.md#query-heads).

    ```
    spml train digits --method mime --lr 1e-3 --head-lr 1
    ```
    """,
)
@searched({"theta": 0.8}, theta=(0.8, 0.9, 0.95, 0.99), warmup=(1, 2, 3), beta=(1e-5, 1e-4, 1e-3))
class mime(EpochDraws):  # noqa: N801  (methods are called by their names)
    """Pseudo-positives under an information bottleneck on each label's embedding (Liu et al., ICML 2023).

    With an embedding of each label that is normal with means mu and deviations sigma (the head query-normal), it is

        BCE(z, labels) + beta mean over the embedding of (mu^2 + sigma^2 - 1 - 2 ln sigma) / 2,

    where z is the logit of the mean of ten drawn embeddings, and labels are those observed and those added. Such a
    logit is normal, so that one number is drawn for it in place of ten embeddings: values have the same law, and
    gradients the same mean with less noise.

    Three versions were released, and it is not known which of them the published figures are of. The last is the
    default. The first added labels from theta=0.8 on, and was trained by Adam at 1e-5. The second is rule="ignore",
    which needs a figure from complete labels. All of them draw in evaluation too, and leave the last, incomplete batch
    out of their passes over the training split; here evaluation takes the mean, and a pass is whole.

    Args:
        rule: what happens to unknown labels after an epoch: "add" makes those with p above theta positives for good;
            "ignore" takes the most probable of each class out of the loss until the next epoch's end.
        theta: probability above which an unknown label is added; 1 adds none.
        warmup: the first epoch, from 1, after which that is done.
        beta: weight of the divergence from the standard normal distribution.
        sample: draw the logit in training; otherwise it is that of the mean embedding.
        mean_inverse_positives: mean over items of 1 / (number of positive labels), known from elsewhere. "ignore" needs
            it: a class with n observed positives has n divided by this labels ignored.
        eps: added to probabilities inside the logs, as published (1e-5); None is the exact log.
        reduction: mean (over all entries, ignored ones too), sum, sum_classes or none.
        items: of the training split.
        classes: number of them.
        observed: labels of the training split, with rows(index), or an array.
    """

    needs = frozenset({"items", "index", "features", "pass"})
    head = vector_head = "query-normal"
    marked: Tensor
    unknown: Tensor

    def __init__(
        self,
        rule: Rule = "add",
        theta: float = 0.95,
        warmup: int = 2,
        beta: float = 1e-4,
        sample: bool = True,
        mean_inverse_positives: float | None = None,
        eps: float | None = None,
        reduction: Reduction = "mean",
        items: int | None = None,
        classes: int | None = None,
        observed: Any = None,
    ) -> None:
        super().__init__()
        if items is None or classes is None or observed is None:
            raise ValueError(
                "mime needs items, classes and observed: it remembers what it made of unknown labels"
            )
        if not 0 <= theta <= 1:
            raise ValueError(f"theta is a probability, not {theta}")
        if warmup < 1:
            raise ValueError(f"warmup is an epoch, counted from 1, not {warmup}")
        if rule == "ignore" and mean_inverse_positives is None:
            raise ValueError(
                "rule='ignore' needs mean_inverse_positives, the mean of 1 / (positives of an item)"
            )
        if mean_inverse_positives is not None and not 0 < mean_inverse_positives <= 1:
            raise ValueError(
                f"mean_inverse_positives is above 0 and up to 1, not {mean_inverse_positives}"
            )
        self.rule, self.theta, self.warmup, self.beta, self.sample = (
            rule,
            theta,
            warmup,
            beta,
            sample,
        )
        self.reduction = reduction
        self.loss = an(eps, reduction="none")
        counts, unknown = (
            torch.zeros(classes, dtype=torch.int64),
            torch.empty(items, classes, dtype=torch.bool),
        )
        for part, known in label_parts(observed, items, classes):
            counts += (known == 1).sum(dim=0)
            unknown[part] = known == 0
        share = mean_inverse_positives or 1.0
        self.ignored = [
            math.floor(round(count / share, 9)) for count in counts.tolist()
        ]  # of each class, how many
        self.register_buffer(
            "marked", torch.zeros(items, classes, dtype=torch.bool)
        )  # added, or ignored
        self.register_buffer("unknown", unknown, persistent=False)
        self.scores = torch.empty(0)

    @classmethod
    def memory(cls, items: int, classes: int, **options: Any) -> int:
        """A byte for each unknown label and for what became of it; ranking also takes scores."""
        return items * classes * (6 if options.get("rule") == "ignore" else 2)

    def prepare(self, features: Tensor) -> None:
        """Refuse what is not a mean, a deviation and the logit's deviation for each label."""
        _check(features, self.marked.shape[1])

    def forward(
        self,
        logits: Tensor,
        observed: Tensor,
        *,
        epoch: int = 1,
        epochs: int = 1,
        index: Tensor | None = None,
        features: Tensor | None = None,
        views: Tensor | None = None,
    ) -> Tensor:
        """Loss of a batch; features (items, classes, 2d + 1): means, logs of deviations, deviation of the logit."""
        logits = prepared(logits, observed)
        if features is None:
            raise ValueError(
                "mime needs features: an embedding of each label, as the head query-normal gives them"
            )
        _check(features, logits.shape[1])
        marked = (rows_of(self.marked, index, logits, "mime") > 0) & (observed == 0)
        mean, log_deviation, deviation = embedding_parts(features.to(logits.dtype))
        if self.sample:
            logits = logits + deviation * self._noise(logits, index)
        if self.rule == "add":
            entries = self.loss(logits, observed.masked_fill(marked, 1), epoch=epoch, epochs=epochs)
        else:
            entries = self.loss(logits, observed, epoch=epoch, epochs=epochs).masked_fill(marked, 0)
        return reduce(entries + self.beta * normal_divergence(mean, log_deviation), self.reduction)

    def _noise(self, logits: Tensor, index: Tensor | None) -> Tensor:
        rows = torch.arange(len(logits), device=logits.device) if index is None else index
        return normal(rows, self.salt, logits.shape[1]).to(logits.dtype)

    def wants_pass(self, epoch: int, epochs: int) -> bool:
        """From the warm-up on, but not after the last epoch, whose pseudo-labels nothing would use."""
        return self.warmup <= epoch < epochs

    def take_scores(self, logits: Tensor, index: Tensor) -> None:
        """Add what is sure; what is to be ranked is kept until the pass is over."""
        if self.rule == "add":
            self.marked[index] |= (logits.float().sigmoid() > self.theta) & self.unknown[index]
            return
        if self.scores.shape != self.marked.shape:
            self.scores = torch.empty(
                self.marked.shape, dtype=torch.float32, device=self.marked.device
            )
        self.scores[index] = logits.float()

    def end_epoch(self, epoch: int, epochs: int) -> None:
        """Where labels are ignored, choose them anew."""
        if self.rule == "add" or not self.wants_pass(epoch, epochs):
            return
        ranked = self.scores.masked_fill_(~self.unknown, -torch.inf)
        self.marked.zero_()
        for c, count in enumerate(self.ignored):
            self.marked[ranked[:, c].argsort(descending=True, stable=True)[:count], c] = True
        self.marked &= self.unknown
        self.scores = torch.empty(0)


def embedding_parts(features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What a head query-normal shows of each label: means, logs of deviations, and the logit's deviation."""
    size = features.shape[-1] // 2
    return features[..., :size], features[..., size : 2 * size], features[..., -1]


def normal_divergence(mean: Tensor, log_deviation: Tensor) -> Tensor:
    """KL from the standard normal distribution, averaged over each label's embedding."""
    return (mean.square() + (2 * log_deviation).exp() - 1 - 2 * log_deviation).mean(dim=-1) / 2


def _check(features: Tensor, classes: int) -> None:
    shape = tuple(features.shape)
    if len(shape) != 3 or shape[1] != classes or shape[2] < 3 or shape[2] % 2 == 0:
        raise ValueError(
            f"mime looks at means and deviations of each label's embedding, not at features of {shape}; "
            "give --head query-normal"
        )
