"""Surrogate losses of one label, as functions of its logit: the L1, L2 and L3 of the framework.

Each is written for "label present", in log space, so that value and gradient are finite at any
logit. `Absent(term)` is the same loss for "label absent": 1 - p is the sigmoid of the negated
logit.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spml.losses.components import Context, Ramp, RampLike

CERTAIN = 1e4  # a logit whose sigmoid is 1 in every precision


class Term(nn.Module):
    """A loss of one label."""

    __call__: Callable[..., Tensor]

    def forward(self, logits: Tensor, context: Context) -> Tensor:
        """Loss of each entry."""
        raise NotImplementedError

    def absent(self, logits: Tensor, context: Context) -> Tensor:
        """The same loss for "label absent"."""
        return self(-logits, context)

    def formula(self, p: str = "p", rest: str = "(1 − p)") -> str:
        """Text for the docs: p is the probability of the label, rest that of its absence."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        """The formula, for logs."""
        return self.formula()


class Log(Term):
    """-log p, or with `eps` the published -log(p + eps), whose gradient vanishes at low logits."""

    def __init__(self, eps: float | None = None) -> None:
        super().__init__()
        self.eps = eps

    def forward(self, logits: Tensor, context: Context) -> Tensor:
        return -F.logsigmoid(logits) if not self.eps else -torch.log(logits.sigmoid() + self.eps)

    def absent(self, logits: Tensor, context: Context) -> Tensor:  # without a double negation
        return F.softplus(logits) if not self.eps else super().absent(logits, context)

    def formula(self, p: str = "p", rest: str = "(1 − p)") -> str:
        return f"−log {p}" if not self.eps else f"−log({p} + {self.eps:g})"


class GCE(Term):
    """(1 - p^q) / q: cross-entropy as q goes to 0, mean absolute error at q = 1.

    Args:
        q: robustness; may change over training and differ between classes.
        eps: for q = 0, the log with this constant added to p.
    """

    def __init__(self, q: RampLike, eps: float | None = None) -> None:
        super().__init__()
        self.q = q if isinstance(q, Ramp) else Ramp(q)
        self.q.require(lambda q: q >= 0, "q is 0 or more")
        self.log = Log(eps)

    def forward(self, logits: Tensor, context: Context) -> Tensor:
        q = self.q.at(context)
        if isinstance(q, Tensor):
            safe = torch.where(q == 0, 1, q)
            power = -torch.expm1(safe * F.logsigmoid(logits)) / safe
            return torch.where(q == 0, self.log(logits, context), power)
        if q == 0:
            return self.log(logits, context)
        if q == 1:
            return torch.sigmoid(-logits)
        return torch.expm1(F.logsigmoid(logits) * q) * (-1 / q)

    def absent(self, logits: Tensor, context: Context) -> Tensor:
        if self.q.constant == 0:
            return self.log.absent(logits, context)
        return logits.sigmoid() if self.q.constant == 1 else super().absent(logits, context)

    def formula(self, p: str = "p", rest: str = "(1 − p)") -> str:
        if self.q.constant == 0:
            return self.log.formula(p, rest)
        return rest if self.q.constant == 1 else f"(1 − {p}^q)/q, q = {self.q}"


class Focal(Term):
    """-(1 - p)^gamma log p of the logit minus a margin; `detach` stops the weight's gradient."""

    def __init__(self, gamma: float = 2.0, margin: float = 0.0, detach: bool = False) -> None:
        super().__init__()
        self.gamma, self.margin, self.detach = gamma, margin, detach

    def forward(self, logits: Tensor, context: Context) -> Tensor:
        lowered = logits - self.margin if self.margin else logits
        # Beyond CERTAIN the weight is 1 and its gradient 0, which a product with infinity is not.
        weight = torch.exp(self.gamma * F.logsigmoid((-lowered).clamp(max=CERTAIN)))
        return (weight.detach() if self.detach else weight) * F.softplus(-lowered)

    def formula(self, p: str = "p", rest: str = "(1 − p)") -> str:
        if self.margin:
            p, rest = f"σ(z − {self.margin:g})", f"σ({self.margin:g} − z)"
        power = "" if self.gamma == 1 else f"^{self.gamma:g}"
        return f"−{rest}{power} log {p}" if self.gamma else f"−log {p}"


