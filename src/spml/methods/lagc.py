"""LAGC: consistency of two views, then a contrastive loss of label embeddings."""

from __future__ import annotations

from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor

from spml.losses.components import Context
from spml.losses.cross_entropy import an
from spml.losses.framework import Method, Reduction, prepared
from spml.losses.metadata import (
    Above0,
    Citation,
    Count0,
    Eps,
    Range,
    Share,
    method,
    published,
    searched,
)
from spml.methods.parts.contrastive import LabelQueue
from spml.methods.parts.projection import Projection

Likely = Annotated[float, Range(0.5, 1)]
LAGC_CODE = "xiemk/SPML-LAC"


@method(
    order=240,
    citation=Citation(
        "Xie et al.",
        "Label-Aware Global Consistency for Multi-Label Learning with Single Positive Labels",
        "NeurIPS",
        2022,
        repository="https://github.com/xiemk/SPML-LAC",
        commit="a630052",
        names="Ming-Kun Xie, Jia-Hao Xiao, Sheng-Jun Huang",
    ),
    presets=[
        published(LAGC_CODE, optimizer="adamw", schedule="one-cycle", lr=1e-4, head_lr=1),
        published(LAGC_CODE, weight_decay=1e-2, batch_size=32, frozen_norm=True, head="query"),
        published(LAGC_CODE, tau=0.6, tau_second=0.9, temperature=0.5, queue=512, size=128),
        published(LAGC_CODE, lam=1, lac=1),
        published(
            f"{LAGC_CODE}: up to 40 epochs in each of two stages, which are the two halves here",
            epochs=80,
        ),
    ],
    notes=r"""
    **Idea.** A strongly augmented view of a picture must agree with the confident predictions for
    the plain view. In the second half of training, a contrastive loss pulls embeddings of present
    labels together within a class and apart between classes.

    **Loss.** With logits $z$ of the plain view and $z'$ of the strong one, $q=\bar p+[s=1]$,
    $h=[q\ge\tau]$,

    $$\mathrm{AN}(z)+\lambda\,\mathrm{mean}_{\,q\ge\tau\text{ or }q<1-\tau}\,\mathrm{BCE}(h,z')
    \;+\;\lambda_2\,\mathrm{LAC},$$

    $$\mathrm{LAC}=\mathrm{mean}_u\Bigl[\log\sum_{a\in A}e^{u\cdot a/T}
    -\mathrm{mean}_{a\in P}\,u\cdot a/T\Bigr],$$

    with $u$ the projected embeddings, of length 1, of the newest 512 labels with $h=1$, in both
    views; those of the batch have a gradient. $A$ are the other such embeddings, $P$ those of the
    same class. $\tau$ is 0.6 in the first stage, without LAC, and 0.9 in the second, which starts
    from the best epoch of the first, with a new optimiser and rate schedule.

    **In the framework.** The first term is `an`; the others combine two views and many items, and
    do not fit.

    **State and cost.** A queue of 512 labels with two embeddings of 128 numbers, and a projection
    of two layers. Two views double the batch, and augmenting pictures one by one takes most of the
    time on a GPU. The query head has about 151 million parameters on ResNet-50.

    **Differences.** One run has both stages, divided by `first`, without early stopping, and the
    best epoch of both counts. There is no moving average of weights, pictures are normalised, and
    the backbone's first layers learn too. RandAugment's number and magnitude (2 and 9) and the grey
    of the cut-out square are our choice. An empty mask gives 0, the queue drops its oldest labels
    and keeps the last of too many, and a batch without positives gives 0: the released code fails
    in each case. [The query head](#mime) has no positions or dropout.
    """,
    examples=["digits --method lagc --lr 1e-3 --head-lr 1"],
)
@searched({"tau": 0.8}, tau=(0.6, 0.7, 0.8, 0.9), lam=(0.5, 1.0), lac=(0.1, 1.0))
class lagc(Method):  # noqa: N801  (methods are called by their names)
    """Label-aware global consistency: two views agree, embeddings cluster (Xie et al., 2022).

    A known negative is negative in both views and never enters the contrastive loss. The terms
    added to assume-negative are one number per batch, added to each entry before the reduction.

    Args:
        lam: weight of the consistency of two views.
        lac: weight of the contrastive loss.
        first: share of the epochs in the first stage, rounded to whole epochs.
        tau: probability from which an unknown label is a pseudo-positive in the first stage; below
            1 - tau it is a pseudo-negative.
        tau_second: the same in the second stage.
        temperature: temperature of the contrastive loss.
        queue: number of labels, past ones and the batch's, over which that loss is averaged.
        size: size of the embeddings in the contrastive loss, a projection of the head's.
        eps: added to probabilities inside the log of AN; None is the exact log.
    """

    needs = frozenset({"features", "views"})
    head = "query"
    vector_head = "query"

    def __init__(
        self,
        lam: float = 1.0,
        lac: float = 1.0,
        first: Share = 0.5,
        tau: Likely = 0.6,
        tau_second: Likely = 0.9,
        temperature: Above0 = 0.5,
        queue: Count0 = 512,
        size: int = 128,
        eps: Eps = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__()
        self.lam, self.lac, self.first, self.tau, self.tau_second = lam, lac, first, tau, tau_second
        self.assume_negative, self.reduction = an(eps, reduction="none"), reduction
        self.projection = Projection(size)
        self.queue = LabelQueue(size, queue, temperature)

    def prepare(self, features: Tensor) -> None:
        """Create the projection; reject features that are no embeddings of labels."""
        if features.ndim != 3:
            raise ValueError(
                "lagc compares embeddings of labels, which this head lacks; give --head query"
            )
        self.projection.create(features)

    def stage(self, epoch: int, epochs: int) -> tuple[int, int]:
        """The first stage, then the second, which starts from the best epoch of the first."""
        first = round(self.first * epochs)
        return (first, epochs) if epoch > first else (0, first)

    def entries(self, logits: Tensor, context: Context) -> Tensor:
        """Loss of each entry; features are the embeddings of both views."""
        observed, features, views = context.observed, context.features, context.views
        if features.shape[:2] != (2 * len(logits), logits.shape[1]):
            raise ValueError("lagc needs features of both views: embeddings of each label")
        second = context.epoch > round(self.first * context.epochs)
        tau = self.tau_second if second else self.tau
        present, sure = _pseudo_labels(context.logits, observed, tau)
        added = self.lam * _consistency(prepared(views, observed), present, sure)
        if second:
            embeddings = torch.stack(self.projection(features).chunk(2))
            added = added + self.lac * self.queue(embeddings, present)
        return self.assume_negative.entries(logits, context) + added


def _pseudo_labels(logits: Tensor, observed: Tensor, tau: float) -> tuple[Tensor, Tensor]:
    """Masks of the labels taken as present, and of those taken as present or absent."""
    q = torch.where(observed == 1, 1.0, torch.where(observed == -1, 0.0, logits.sigmoid()))
    present = q >= tau
    return present, present | (q < 1 - tau) | (observed == -1)


def _consistency(views: Tensor, present: Tensor, sure: Tensor) -> Tensor:
    """Mean cross-entropy of the confident entries; 0 if there are none."""
    entries = F.softplus(torch.where(present, -views, views))
    return torch.where(sure, entries, 0.0).sum() / sure.sum().clamp(min=1)
