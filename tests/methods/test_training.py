"""Every method trains, and goes on after an interruption to the same bytes."""

from dataclasses import replace

import pytest
import torch

from spml import losses
from spml.train import fit
from spml.train.loop import Training
from tests.conftest import contents, outcome

OPTIONS = {  # with which there is something to remember after the second of three epochs
    "em_apl": {"warmup": 1},
    "crisp": {"warmup": 1},
    "ll_cp": {"delta": 0.01},
    "lagc": {"first": 0.3},
}
MOVED = {  # other options of a method, for pictures that are cut and mirrored
    "en": [
        {"cl": 1.0, "ties": "random", "count": "uniform"},
        {"cl": 1.0, "scl": 1.0, "grid": 5, "start": "first"},
    ],
}
CASES = [(name, OPTIONS.get(name, {}), {}) for name in losses.names() if losses.needs(name)] + [
    (name, options, {"crop": 0.5, "flip": True}) for name, several in MOVED.items() for options in several
]


@pytest.mark.parametrize(("name", "options", "changes"), CASES, ids=[f"{name}-{len(o)}" for name, o, _ in CASES])
def test_a_method_with_memory_resumes_to_the_bit(scenes, quick, tmp_path, monkeypatch, name, options, changes):
    settings = replace(quick, method=name, **changes)
    fit(scenes, settings, tmp_path / "whole", options=options, quiet=True)
    original = Training._train_epoch

    def interrupted(self, epoch):
        if epoch == 3:
            raise KeyboardInterrupt
        return original(self, epoch)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Training, "_train_epoch", interrupted)
        fit(scenes, settings, tmp_path / "cut", options=options, quiet=True)
    fit(scenes, settings, tmp_path / "cut", options=options, resume=True, quiet=True)
    assert outcome(tmp_path / "cut") == outcome(tmp_path / "whole")
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")
    cut, whole = (torch.load(tmp_path / run / "last.ckpt", weights_only=True)["method"] for run in ("cut", "whole"))
    assert cut.keys() == whole.keys() and all(torch.equal(cut[key], whole[key]) for key in whole)