class AsymmetricNegative(Term):
    """ASL's loss of an absent label: -p_m^gamma log(1 - p_m), with p_m = max(p - clip, 0)."""

    def __init__(self, gamma: float = 4.0, clip: float = 0.05, detach: bool = True) -> None:
        super().__init__()
        self.gamma, self.clip, self.detach = gamma, clip, detach

    def forward(self, logits: Tensor, context: Context) -> Tensor:
        most = 1 - torch.finfo(logits.dtype).eps  # if p is 1, rounding may lose a small clip
        shifted = (logits.sigmoid() - self.clip).clamp(0, most)
        weight = torch.where(shifted > 0, torch.where(shifted > 0, shifted, 1) ** self.gamma, 0.0)
        return -(weight.detach() if self.detach else weight) * torch.log1p(-shifted)

    def formula(self, p: str = "p", rest: str = "(1 − p)") -> str:
        return f"−m^{self.gamma:g} log(1 − m), m = max({p} − {self.clip:g}, 0)"


class Hill(Term):
    """(lam - p) p^2: a loss of an absent label that ignores likely missed positives, p near 1."""

    def __init__(self, lam: float = 1.5) -> None:
        super().__init__()
        self.lam = lam

    def forward(self, logits: Tensor, context: Context) -> Tensor:
        p = logits.sigmoid()
        return (self.lam - p) * p * p

    def formula(self, p: str = "p", rest: str = "(1 − p)") -> str:
        return f"({self.lam:g} − {p}) {p}²"


class NegativeEntropy(Term):
    """p log p + (1 - p) log(1 - p): smallest at p = 0.5, so it rewards uncertainty."""

    def __init__(self, eps: float | None = None) -> None:
        super().__init__()
        self.log = Log(eps)

    def forward(self, logits: Tensor, context: Context) -> Tensor:
        if not self.log.eps:
            # The loss is even in the logit, and negative logits avoid cancellation.
            z = -logits.abs()
            return z * z.sigmoid() - F.softplus(z)
        present = logits.sigmoid() * self.log(logits, context)
        return -(present + (-logits).sigmoid() * self.log(-logits, context))

    def formula(self, p: str = "p", rest: str = "(1 − p)") -> str:
        return f"{p} log {p} + {rest} log {rest}"


class Symmetric(Term):
    """alpha (-log p) + beta (-A) (1 - p): cross-entropy plus its reverse, with A for log 0."""

    def __init__(self, alpha: float = 0.1, beta: float = 1.0, A: float = -4.0) -> None:
        super().__init__()
        self.alpha, self.beta, self.A = alpha, beta, A

    def forward(self, logits: Tensor, context: Context) -> Tensor:
        return self.alpha * F.softplus(-logits) - self.beta * self.A * torch.sigmoid(-logits)

    def formula(self, p: str = "p", rest: str = "(1 − p)") -> str:
        return f"{self.alpha:g} (−log {p}) + {-self.A * self.beta:g} {rest}"


class Taylor(Term):
    """The first `order` terms of -log p around p = 1: the sum of (1 - p)^i / i."""

    def __init__(self, order: int = 2) -> None:
        super().__init__()
        self.order = order

    def forward(self, logits: Tensor, context: Context) -> Tensor:
        rest = torch.sigmoid(-logits)
        total = rest / self.order
        for i in range(self.order - 1, 0, -1):
            total = rest * (total + 1 / i)
        return total

    def formula(self, p: str = "p", rest: str = "(1 − p)") -> str:
        return " + ".join(f"{rest}^{i}/{i}" if i > 1 else rest for i in range(1, self.order + 1))


class Mixed(Term):
    """share times one term plus (1 - share) times another: a smoothed target."""

    def __init__(self, share: float, first: Term, second: Term) -> None:
        super().__init__()
        self.share, self.first, self.second = share, first, second

    def forward(self, logits: Tensor, context: Context) -> Tensor:
        first, second = self.first(logits, context), self.second(logits, context)
        return self.share * first + (1 - self.share) * second

    def formula(self, p: str = "p", rest: str = "(1 − p)") -> str:
        first, second = self.first.formula(p, rest), self.second.formula(p, rest)
        return f"{self.share:g} ({first}) + {1 - self.share:g} ({second})"


class Absent(Term):
    """A term for "label absent": the term of the negated logit."""

    def __init__(self, term: Term) -> None:
        super().__init__()
        self.term = term

    def forward(self, logits: Tensor, context: Context) -> Tensor:
        return self.term.absent(logits, context)

    def formula(self, p: str = "p", rest: str = "(1 − p)") -> str:
        return self.term.formula(rest, p)
