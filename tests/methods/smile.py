"""Helpers of the tests of SMILE: both forms with fixed parameters, and their terms by hand."""

import math

import torch

from spml import losses

ITEMS, FEATURES, CLASSES = 12, 5, 4
INDEX = torch.tensor([3, 0, 7, 11, 8, 2])
TABLE = {"mu": 0.3, "pi0": 0.07, "rate": 0.4, "gamma": 0.2, "delta": 0.6, "temperature": 1.7}
IMAGE = {"alpha": 0.3, "beta": 0.2, "theta": 0.7, "lam": 0.4, "kl_embedding": 0.05, "kl_beta": 0.06}


def features(items=ITEMS, width=FEATURES, seed=0):
    return (
        torch.randn(
            items, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
        )
        * 2
        + 1
    )


def table_form(observed=None, items=ITEMS, classes=CLASSES, **options):
    """Build the form for feature vectors in float64 with fixed parameters."""
    torch.manual_seed(0)
    observed = torch.zeros(items, classes) if observed is None else observed
    data = {"items": items, "classes": classes, "observed": observed}
    return losses.create("smile", x=options.pop("x", features(items)), **data, **options).double()


def image_form(items=ITEMS, classes=CLASSES, size=3, **options):
    data = {"items": items, "classes": classes, "observed": torch.zeros(items, classes)}
    method = losses.create("smile", **data, **options)
    torch.manual_seed(0)
    method.prepare(torch.zeros(1, classes, 2 * size + 1))
    return method.double()


def softplus(z):
    return max(z, 0) + math.log1p(math.exp(-abs(z)))


def sigmoid(z):
    return 1 / (1 + math.exp(-z))


def an(z, s):
    return softplus(-z) if s == 1 else softplus(z)


def soft(z, target):
    return target * softplus(-z) + (1 - target) * softplus(z)


def layer(linear, vector):
    weight, bias = linear.weight.tolist(), linear.bias.tolist()
    return [
        sum(w * x for w, x in zip(row, vector, strict=True)) + b
        for row, b in zip(weight, bias, strict=True)
    ]


def relu(vector):
    return [max(value, 0.0) for value in vector]


def kl(a, b):
    def digamma(x):
        return torch.digamma(torch.tensor(x, dtype=torch.float64)).item()

    logs = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    return logs + (a - 1) * digamma(a) + (b - 1) * digamma(b) - (a + b - 2) * digamma(a + b)
