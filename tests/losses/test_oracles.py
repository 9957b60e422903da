"""Every loss against its published formula, written out entry by entry in plain Python."""

from collections.abc import Callable
from math import ceil, exp, log

import pytest
import torch

from spml import losses
from spml.losses.registry import factory

from .common import build, random_batch

Matrix = list[list[float]]
Oracle = Callable[..., Matrix]


def sigmoid(z):
    return 1 / (1 + exp(-z))


def entrywise(positive, unknown, negative):
    """A loss with independent entries, from its three cases as functions of the logit."""
    case = {1: positive, 0: unknown, -1: negative}
    return lambda z, s: [
        [case[label](logit) for logit, label in zip(*row, strict=True)]
        for row in zip(z, s, strict=True)
    ]


def log_p(z):
    return -log(sigmoid(z))


def log_rest(z):
    return -log(1 - sigmoid(z))


def an(eps=0.0):
    negative = lambda z: -log(1 - sigmoid(z) + eps)  # noqa: E731
    return entrywise(lambda z: -log(sigmoid(z) + eps), negative, negative)


def an_ls(smoothing):
    target = lambda t: lambda z: t * log_p(z) + (1 - t) * log_rest(z)  # noqa: E731
    return entrywise(target(1 - smoothing), target(smoothing), log_rest)


def wan(z, s):
    classes = len(z[0])
    return entrywise(log_p, lambda logit: log_rest(logit) / (classes - 1), log_rest)(z, s)


def epr(expected_positives):
    def oracle(z, s):
        count = sum(sigmoid(logit) for row in z for logit in row) / len(z)
        penalty = (count - expected_positives) ** 2 / len(z[0]) ** 2
        entries = entrywise(log_p, lambda logit: 0.0, log_rest)(z, s)
        return [[entry + penalty for entry in row] for row in entries]

    return oracle


def focal(gamma):
    negative = lambda z: sigmoid(z) ** gamma * log_rest(z)  # noqa: E731
    return entrywise(lambda z: (1 - sigmoid(z)) ** gamma * log_p(z), negative, negative)


def asl(gamma_neg, gamma_pos, clip):
    def negative(z):
        shifted = max(sigmoid(z) - clip, 0)
        return -(shifted**gamma_neg) * log(1 - shifted)

    return entrywise(lambda z: (1 - sigmoid(z)) ** gamma_pos * log_p(z), negative, negative)


def focal_margin(z, margin, gamma):
    return (1 - sigmoid(z - margin)) ** gamma * log_p(z - margin)


def hill(lam, positive):
    negative = lambda z: (lam - sigmoid(z)) * sigmoid(z) ** 2  # noqa: E731
    return entrywise(positive, negative, negative)


def splc(tau, active):
    negative = lambda z: sigmoid(z) ** 2 * log_rest(z)  # noqa: E731

    def unknown(z):
        return focal_margin(z, 0, 2) if active and sigmoid(z) > tau else negative(z)

    return entrywise(lambda z: focal_margin(z, 1, 2), unknown, negative)


def large_loss(rate, flip):
    def oracle(z, s):
        entries = an()(z, s)
        cells = [(i, c) for i in range(len(z)) for c in range(len(z[0]))]
        unknown = [(i, c) for i, c in cells if s[i][c] == 0]
        unknown.sort(key=lambda cell: -entries[cell[0]][cell[1]])
        for i, c in unknown[: ceil(round(len(cells) * rate, 9))]:
            entries[i][c] = log_p(z[i][c]) if flip else 0.0
        return entries

    return oracle


def em(alpha, eps=0.0):
    def unknown(z):
        p = sigmoid(z)
        return alpha * (p * log(p + eps) + (1 - p) * log(1 - p + eps))

    positive, negative = (lambda z, sign=sign: -log(sigmoid(sign * z) + eps) for sign in (1, -1))
    return entrywise(positive, unknown, negative)


def two_class(loss):
    """A loss of pi, the probability of the label as it stands; unknown labels stand as absent."""
    negative = lambda z: loss(1 - sigmoid(z))  # noqa: E731
    return entrywise(lambda z: loss(sigmoid(z)), negative, negative)


def gr(w, b, mu, sigma, q1, q2, q3):
    def unknown(z):
        p = sigmoid(z)
        k, v = 1 / (1 + exp(-(w * p + b))), exp(-((p - mu) ** 2) / (2 * sigma**2))
        return v * (k * (1 - p**q2) / q2 + (1 - k) * (1 - (1 - p) ** q3) / q3)

    positive = lambda z: (1 - sigmoid(z) ** q1) / q1 if q1 else log_p(z)  # noqa: E731
    return entrywise(positive, unknown, lambda z: (1 - (1 - sigmoid(z)) ** q3) / q3)


