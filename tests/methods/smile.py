"""Helpers of the tests of SMILE: both forms with fixed parameters, and terms of their losses."""

import torch
import torch.nn.functional as F
from torch.distributions import Beta, kl_divergence

from tests.losses.common import create

ITEMS, FEATURES, CLASSES = 12, 5, 4
INDEX = torch.tensor([3, 0, 7, 11, 8, 2])
TABLE = {"mu": 0.3, "pi0": 0.07, "rate": 0.4, "gamma": 0.2, "delta": 0.6, "temperature": 1.7}
IMAGE = {"alpha": 0.3, "beta": 0.2, "theta": 0.7, "lam": 0.4, "kl_embedding": 0.05, "kl_beta": 0.06}


def features(items=ITEMS, width=FEATURES, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(items, width, generator=generator, dtype=torch.float64) * 2 + 1


def table_form(observed=None, items=ITEMS, classes=CLASSES, **options):
    """Build the form for feature vectors in float64 with fixed parameters."""
    observed = torch.zeros(items, classes) if observed is None else observed
    return create("smile", observed, **{"x": features(items), **options}).double()


def image_form(items=ITEMS, classes=CLASSES, width=8, **options):
    """Build the form for pictures; a width that is odd is that of a query-normal head."""
    method = create("smile", torch.zeros(items, classes), **{"size": 3, **options})
    torch.manual_seed(0)
    method.prepare(torch.zeros(1, classes, width))
    return method.double()


def an(z, s):
    """Assume negative of each entry."""
    return F.softplus(torch.where(s == 1, -z, z))


def soft(z, target):
    """Cross-entropy of each entry with a soft target."""
    return target * F.softplus(-z) + (1 - target) * F.softplus(z)


def kl(a, b):
    """Divergence of Beta(a, b) from the uniform distribution."""
    return kl_divergence(Beta(a, b), Beta(torch.ones_like(a), torch.ones_like(b)))
