"""Values and gradients computed from the published definitions, to 1e-9."""

import json
from pathlib import Path

import pytest
import torch

from spml import losses

from .common import build, value_and_gradient

BATCHES = json.loads((Path(__file__).parent / "golden.json").read_text())
CASES = [(number, case) for number, batch in enumerate(BATCHES) for case in batch["cases"]]


def test_no_case_is_lost():
    assert len(CASES) == 42
    assert {case["method"] for _, case in CASES} <= set(losses.names())


@pytest.mark.parametrize(
    ("number", "case"), CASES, ids=[f"{number}-{case['case']}" for number, case in CASES]
)
def test_golden_value_and_gradient(number, case):
    logits = torch.tensor(BATCHES[number]["logits"], dtype=torch.float64)
    observed = torch.tensor(BATCHES[number]["observed"])
    options = dict(case["options"])
    epoch = options.pop("epoch", 1)
    tables = {"estimated", "table"} & case.keys()
    options |= {key: torch.tensor(case[key], dtype=torch.float64) for key in tables}
    loss = build(case["method"], observed, **options)
    value, gradient = value_and_gradient(loss, logits, observed, epoch=epoch)

    tolerance = 1e-8 if case["method"] == "ll_ct" else 1e-9
    assert value.item() == pytest.approx(case["value"], rel=0, abs=tolerance)
    expected = torch.tensor(case["grad"], dtype=torch.float64)
    torch.testing.assert_close(gradient, expected, rtol=0, atol=tolerance)
