"""The rows of the paper's Table 3."""

import pytest
import torch

from spml import losses
from spml.bench.published import ABLATION
from spml.bench.rows import ablation_cases, observed_share


def test_the_rows_are_those_of_the_paper_and_one_more():
    cases = ablation_cases(0.6849)
    labels = [case.label for case in cases]
    assert [label for label in labels if label in ABLATION] == list(ABLATION)
    assert [label for label in labels if label not in ABLATION] == [
        "k̂ ✗, v ✗, L ✗",
        "k̂ of Eq. (kx), v ✓, L ✓",
    ]
    assert cases[-1].options == {"a": 0.6849}
    assert [case.method for case in cases if case.method != "gr"] == ["an", "gr_learnable"]
    assert len(ablation_cases(None)) == len(cases) - 1


def test_crosses_use_the_constants_of_the_caption_and_all_checks_is_gr():
    options = {case.label: case.options for case in ablation_cases(None)}
    robust = {"q1": 0.01, "q2": 0.01, "q3": 0.01}
    assert options["k̂ ✗, v ✗, L ✗"] == {"khat": False, "v": False, **robust}
    assert options["k̂ ✓, v ✗, L ✓"] == {"v": False}
    assert options["k̂ ✗, v ✓, L ✗"] == {"khat": False, **robust}
    assert options["k̂ ✓, v ✓, L ✓"] == {}


def test_all_crosses_is_nearly_assume_negative():
    z, s = torch.linspace(-3, 3, 20).view(4, 5), torch.eye(4, 5)
    crosses = next(case.options for case in ablation_cases(None) if case.label == "k̂ ✗, v ✗, L ✗")
    assert losses.create("gr", **crosses)(z, s).item() == pytest.approx(
        losses.create("an")(z, s).item(), rel=0.03
    )


def test_the_share_of_observed_positives_is_one_over_their_number(scenes, pictures):
    from spml.data import load

    positives = (scenes.complete.labels[scenes.train_rows] == 1).sum() / len(scenes.train_rows)
    assert observed_share(scenes) == pytest.approx(1 / positives, abs=1e-4)
    assert observed_share(load(pictures)) is None
