"""ROLE: the labels are learned together with the classifier."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from spml.losses.components import Context
from spml.losses.cross_entropy import (
    AS_PUBLISHED,
    COLE,
    COLE_CODE,
    COLE_TRAINING,
    EXPECTED_POSITIVES,
    ExpectedPositives,
)
from spml.losses.framework import Method, Reduction
from spml.losses.metadata import Above0, Eps, Weight, method, published, searched
from spml.losses.terms import Log
from spml.methods.parts.labels import check_fit, known_labels

UNKNOWN = torch.logit(torch.tensor(0.6)).item()  # unknown labels start uniform in ± this logit
KNOWN = torch.logit(torch.tensor(0.995)).item()  # known labels start at ± this logit
LEAST = 1e-5  # initial and carried-over probabilities are clamped to LEAST..1 - LEAST, as published


@method(
    order=50,
    table2=9,
    citation=COLE,
    presets=[
        COLE_TRAINING,
        *EXPECTED_POSITIVES,
        published(COLE_CODE, linear_lr=1e-3),
        published(COLE_CODE, "voc", "coco", "nuswide", linear_batch_size=16),
        published(COLE_CODE, "cub", linear_batch_size=8),
    ],
    notes=r"""
    **Idea.** Regularised online label estimation: each label of the training split is a parameter.
    Classifier and labels are trained together, each with the other's prediction as its target, both
    regularised towards the expected number of positives.

    **Loss.** With $\theta$ the estimated labels of the batch's items,
    $\mathrm{CE}(t,a)=-t\log a-(1-t)\log(1-a)$ over all entries, $\mathrm{pos}$ the loss of known
    labels and $R$ as in `epr`:

    $$\tfrac12\bigl[\mathrm{pos}(p)+\mathrm{CE}(\bar\theta,p)+R(p)\bigr]
    +\tfrac12\bigl[\mathrm{pos}(\theta)+\mathrm{CE}(\bar p,\theta)+R(\theta)\bigr].$$

    $\theta$ starts uniform in 0.4 to 0.6, at 0.995 for known positives and 0.005 for known
    negatives.

    **In the framework.** It does not fit: the target of an unknown label is a learned parameter,
    not a function of $p$.

    **State and cost.** A logit for every label and Adam's two moments: 12 bytes per item and class,
    and 4 more for the gradient during a step. Adam updates all of them in every step, because
    momentum also moves those outside the batch, so the time of a step is proportional to $NC$. A
    sparse optimiser would be another algorithm.

    **Differences.** Released code has ε = 1e-5. It trains the classifier with one learning rate and
    $\theta$ ten times as fast, which is `--head-lr 1 --set label_lr=10`; by default $\theta$ learns
    like the head, `--head-lr` (10) times as fast as the backbone. The GR Loss paper's row is `role`
    after LinearInit on VOC and COCO, but plain `role` on NUS-WIDE and CUB.
    """,
    examples=[
        "voc --method role --head-lr 1 --set label_lr=10",
        "voc --method role --linear-init 25 --linear-lr 1e-3 --linear-batch-size 16",
    ],
)
@searched(AS_PUBLISHED, label_lr=(1.0, 3.0, 10.0))
class role(Method):  # noqa: N801  (methods are called by their names)
    """Regularised online label estimation: learn classifier and labels (Cole et al., 2021).

    Args:
        expected_positives: mean number of positive labels per item, from another source.
        eps: added to probabilities inside the log, as published (1e-5); None is the exact log.
        label_lr: learning rate of the estimated labels, as a multiple of the head's.
        estimated: initial label probabilities (items, classes) instead of random ones.
    """

    needs = frozenset({"items", "index"})

    def __init__(
        self,
        expected_positives: Weight = 1.5,
        eps: Eps = None,
        reduction: Reduction = "mean",
        label_lr: Above0 = 1.0,
        estimated: Any = None,
        *,
        items: int,
        classes: int,
        observed: Any,
    ) -> None:
        super().__init__()
        self.log, self.reduction, self.label_lr = Log(eps), reduction, label_lr
        self.regulariser = ExpectedPositives(expected_positives)
        if estimated is not None:
            initial = torch.as_tensor(estimated, dtype=torch.float64)
            if not bool(((initial >= 0) & (initial <= 1)).all()):
                raise ValueError("estimated holds values that are not probabilities, from 0 to 1")
            check_fit("estimated", initial.shape, items, classes)
            start = torch.logit(initial, eps=LEAST)
        else:
            start = torch.empty(items, classes).uniform_(-UNKNOWN, UNKNOWN)
            known = known_labels(observed, items, classes)
            start = torch.where(known == 0, start, known.to(start.dtype) * KNOWN)
        self.label_logits = nn.Parameter(start)

    @classmethod
    def memory(cls, items: int, classes: int, **options: Any) -> int:
        """A logit for every label and its two moments in Adam."""
        number = 4 if options.get("estimated") is None else 8  # float32, or float64 if estimated
        return 3 * number * items * classes

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """The estimated labels, at their multiple of the head's learning rate."""
        return [{"params": [self.label_logits], "lr": lr * self.label_lr}]

    def entries(self, logits: Tensor, context: Context) -> Tensor:
        """Loss of each entry: half for the classifier, half for the labels."""
        labels = self.label_logits[context.index].to(logits.dtype)
        classifier = self._half(logits, labels.detach(), context)
        return (classifier + self._half(labels, context.logits, context)) / 2

    @torch.no_grad()
    def carry_over(self) -> None:
        """Clamp the learned labels' probabilities away from 0 and 1."""
        most = math.log((1 - LEAST) / LEAST)
        self.label_logits.clamp_(-most, most)

    def _half(self, learner: Tensor, teacher: Tensor, context: Context) -> Tensor:
        """Entries of one side: known labels, the other side's prediction, expected positives."""
        present, absent = self.log(learner, context), self.log.absent(learner, context)
        negative = torch.where(context.observed == -1, absent, 0)
        known = torch.where(context.observed == 1, present, negative)
        agreement = torch.lerp(absent, present, teacher.sigmoid())
        entries: Tensor = known + agreement + self.regulariser(learner.sigmoid())
        return entries
