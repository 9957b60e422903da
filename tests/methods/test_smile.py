"""Training by SMILE, and its published settings."""

from dataclasses import replace

import numpy as np
import pytest

from spml.cli import main
from spml.data import load
from spml.errors import UserError
from spml.train import fit
from tests.conftest import assert_resumes, outcome


@pytest.fixture(scope="module")
def feature_file(tmp_path_factory):
    """Points around centres that depend on their four labels."""
    rng = np.random.default_rng(0)
    labels = np.where(rng.random((200, 4)) < 0.4, 1, -1).astype(np.int8)
    labels[np.arange(200), rng.integers(0, 4, 200)] = 1
    x = (labels @ rng.normal(size=(4, 6)) + rng.normal(size=(200, 6))).astype(np.float32)
    path = tmp_path_factory.mktemp("features") / "features.npz"
    split = np.repeat(["train", "val", "test"], [120, 40, 40])
    np.savez(path, x=x, labels=labels, classes=np.array(list("abcd")), split=split)
    return path


class TestTraining:
    def test_on_feature_vectors_it_resumes_to_the_bit(self, feature_file, quick, tmp_path):
        settings = replace(quick, method="smile", backbone="linear", lr=1e-2)
        assert_resumes(load(feature_file, labels="complete"), settings, tmp_path)

    def test_the_command_trains_on_feature_vectors(self, feature_file, tmp_path, capsys):
        command = (
            f"train {feature_file} --labels complete --method smile"
            " --set mu=0.2 --epochs 3 --lr 0.01"
        )
        assert main([*command.split(), "--out", str(tmp_path / "run")]) == 0
        assert "smile on linear" in capsys.readouterr().out
        assert outcome(tmp_path / "run")["test_map"] > 60

    def test_a_linear_head_is_refused_on_pictures(self, scenes, quick, tmp_path):
        with pytest.raises(UserError, match="give --head query-normal:128"):
            fit(scenes, replace(quick, method="smile", head="linear"), tmp_path / "run", quiet=True)
