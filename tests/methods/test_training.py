"""Every method trains, and an interrupted run resumes to the same bytes."""

from dataclasses import replace

import pytest

from spml import losses
from tests.conftest import assert_resumes

OPTIONS = {  # so that the method has a state after the second of three epochs
    "em_apl": {"warmup": 1},
    "crisp": {"warmup": 1},
    "ll_cp": {"delta": 0.01},
    "lagc": {"first": 0.3},
}
MOVED = {  # other options of a method, for pictures that are cut and mirrored
    "en": [
        {"cl": 1.0, "ties": "random", "count": "uniform"},
        {"cl": 1.0, "scl": 1.0, "grid": 5, "start": "first"},
    ]
}
CASES = [(name, OPTIONS.get(name, {}), {}) for name in losses.names() if losses.needs(name)] + [
    (name, options, {"crop": 0.5, "flip": True})
    for name, several in MOVED.items()
    for options in several
]


@pytest.mark.parametrize(
    ("name", "options", "changes"), CASES, ids=[f"{name}-{len(o)}" for name, o, _ in CASES]
)
def test_a_method_with_memory_resumes_to_the_bit(scenes, quick, tmp_path, name, options, changes):
    assert_resumes(scenes, replace(quick, method=name, **changes), tmp_path, options)