COCO = {"w": (0, 10), "b": (-2, -8), "mu": (0.5, 0.8), "sigma": (2, 0.5)}
CASES = [
    ("an", {}, {}, an()),
    ("an", {"eps": 1e-2}, {}, an(1e-2)),
    ("an_ls", {}, {}, an_ls(0.1)),
    ("an_ls", {"smoothing": 0.3}, {}, an_ls(0.3)),
    ("wan", {}, {}, wan),
    ("epr", {}, {}, epr(1.5)),
    ("epr", {"expected_positives": 3.0}, {}, epr(3.0)),
    ("focal", {}, {}, focal(2)),
    ("focal", {"gamma": 0.5}, {}, focal(0.5)),
    ("asl", {}, {}, asl(4, 1, 0.05)),
    ("asl", {"gamma_neg": 2, "gamma_pos": 0, "clip": 0.2}, {}, asl(2, 0, 0.2)),
    ("asl", {"gamma_neg": 3, "clip": 0}, {}, asl(3, 1, 0)),
    ("hill", {}, {}, hill(1.5, lambda z: focal_margin(z, 1, 2))),
    (
        "hill",
        {"lam": 1.2, "margin": 0.5, "gamma": 1},
        {},
        hill(1.2, lambda z: focal_margin(z, 0.5, 1)),
    ),
    ("hill", {"variant": "gr"}, {}, hill(1.5, log_p)),
    ("splc", {}, {"epoch": 1}, splc(0.6, active=False)),
    ("splc", {}, {"epoch": 2}, splc(0.6, active=True)),
    ("splc", {"tau": 0.9, "from_epoch": 1}, {"epoch": 1}, splc(0.9, active=True)),
    ("ll_r", {"delta": 0.1}, {"epoch": 1}, an()),
    ("ll_r", {"delta": 0.1}, {"epoch": 3}, large_loss(0.2, flip=False)),
    ("ll_ct", {"delta": 0.1}, {"epoch": 3}, large_loss(0.2, flip=True)),
    ("em", {}, {}, em(0.2)),
    ("em", {"alpha": 0.5, "eps": 1e-2}, {}, em(0.5, 1e-2)),
    ("gce", {}, {}, two_class(lambda pi: (1 - pi**0.7) / 0.7)),
    ("sce", {}, {}, two_class(lambda pi: -0.1 * log(pi) + 4 * (1 - pi))),
    (
        "sce",
        {"alpha": 2, "beta": 0.5, "A": -6},
        {},
        two_class(lambda pi: -2 * log(pi) + 3 * (1 - pi)),
    ),
    ("taylor_ce", {}, {}, two_class(lambda pi: (1 - pi) + (1 - pi) ** 2 / 2)),
    (
        "taylor_ce",
        {"order": 4},
        {},
        two_class(lambda pi: sum((1 - pi) ** i / i for i in range(1, 5))),
    ),
    ("gr", {}, {"epoch": 5, "epochs": 8}, gr(1.0, -2, 0.6875, 1.0625, 0, 0.01, 1)),
    (
        "gr",
        COCO | {"q3": 1.5, "q2": 0.3},
        {"epoch": 5, "epochs": 8},
        gr(5, -5, 0.6875, 1.0625, 0, 0.3, 1.5),
    ),
    (
        "gr",
        COCO | {"variant": "paper", "reduction": "mean"},
        {"epoch": 6, "epochs": 8},
        gr(7.5, -6.5, 0.725, 0.875, 0.01, 0.01, 1),
    ),
    ("gr", {"khat": False}, {"epoch": 5, "epochs": 8}, gr(0, -700, 0.6875, 1.0625, 0, 0.01, 1)),
    ("gr", {"v": False}, {"epoch": 5, "epochs": 8}, gr(1.0, -2, 0.5, 1e9, 0, 0.01, 1)),
    ("full", {}, {}, entrywise(log_p, lambda z: 0.0, log_rest)),
]


def test_every_loss_of_the_package_has_an_oracle():
    here = {name for name in losses.names() if factory(name).__module__.startswith("spml.losses.")}
    assert here == {name for name, *_ in CASES}


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    ("name", "options", "call", "oracle"),
    CASES,
    ids=[f"{i}-{case[0]}" for i, case in enumerate(CASES)],
)
def test_loss_is_its_formula(name, options, call, oracle, seed):
    logits, observed = random_batch(seed=seed)
    expected = torch.tensor(oracle(logits.tolist(), observed.tolist()), dtype=torch.float64)

    entries = build(name, observed, **options | {"reduction": "none"})(logits, observed, **call)
    torch.testing.assert_close(entries, expected, rtol=1e-9, atol=1e-12)
    mean = build(name, observed, **options)(logits, observed, **call)
    assert mean.item() == pytest.approx(expected.mean().item(), rel=1e-9)
