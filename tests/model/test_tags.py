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
    "methods/en.py: scores <= scores.kthvalue(places).values",  # the lowest share of a batch
    "methods/mime.py: logits.float().sigmoid() > self.theta",  # the method's own pseudo-labels
    "metrics/items.py: scores >= lowest",  # coverage: down to an item's lowest positive
    "model/calibration.py: logits >= bend",  # the segment of a broken line
    "metrics/scores.py: scores >= cuts",  # the one comparison
}


def compared(node):
    """What stands on both sides of a comparison by size, without numbers and sizes of arrays."""
    sides = [node.left, *node.comparators]
    if any(isinstance(side, ast.Constant) for side in sides):
        return []
    names = [n for side in sides for n in ast.walk(side) if isinstance(n, ast.Name | ast.Attribute)]
    texts = [n.id if isinstance(n, ast.Name) else n.attr for n in names]
    return [] if {"shape", "size"} & set(texts) else texts


def test_scores_are_compared_with_thresholds_in_one_function():
    sizes = ast.Gt | ast.GtE | ast.Lt | ast.LtE
    found = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Compare) or not all(isinstance(o, sizes) for o in node.ops):
                continue
            if any(SCORES.search(name) for name in compared(node)):
                found.add(f"{path.relative_to(SOURCE).as_posix()}: {ast.unparse(node)}")
    assert found == ALLOWED


def test_a_whole_grid_of_thresholds_is_reached_as_each_of_them_is():
    logits, grid = np.linspace(-40, 40, 4001), np.arange(1, 100) / 100
    exact = np.log(grid) - np.log1p(-grid)
    each = np.stack([reaches(np.r_[logits, exact][:, None], one)[:, 0] for one in grid])
    assert (num_reached(np.r_[logits, exact], grid) == each.sum(axis=0)).all()


def test_a_threshold_that_float32_cannot_tell_from_1_is_reached_by_a_probability_of_1():
    edge = np.log(SURE) - np.log1p(-SURE)
    assert tagged([[edge, edge, edge]], [SURE, 0.99999999, 1.0]).all()
    assert not tagged([[edge - 1e-9] * 3], [SURE, 0.99999999, 1.0]).any()
    assert tagged([[-np.inf]], 0.0).all() and not tagged([[-np.inf]], 1e-300).any()


def test_calibration_in_float64_follows_each_classes_own_line():
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
