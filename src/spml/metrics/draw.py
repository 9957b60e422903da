"""Likelihood of the draw: what one observed positive per item says about the unknown labels.

One positive of an item's labels Y is drawn uniformly and observed. If class c is present with
probability p_c, independently of the others given the scores, the chance that c is drawn is

    p_c E[1 / (1 + number of other positives)] / (1 - prod_j (1 - p_j))

where the denominator excludes items without positives, which cannot be observed. The expectation is
the integral over t from 0 to 1 of prod_{j != c} (1 - p_j + p_j t), a polynomial, which
Gauss-Legendre nodes integrate. With p_c = sigmoid(slope z_c + shift_c), fitting the slope and the
shifts to the observed draws needs no other label. A known negative has p_j = 0, and m observed
positives are a draw of m.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spml.errors import UserError
from spml.metrics.scores import Labels, Values, blocks, scores_and_labels, sigmoid

Array = npt.NDArray[np.float64]

NODES = 16  # exact for up to 31 other positives of an item, close for more
SLOPE_SD = 1.0  # of the logarithm of the slope, around 0: logits are nearly of the right scale
LEVEL_SD = 3.0  # of the shift that all classes share, around 0
CLASS_SD = 1.0  # of each class's own shift, around the shared one
LIMIT = 8.0  # of the logarithm of the slope
TOLERATED = 0.05
GIVEN_SD = 0.003  # tolerance of a number of positives set by the user


@dataclass(frozen=True, eq=False)
class Draw:
    """Likelihood of a draw and the chances of labels after it.

    Attributes:
        log_likelihood: log likelihood of each item's observed positives.
        present: chance of each label, given that the item has a positive.
        seen: chance of each label, given also which of its positives were observed.
    """

    log_likelihood: Array
    present: Array
    seen: Array


@dataclass(frozen=True, eq=False)
class DrawFit:
    """The scale of logits on which the observed draws are most likely.

    Attributes:
        slope: factor of all logits.
        shifts: shift of each class.
        scores: each item's gradient by (log slope, shared shift, own shifts), for resampling items.
        information: information matrix of these parameters with their prior; its inverse is their
            covariance.
        rows: rows with an observed positive, which the fit used.
    """

    slope: float
    shifts: Array
    scores: Array
    information: Array
    rows: npt.NDArray[np.int64]

    def logits(self, logits: Values) -> Array:
        """Logits whose sigmoid is the chance of a label, not conditioned on the item having one."""
        return self.slope * np.asarray(logits, np.float64) + self.shifts


def draw(logits: Array, observed: Labels) -> Draw:
    """Likelihood of the observed labels and the chance of each label.

    Args:
        logits: (items, classes), calibrated: their sigmoid is the chance of a label.
        observed: 1 known positive, 0 unknown, -1 known negative; each item needs a positive.
    """
    rows = blocks(max(len(logits), 1), logits.shape[1])
    parts = [_draw(logits[some], observed[some]) for some in rows]
    return Draw(*map(np.concatenate, zip(*parts, strict=True)))


def drawn_chance(logits: Array) -> Array:
    """Chance that each class is the one drawn from its item, before observation; rows sum to 1."""
    chances = np.zeros(logits.shape)
    for rows in blocks(*logits.shape):
        p = sigmoid(logits[rows])
        for node, share in zip(*_nodes(), strict=True):
            factors = 1 - p * (1 - node)
            none_drawn = np.exp(np.log(factors).sum(axis=1, keepdims=True))
            chances[rows] += share * p / factors * none_drawn
    return np.asarray(chances / np.maximum(chances.sum(axis=1, keepdims=True), 1e-300))


def _nodes() -> tuple[Array, Array]:
    """Places from 0 to 1 and weights of the quadrature."""
    t, weight = np.polynomial.legendre.leggauss(NODES)
    return (t + 1) / 2, weight / 2


def _draw(z: Array, observed: Labels) -> tuple[Array, Array, Array]:
    """The fields of `Draw` for a block of items."""
    positive, open_ = observed == 1, observed == 0
    p = np.where(observed == -1, 0.0, sigmoid(z))
    drawn = positive.sum(axis=1)
    t, weight = _nodes()
    others = np.where(open_, p, 0.0)
    # log of prod over the unknown labels of (1 - p + p t), for each node
    logs = np.stack([np.log1p(-others * (1 - node)).sum(axis=1) for node in t], axis=1)
    logs += np.log(weight) + (drawn[:, None] - 1) * np.log1p(-t)
    highest = logs.max(axis=1, keepdims=True)
    shares = np.exp(logs - highest)
    whole = shares.sum(axis=1, keepdims=True)
    shares /= whole
    seen = np.where(positive, 1.0, 0.0)
    for k, node in enumerate(t):
        seen += shares[:, k : k + 1] * (others * node / (1 - others * (1 - node)))
    some = np.maximum(-np.expm1(_log_absent(z, observed)), 1e-300)
    log_p = np.where(positive, -np.logaddexp(0, -z), 0.0).sum(axis=1)
    likelihood = log_p + np.log(drawn) + highest[:, 0] + np.log(whole[:, 0]) - np.log(some)
    return likelihood, np.minimum(p / some[:, None], 1.0), seen


def _log_absent(z: Array, observed: Labels) -> Array:
    """Log of the chance that an item has no positive."""
    return np.asarray(np.where(observed == -1, 0.0, -np.logaddexp(0, z)).sum(axis=1))


def fit_draw(logits: Values, observed: Values, *, positives: float | None = None) -> DrawFit:
    """The slope and shifts under which the observed draws are most likely.

    Args:
        logits: scores of (items, classes) of items that were not used in training.
        observed: 1 known positive, 0 unknown, -1 known negative. Items without a positive are left
            out.
        positives: mean number of positives of an item if it is known; otherwise it is fitted too.
    """
    scores, labels = scores_and_labels(logits, observed, "observed")
    rows = np.flatnonzero((labels == 1).any(axis=1))
    if not len(rows):
        raise UserError(
            "no item has an observed positive, so nothing can be estimated; give labels with some"
        )
    z, labels = np.clip(scores[rows].astype(np.float64), -1e6, 1e6), labels[rows]
    if z.shape[1] < 2:
        raise UserError(
            "with one class every observed item has it, so the number of others is unknown"
        )
    if positives is not None and not 1 <= positives <= z.shape[1]:
        limits = f"from 1 to the number of classes, {z.shape[1]}"
        raise UserError(f"positives per item must be {limits}, not {positives:g}")
    fitted = _fit(z, labels, np.zeros(2 + z.shape[1]), None)
    if positives is not None:
        fitted = _fit(z, labels, fitted, positives)
        mean = draw(_moved(z, fitted), labels).present.sum(axis=1).mean()
        if abs(mean - positives) > TOLERATED:
            cannot = f"these scores cannot mean {positives:g} positives per item"
            raise UserError(f"{cannot}; the nearest is {mean:.2f}")
    moved = _moved(z, fitted)
    chances = draw(moved, labels)
    pulls = _by_parameter(z, fitted, chances.seen - chances.present)
    information = pulls.T @ pulls + np.diag(_precision(z.shape[1]))
    if positives is not None:
        # a resample has this number of positives too, so its own change of the number is undone
        number = chances.present.sum(axis=1)
        moves = _by_parameter(z, fitted, _per_logit(moved, labels, chances.present)).mean(axis=0)
        pulls -= np.outer(number - positives, moves) / (len(z) * GIVEN_SD**2)
        information += np.outer(moves, moves) / GIVEN_SD**2
    return DrawFit(float(np.exp(fitted[0])), fitted[1] + fitted[2:], pulls, information, rows)


def _precision(classes: int) -> Array:
    return np.array([SLOPE_SD**-2, LEVEL_SD**-2, *[CLASS_SD**-2] * classes])


def _moved(z: Array, parameters: Array) -> Array:
    return np.asarray(np.exp(parameters[0]) * z + parameters[1] + parameters[2:], np.float64)


def _by_parameter(z: Array, parameters: Array, by_logit: Array) -> Array:
    """Each item's gradient by the parameters, from its gradient by the moved logits."""
    return np.column_stack(
        [np.exp(parameters[0]) * (by_logit * z).sum(axis=1), by_logit.sum(axis=1), by_logit]
    )


