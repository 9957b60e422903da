"""CRISP: estimate the share of positives of each class and match predictions to it."""

from typing import Annotated, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from spml.losses.components import Context
from spml.losses.cross_entropy import RATES, an
from spml.losses.framework import Reduction
from spml.losses.metadata import Citation, Count0, Range, method, published, searched
from spml.methods.parts.labels import known_labels
from spml.methods.parts.passes import PassMethod
from spml.methods.parts.priors import estimate_priors

LEARNED = 0.5  # share of the loss of constant predictions at which the warm-up ends


@method(
    order=230,
    citation=Citation(
        "Liu et al.",
        "Can Class-Priors Help Single-Positive Multi-Label Learning?",
        "arXiv",
        2023,
        link="https://arxiv.org/abs/2309.13886",
        names="Biao Liu, Ning Xu, Jie Wang, Xin Geng",
    ),
    presets=[
        published(
            "Liu et al., CRISP; its training settings come from a search: the protocol's are used",
            tried={"lr": RATES, "weight_decay": RATES, "batch_size": (8, 16)},
            delta=0.01,
            tau=0.01,
            epochs=10,
        )
    ],
    notes=r"""
    **Idea.** The share of positives in each class is estimated in every epoch, from scores and
    observed positives alone. Then the model learns known positives, and a penalty keeps the mean
    prediction of each class at its share.

    **Loss.** First some epochs of `an`; then for each class, with the estimated share $\pi$ and
    $n$ observed positives,

    $$\frac{2\pi}{n}\sum_{s_i=1}(1-p_i)+\Bigl\lvert\frac1N\sum_i p_i-\pi\Bigr\rvert.$$

    $\pi$ is $\hat q(x)/\hat q_p(x)$, the share of all items scored $x$ or higher over that of
    observed positives, at the threshold $x$ that minimises this plus a bound on its error. The
    estimator alone is `spml.methods.parts.priors.estimate_priors`.

    **In the framework.** It does not fit: the second term depends on all items of a class.

    **Warm-up.** Shares estimated from a barely trained model are far too large, and those of a
    model that knows the observed positives by heart are too small. By default the warm-up ends when
    the loss of `an` on the training split has fallen to half of what constant predictions cost, at
    the latest after half of the epochs. `history.jsonl` has this ratio (`relative_loss`), the
    length (`warmup`) and the sum of the estimated shares (`positives`).

    **State and cost.** Three numbers for each class; during a pass a score (4 bytes) for each item
    and class. A pass over the training split after each epoch from the first, or from `warmup` if
    it is set, to the last but one, and a sort of each class's scores after the warm-up.

    **Differences.** No released code was found. The paper trains with a modified form (its Eq. 8,
    with a weight and logits in place of probabilities) that could not be read; this is its Eq. 7.
    In a batch the distance in the second term is biased, so a running mean (`momentum`) replaces
    it, and each pass resets it to the exact mean. Thresholds above the highest observed positive
    are ignored, classes without observed positives have no such term, and π is at most 1. The
    estimate assumes that every positive of a class is equally likely to be the observed one;
    drawing one of an item's positives violates that slightly.
    """,
    examples=["digits --method crisp --epochs 30", "digits --method crisp --set warmup=5"],
)
@searched({"warmup": 2}, warmup=(None, 2, 5, 10), momentum=(0.0, 0.5, 0.9))
class crisp(PassMethod):  # noqa: N801  (methods are called by their names)
    """Class-prior guided learning: match the mean prediction to the prior (Liu et al., 2024).

    The loss is Eq. 7 of the paper. In a batch an observed positive of a class with prior pi has
    weight 2 pi N / n_p, so the mean over items is an unbiased estimate of the first term. The
    second term uses a running mean of p: the batch's own mean is too noisy, and its distance from
    pi is biased. The running mean sets the sign and the batch mean the gradient. A known negative
    has loss p and no gradient from the second term.

    Args:
        warmup: epochs of assume-negative at the start; at least 1 unless priors are given. None
            ends it when their loss is half of that of constant predictions, at the latest after
            half of the epochs.
        positive_weight: weight of the observed positives; 2 in Eq. 7.
        prior_weight: weight of the mean's distance from the prior; 1 in Eq. 7.
        momentum: weight of the old value in the running mean; near 1 it lags behind the model,
            which then oscillates around the prior. Each pass resets the mean to that over all
            items.
        delta: probability that the bound of the prior estimate fails.
        tau: slack of the bound of the prior estimate.
        priors: share of positives of each class, if it is known; nan excludes a class.
        reduction: mean, sum, sum_classes (the risk above) or none.
    """

    needs = frozenset({"items", "pass"})
    priors: Tensor
    running: Tensor
    per_positive: Tensor

    def __init__(
        self,
        warmup: Count0 | None = None,
        positive_weight: float = 2.0,
        prior_weight: float = 1.0,
        momentum: Annotated[float, Range(0, 1, "[)")] = 0.5,
        delta: float = 0.01,
        tau: float = 0.01,
        priors: Any = None,
        reduction: Reduction = "mean",
        *,
        items: int,
        classes: int,
        observed: Any,
    ) -> None:
        super().__init__()
        self.fixed_priors = priors is not None
        if warmup == 0 and not self.fixed_priors:
            raise ValueError("warmup must be at least 1 if priors are estimated, not 0")
        self.chosen, self.warmup = warmup, warmup or 1
        self.ratios: list[float] = []  # of the loss to that of constants, after each epoch
        self.momentum, self.reduction = momentum, reduction
        self.positive_weight, self.prior_weight = positive_weight, prior_weight
        self.delta, self.tau, self.items, self.observed = delta, tau, items, observed
        self.assume_negative = an(reduction="none")
        counts = (known_labels(observed, items, classes) == 1).sum(dim=0)
        counts = counts.to(torch.get_default_dtype())
        per_positive = torch.where(counts > 0, items / counts, 0.0)
        none = torch.full((classes,), torch.nan)
        self.register_buffer("per_positive", per_positive, persistent=False)
        self.register_buffer("priors", none if priors is None else _checked(priors, classes))
        self.register_buffer("running", none.clone())  # mean p of each class

    @classmethod
    def memory(cls, items: int, classes: int, **options: Any) -> int:
        """Three numbers for each class, and during a pass a score for every label."""
        scores = 4 * items * classes if options.get("priors") is None else 0
        return 12 * classes + scores

    def entries(self, logits: Tensor, context: Context) -> Tensor:
        """Loss of each entry; assume-negative during the warm-up."""
        if context.epoch <= self.warmup_epochs(context.epochs):
            return self.assume_negative.entries(logits, context)
        observed = context.observed
        counted = self.priors.isfinite() & (self.per_positive > 0)
        priors = torch.where(counted, self.priors, 0.0).to(logits.dtype)
        p, absent = logits.sigmoid(), observed == -1
        mean = self._mean(torch.where(absent, p.detach(), p).mean(dim=0))
        positive = self.positive_weight * priors * self.per_positive * torch.sigmoid(-logits)
        entries = torch.where(observed == 1, positive, torch.where(absent, p, 0.0))
        distance = torch.where(counted, (mean - priors).abs(), 0.0)
        return entries + self.prior_weight * distance

    def _mean(self, batch: Tensor) -> Tensor:
        """Update the running mean with this batch; the gradient is that of the batch's mean."""
        now = batch.detach()
        past = torch.where(self.running.isnan(), now, self.running.to(now.dtype))
        mean = torch.lerp(now, past, self.momentum)
        if self.training:
            self.running = mean.to(self.running.dtype)
        return mean + (batch - now)

    def warmup_epochs(self, epochs: int) -> int:
        """Length of the warm-up, as far as it is known."""
        if self.chosen is not None:
            return self.chosen
        latest = max(epochs // 2, 1)
        enough = (epoch for epoch, ratio in enumerate(self.ratios, 1) if ratio <= LEARNED)
        return min(next(enough, latest), latest)

    def wants_pass(self, epoch: int, epochs: int) -> bool:
        """From the end of the warm-up, or the first epoch, on, unless priors are given."""
        return not self.fixed_priors and super().wants_pass(epoch, epochs)

    def use_scores(self, scores: Tensor, epoch: int, epochs: int) -> None:
        """After the warm-up, estimate the priors and set the running mean to that of all items."""
        labels = known_labels(self.observed, self.items, len(self.priors))
        if self.chosen is None and len(self.ratios) < epoch <= self.warmup_epochs(epochs):
            self.ratios.append(_relative_loss(scores.cpu(), labels))
        if epoch < self.warmup_epochs(epochs):
            return
        self.priors = estimate_priors(scores, labels, self.delta, self.tau).to(self.priors)
        self.running = scores.cpu().sigmoid().mean(dim=0).to(self.running)

    def record(self, epoch: int, epochs: int) -> dict[str, float]:
        """The loss in a warm-up of free length; after it, its length and the sum of the priors."""
        ended = self.warmup_epochs(epochs)
        if self.chosen is not None or not self.wants_pass(epoch, epochs):
            return {}
        ratio = {"relative_loss": self.ratios[epoch - 1]} if epoch <= len(self.ratios) else {}
        sums = {"warmup": ended, "positives": float(self.priors.nansum())}
        return ratio | (sums if ended <= epoch else {})

    def carry_over(self) -> None:
        """Warm up again."""
        self.ratios = []

    def get_extra_state(self) -> Tensor:
        return torch.tensor(self.ratios, dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
        self.ratios = state.tolist()


def _relative_loss(scores: Tensor, labels: Tensor) -> float:
    """Loss of assume-negative, divided by that of the share of observed positives of each class."""
    positive = labels == 1
    share = positive.double().mean(dim=0)
    constant = -(torch.xlogy(share, share) + torch.xlogy(1 - share, 1 - share)).mean()
    loss = F.softplus(torch.where(positive, -scores, scores)).double().mean()
    return float(loss / constant.clamp(min=1e-12))


def _checked(priors: Any, classes: int) -> Tensor:
    try:
        values = torch.as_tensor(priors, dtype=torch.float32).clone()
        share = (values > 0) & (values <= 1) | values.isnan()
        if values.shape == (classes,) and bool(share.all()):
            return values
    except (TypeError, ValueError):
        pass
    raise ValueError(f"priors are {classes} shares above 0 and up to 1, not {priors}")
