"""A run of several processes is the run of one: for every method, step by step."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from spml import losses
from spml.files import read_json
from spml.model import Classifier
from spml.train.device import Processes, make_fabric, synchronised
from spml.train.step import Step
from spml.train.supervisor import Supervisor
from tests.conftest import noise, refused, write_scenes
from tests.train.settings import resolved

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def few_scenes(tmp_path_factory):
    """64 training scenes."""
    return write_scenes(tmp_path_factory.mktemp("few") / "scenes.npz", (64, 40, 50))


def run_group(count, scenes, folder, program="tests.train.group", *more):
    """Run a program in several processes as torchrun does; return what rank 0 wrote."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / f"runs{count}").mkdir()
    common = {
        **os.environ,
        **{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count)},
        **{"LOCAL_WORLD_SIZE": str(count), "GROUP_RANK": "0", "TORCHELASTIC_RUN_ID": "test"},
        **{"OMP_NUM_THREADS": "1", "RUNS": str(folder / f"runs{count}")},
    }
    command = [sys.executable, "-m", program, str(scenes), str(folder / f"{count}.json"), *more]
    group = [
        subprocess.Popen(
            command,
            cwd=ROOT,
            env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
        )
        for rank in range(count)
    ]
    for rank, process in enumerate(group):
        _, errors = process.communicate(timeout=900)
        assert process.returncode == 0, f"process {rank}: {errors.decode()[-3000:]}"
    return read_json(folder / f"{count}.json")


@pytest.fixture(scope="module")
def groups(few_scenes, tmp_path_factory):
    folder = tmp_path_factory.mktemp("groups")
    return {count: run_group(count, few_scenes, folder) for count in (1, 2, 3)}


@pytest.mark.slow
@pytest.mark.parametrize("name", losses.names())
@pytest.mark.parametrize("count", [2, 3])
def test_several_processes_learn_what_one_does(groups, count, name):
    one, many = groups[1][name], groups[count][name]
    assert len(one["losses"]) == 22
    assert many["losses"][:20] == pytest.approx(one["losses"][:20], rel=1e-5)
    assert many["maps"] == pytest.approx(one["maps"], abs=1e-2)  # in percent


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("length", [1, 4, 6, 7])
def test_shares_make_up_the_batch(count, length):
    rows = np.arange(100, 100 + length)
    parts = [Processes(rank, count).share(rows) for rank in range(count)]
    assert len({len(part) for part in parts}) == 1
    assert np.concatenate(parts)[:length].tolist() == rows.tolist()
    tensors = [Processes(rank, count).share_of(torch.from_numpy(rows)) for rank in range(count)]
    assert torch.cat(tensors)[:length].tolist() == rows.tolist()


@pytest.mark.parametrize("crop", [None, 0.4])
@pytest.mark.parametrize("count", [2, 3])
def test_an_item_is_augmented_alike_in_every_process(count, crop):
    rows = torch.tensor([40, 7, 19, 3, 28, 11, 5])
    x = noise(len(rows), 3, 8, 8)

    def seen(rank, count):
        processes, settings = Processes(rank, count), resolved(flip=True, crop=crop, epochs=2)
        step = Step(lambda x: x, losses.create("an"), settings, processes)
        return step.augmented(processes.share_of(x), rows, epoch=2)

    alone, joined = seen(0, 1), torch.cat([seen(rank, count) for rank in range(count)])
    assert torch.equal(joined[: len(rows)], alone) and not torch.equal(alone, x)


def test_a_lost_connection_is_one_line():
    lost = torch.distributed.DistBackendError("NCCL error\nand more lines")
    message = "connection to another process of the run was lost, .*--resume"
    with refused(message), Supervisor(Processes(0, 2), (), lambda: None):
        raise lost


@pytest.mark.parametrize("backbone", ["tiny", "tf_efficientnet_lite0"])
def test_batch_norm_can_be_synchronised(backbone):
    model = Classifier.build(backbone, 3, "none")
    norms = [name for name, part in model.named_modules() if isinstance(part, torch.nn.BatchNorm2d)]
    state = model.state_dict()
    model = synchronised(model)
    parts = dict(model.named_modules())
    assert norms and all(isinstance(parts[name], torch.nn.SyncBatchNorm) for name in norms)
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())


@pytest.mark.parametrize("way", ["graphs", "compile"])
@pytest.mark.parametrize(
    "devices,started", [(2, {}), (1, {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "2"})]
)
def test_compilation_is_refused_with_several_processes(monkeypatch, way, devices, started):
    for name, value in {"LOCAL_WORLD_SIZE": "2", **started}.items():
        monkeypatch.setenv(name, value)
    settings = resolved(devices=devices, compile=way)
    with refused(f"--compile {way} is for one process, not 2"):
        make_fabric(settings, unused=False)