def _fit(z: Array, labels: Labels, start: Array, positives: float | None) -> Array:
    """Parameters (log slope, shared shift, own shifts) of the highest posterior.

    The mean number of positives of an item is fitted too if it is None.
    """
    from scipy.optimize import minimize

    precision = _precision(z.shape[1])

    def cost(parameters: Array) -> tuple[float, Array]:
        moved = _moved(z, parameters)
        chances = draw(moved, labels)
        rest = chances.seen - chances.present  # 0 for known negatives
        value = -chances.log_likelihood.sum() + (precision * parameters**2).sum() / 2
        if positives is not None:
            off = chances.present.sum(axis=1).mean() - positives
            value += off**2 / (2 * GIVEN_SD**2)
            rest -= off / GIVEN_SD**2 / len(z) * _per_logit(moved, labels, chances.present)
        return float(value), precision * parameters - _by_parameter(z, parameters, rest).sum(axis=0)

    bounds = [(-LIMIT, LIMIT), *[(None, None)] * (len(start) - 1)]
    how = {"jac": True, "method": "L-BFGS-B", "bounds": bounds, "options": {"maxiter": 500}}
    best = minimize(cost, start, **how)
    level = np.where(np.arange(len(start)) == 1, -z.mean(), start)
    if cost(level)[0] < best.fun:
        # logits that are all high make every class seem certain, and the gradient vanishes
        best = minimize(cost, level, **how)
    return np.asarray(best.x, np.float64)


def _per_logit(z: Array, labels: Labels, present: Array) -> Array:
    """Derivative of an item's expected number of positives by each of its logits."""
    p = np.where(labels == -1, 0.0, sigmoid(z))
    none = np.exp(_log_absent(z, labels)) * present.sum(axis=1)
    return np.asarray(present * (1 - p - none[:, None]), np.float64)
