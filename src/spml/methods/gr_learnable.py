"""GR Loss whose pseudo-labels and weights are learned by gradient descent instead of a schedule."""

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spml.losses.components import Component, Context, Gaussian, Ramp, RampLike
from spml.losses.framework import Reduction, UnifiedLoss
from spml.losses.gr import CHEN, CHEN_CODE, PRESETS, Variant, robust_terms
from spml.losses.metadata import Eps, Weight, method, published, searched

Constraint = Literal["class", "batch", "none"]


@method(
    order=220,
    citation=CHEN,
    presets=[
        *PRESETS,
        published(CHEN_CODE, w=0.0, b=-2.0, own_lr=0.1, own_momentum=0.9, own_decay=1e-3),
    ],
    notes=r"""
    **Idea.** GR Loss whose $\hat k$ and $v$ are learned by gradient descent instead of following a
    schedule. It is the last row of the paper's ablation, where it is worse than the schedule (89.03
    against 89.83 on VOC, 71.84 against 73.17 on COCO).

    **Loss.** That of `gr`, with $w_c,b_c$ for each class and, with `learn_alpha`, $\mu_c$ and
    $\sigma_c=\sigma_{\min}+\mathrm{softplus}(\cdot)$; all trained by the loss itself with their own
    SGD optimiser. A learned $v$ is divided by its mean over the unknown entries of the class in the
    batch (`constraint="class"`).

    **In the framework.** $\hat k$ and $v$ are parts with parameters; $p$ is detached in them as
    everywhere.

    **State and cost.** Four numbers for each class and their momentum: 32 bytes per class, nothing
    per item.

    **Differences.** Without a constraint, learning $v$ has one outcome, $v\to0$: every entry costs
    less with less weight. The paper learns both and does not explain what prevents it;
    `constraint="none"` is the paper's literal form. Its code learns $w$ and $b$ alone
    (`learn_alpha=false`), and that code path stops with an error before training. Learned by
    descent, $\hat k$ falls for low $p$ and rises for high $p$, and so sharpens into a threshold
    where $L_2=L_3$.
    """,
    examples=["digits --method gr_learnable --set learn_alpha=false"],
)
@searched(
    {"learn_alpha": False}, learn_alpha=(True, False), own_lr=(0.01, 0.1), own_decay=(0.0, 1e-3)
)
class gr_learnable(UnifiedLoss):  # noqa: N801  (methods are called by their names)
    """Generalized Robust loss with learned k_hat and v, a paper ablation (Chen et al., 2024).

    Without learn_alpha, v follows gr's schedule: mu and sigma have covered epoch / epochs of their
    range. A learned v is divided by its mean over the batch's unknown entries of the class: it
    shifts weight between the entries of a class without reducing the class's total. And sigma stays
    above sigma_min, so the weight cannot concentrate on one entry.

    Args:
        learn_alpha: whether mu and sigma are learned too, as in the paper.
        constraint: entries over which a learned v has mean 1: the unknown ones of each "class" of
            the batch; of the whole "batch", where classes with large losses lose weight to others;
            or "none", the paper's literal form.
        variant: sets the defaults of q1 and reduction as in gr: "official" (0, mean) or "paper"
            (0.01, sum_classes).
        q1: robustness of the loss of observed positives; 0 is the log.
        q2: robustness of the loss of unknown labels taken as positive.
        q3: robustness of the loss of labels taken as negative.
        w: initial slope of the pseudo-label; a number, or one per class.
        b: initial offset of the pseudo-label; a number, or one per class.
        mu: probability at which an unknown label counts most; (start, end): a learned mu begins at
            the start.
        sigma: width of the weight around mu; as mu.
        sigma_min: lower bound of a learned sigma; the smallest sigma that the paper tried.
        own_lr: learning rate of the learned parameters, which have their own SGD optimiser.
        own_momentum: its momentum.
        own_decay: its weight decay; it pulls w, b and mu to 0, and sigma to sigma_min + log 2.
        eps: if q1 is 0, added to p inside the log, as in the code (1e-7); None is the exact log.
        reduction: mean, sum, sum_classes or none.
    """

    needs = frozenset({"items"})

    def __init__(
        self,
        learn_alpha: bool = True,
        constraint: Constraint = "class",
        variant: Variant = "official",
        q1: RampLike | None = None,
        q2: RampLike = 0.01,
        q3: RampLike = 1.0,
        w: Any = 0.0,
        b: Any = -2.0,
        mu: RampLike = (0.5, 0.8),
        sigma: RampLike = (2.0, 0.5),
        sigma_min: Weight = 0.1,
        own_lr: float = 0.1,
        own_momentum: float = 0.9,
        own_decay: float = 1e-3,
        eps: Eps = None,
        reduction: Reduction | None = None,
        *,
        classes: int,
        items: int | None = None,
        observed: Any = None,
    ) -> None:
        learned = learn_alpha and LearnedGaussian(mu, sigma, classes, sigma_min, constraint)
        super().__init__(
            khat=LearnedLogistic(w, b, classes),
            weight=learned or Gaussian(mu, sigma),
            **robust_terms(variant, q1, q2, q3, eps, reduction),
        )
        self.sgd: dict[str, Any] = {
            "lr": own_lr,
            "momentum": own_momentum,
            "weight_decay": own_decay,
        }

    @classmethod
    def memory(cls, items: int, classes: int, **options: Any) -> int:
        """w, b and, if learned, mu and sigma of each class, and the momentum of each."""
        learned = 4 if options.get("learn_alpha", True) else 2
        return 4 * learned * classes * (2 if options.get("own_momentum", 0.9) else 1)

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """Empty, because its parameters have their own optimiser."""
        return []

    def optimizer(self) -> torch.optim.Optimizer:
        """SGD over the learned parameters."""
        return torch.optim.SGD(self.parameters(), **self.sgd)


