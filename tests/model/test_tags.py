"""Scores are compared with thresholds in one place."""

import ast
import re
from pathlib import Path

import numpy as np
import pytest

import spml
from spml.metrics.scores import num_reached, reaches
from spml.model.store import SURE, TagRule, tagged

SOURCE = Path(spml.__file__).parent
SCORES = re.compile(r"threshold|^cuts?$|probabilit|^logits?$|^scores$|sigmoid|^calibrated$")
ALLOWED = {  # comparisons of scores with something else than a tag's threshold
    "methods/en.py: scores <= scores.kthvalue(count).values",  # the lowest share of a batch
    "methods/em_apl.py: targets <= self.thresholds.to(targets.dtype)",  # its own pseudo-labels
    "methods/mime.py: logits.float().sigmoid() > self.theta",  # the method's own pseudo-labels
    "methods/smile/image.py: context.logits >= smile.least",  # its pseudo-positives
    "metrics/items.py: scores >= lowest",  # coverage: down to an item's lowest positive
    "model/calibration.py: logits >= bend",  # the segment of a piecewise linear map
    "use/review/review.py: one.probability >= least",  # the end of a list, not a tag
    "metrics/scores.py: scores >= cuts",  # the one comparison
}


def compared(node):
    """Names on both sides of an order comparison, without numbers and sizes of arrays."""
    sides = [node.left, *node.comparators]
    if any(isinstance(side, ast.Constant) for side in sides):
        return []
    names = [n for side in sides for n in ast.walk(side) if isinstance(n, ast.Name | ast.Attribute)]
    texts = [n.id if isinstance(n, ast.Name) else n.attr for n in names]
    return [] if {"shape", "size"} & set(texts) else texts


def test_scores_are_compared_with_thresholds_in_one_function():
    sizes = ast.Gt | ast.GtE | ast.Lt | ast.LtE
    functions = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Compare) or not all(isinstance(o, sizes) for o in node.ops):
                continue
            if any(SCORES.search(name) for name in compared(node)):
                functions.add(f"{path.relative_to(SOURCE).as_posix()}: {ast.unparse(node)}")
    assert functions == ALLOWED


def test_a_whole_grid_of_thresholds_is_reached_as_each_of_them_is():
    logits, grid = np.linspace(-40, 40, 4001), np.arange(1, 100) / 100
    exact = np.log(grid) - np.log1p(-grid)
    each = np.stack([reaches(np.r_[logits, exact][:, None], one)[:, 0] for one in grid])
    assert (num_reached(np.r_[logits, exact], grid) == each.sum(axis=0)).all()


def test_a_probability_of_1_reaches_a_threshold_that_is_1_in_float32():
    edge = np.log(SURE) - np.log1p(-SURE)
    assert tagged([[edge, edge, edge]], [SURE, 0.99999999, 1.0]).all()
    assert not tagged([[edge - 1e-9] * 3], [SURE, 0.99999999, 1.0]).any()
    assert tagged([[-np.inf]], 0.0).all() and not tagged([[-np.inf]], 1e-300).any()


def test_float64_calibration_uses_the_line_of_each_class():
    knots = [[[-1.0, 0.0, 2.0], [-4.0, 0.0, 1.0]], [[0.0, 1.0], [1.0, 3.0]]]
    rule = TagRule(np.array([0.5, 0.5]), knots)
    logits = np.array([[-2.0, -2.0], [0.0, 0.0], [1.0, 1.0], [4.0, 4.0]])
    expected = [[-8.0, -3.0], [0.0, 1.0], [0.5, 3.0], [2.0, 9.0]]
    assert rule.logits(logits).tolist() == expected
    assert rule.tagged(logits).tolist() == [
        [False, False],
        [True, True],
        [True, True],
        [True, True],
    ]
    assert rule.probabilities(logits) == pytest.approx(1 / (1 + np.exp(-np.array(expected))))
