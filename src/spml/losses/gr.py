"""GR Loss: soft pseudo-labels, weights and robust losses that move together over training."""

from __future__ import annotations

from typing import Literal

from spml.losses.components import Constant, Gaussian, Logistic, Posterior
from spml.losses.context import RampLike
from spml.losses.search import searched
from spml.losses.terms import GCE, Absent
from spml.losses.unified import Part, Reduction, UnifiedLoss

Variant = Literal["official", "paper"]

# where the paper looked: b at the end, and the threshold tau = -b/w there; sigma and mu at the end
BETA = tuple(
    {"w": (0.0, round(-b / tau, 4)), "b": (-2.0, b)}
    for b in (-2.0, -5.0, -8.0)
    for tau in (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
)
ALPHA = tuple(
    {"mu": (0.5, mu), "sigma": (2.0, sigma)}
    for sigma in (0.1, 0.5, 1.0)
    for mu in (0.2, 0.4, 0.6, 0.8, 1.0)
)


@searched(
    {"w": (0.0, 10.0), "b": (-2.0, -8.0)},
    {"w": (0.0, 2.0), "b": (-2.0, -2.0)},
    beta=BETA,
    alpha=ALPHA,
)
def gr(
    variant: Variant = "official",
    q1: RampLike | None = None,
    q2: RampLike = 0.01,
    q3: RampLike = 1.0,
    w: RampLike = (0.0, 2.0),
    b: RampLike = (-2.0, -2.0),
    mu: RampLike = (0.5, 0.8),
    sigma: RampLike = (2.0, 0.5),
    a: RampLike | None = None,
    khat: bool = True,
    v: bool = True,
    eps: float | None = None,
    schedule: Variant | None = None,
    reduction: Reduction | None = None,
) -> UnifiedLoss:
    """Generalized Robust loss (Chen et al., 2024); the defaults are its values for VOC.

    w, b, mu, sigma and the qs each take a number, (start, end) over training, or one such value per class.

    Args:
        variant: sets the defaults of q1, schedule and reduction: "official", as its code runs (0, official, mean),
            or "paper", as written (0.01, paper, sum_classes).
        q1: robustness of the loss of observed positives; 0 is the log.
        q2: robustness of the loss of unknown labels taken as positive.
        q3: robustness of the loss of labels taken as negative.
        w: slope of the pseudo-label k_hat = sigmoid(w p + b).
        b: offset of the pseudo-label.
        mu: probability at which an unknown label counts most.
        sigma: how fast its weight falls off around mu.
        a: probability that a positive is observed; given, k_hat is (1 - a) p / (1 - a p) in place of the logistic.
        khat: False takes unknown labels as absent, k_hat = 0; a cross in the paper's ablation.
        v: False lets all unknown labels count alike, v = 1; a cross in the paper's ablation.
        eps: where q1 is 0, added to p inside the log, as in the code (1e-7); None is the exact log.
        schedule: "official": w and b have gone (epoch - 1) / epochs of their way, mu and sigma epoch / epochs;
            "paper": all have gone epoch / epochs. The qs go epoch / epochs in both.
        reduction: mean, sum, sum_classes or none.
    """
    official = variant == "official"
    lag = 1 if (schedule or variant) == "official" else 0
    soft: Part = Logistic(w, b, lag=lag) if a is None else Posterior(a)
    return UnifiedLoss(
        khat=soft if khat else Constant(0),
        weight=Gaussian(mu, sigma) if v else Constant(1),
        l1=GCE((0.0 if official else 0.01) if q1 is None else q1, eps),
        l2=GCE(q2),
        l3=Absent(GCE(q3)),
        reduction=reduction or ("mean" if official else "sum_classes"),
    )