class LearnedLogistic(Component):
    """Soft pseudo-labels sigmoid(w p + b) with learned w and b for each class."""

    formula = "1/(1 + exp(−(w p + b))), w and b learned per class"

    def __init__(self, w: Any, b: Any, classes: int) -> None:
        super().__init__()
        self.w, self.b = _per_class("w", w, classes), _per_class("b", b, classes)

    def forward(self, p: Tensor, context: Context) -> Tensor:
        """Probability that each entry is positive."""
        return torch.sigmoid(p * self.w + self.b).to(p.dtype)


class LearnedGaussian(Component):
    """exp(-(p - mu)^2 / (2 sigma^2)) with learned mu and sigma = floor + softplus(width) per class.

    They begin at the starts of the ramps. The constraint names the unknown entries with mean 1.
    """

    def __init__(
        self, mu: RampLike, sigma: RampLike, classes: int, floor: float, constraint: Constraint
    ) -> None:
        super().__init__()
        start = torch.as_tensor(Ramp(sigma).start, dtype=torch.float64) - floor
        if not bool((start > 0).all()):
            raise ValueError(f"sigma starts at {sigma}, which must be above sigma_min = {floor}")
        self.floor, self.constraint = floor, constraint
        self.mu = _per_class("mu", Ramp(mu).start, classes)
        self.width = _per_class("sigma", start + torch.log(-torch.expm1(-start)), classes)
        mean = f", divided by its mean over the unknown of the {constraint}"
        mean = "" if constraint == "none" else mean
        self.formula = f"exp(−(p − μ)²/(2σ²)){mean}, μ and σ learned per class"

    @property
    def sigma(self) -> Tensor:
        """Width of each class."""
        return self.floor + F.softplus(self.width)

    def forward(self, p: Tensor, context: Context) -> Tensor:
        """Weight of each entry."""
        exponent = (p - self.mu).square() * (-0.5 / self.sigma.square())
        if self.constraint == "none":
            return exponent.exp().to(p.dtype)
        unknown = context.observed == 0
        over = (0,) if self.constraint == "class" else (0, 1)
        top = exponent.detach().masked_fill(~unknown, -torch.inf).amax(dim=over, keepdim=True)
        # A common factor of v cancels in the division by the mean.
        exponent = exponent - torch.where(top.isfinite(), top, 0.0)
        v = torch.where(unknown, exponent, -torch.inf).exp()
        total, count = v.sum(dim=over, keepdim=True), unknown.sum(dim=over, keepdim=True)
        return (v * (count / torch.where(count > 0, total, 1.0))).to(p.dtype)


def _per_class(name: str, value: Any, classes: int) -> nn.Parameter:
    try:
        return nn.Parameter(torch.as_tensor(value, dtype=torch.float32).expand(classes).clone())
    except (TypeError, ValueError, RuntimeError) as error:
        expected = f"a number, or one for each of {classes} classes"
        raise ValueError(f"the start of {name} is {expected}, not {value!r}") from error
