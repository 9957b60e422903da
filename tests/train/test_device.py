import os
import signal
import threading
from dataclasses import replace

import pytest
import torch

# Imported before a test patches torch.cuda: the import reads what the test replaces.
from lightning.fabric import Fabric

from spml.train import fit
from spml.train.device import Processes, Stop, make_fabric
from tests.conftest import refused
from tests.train.settings import resolved


@pytest.mark.parametrize("precision", ["16-mixed", "16"])
@pytest.mark.parametrize("accelerator", ["cpu", "auto"])
def test_float16_is_refused_on_a_cpu_rather_than_replaced(monkeypatch, precision, accelerator):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)
    with refused(f"--precision {precision} needs a GPU; on a CPU use 32-true"):
        make_fabric(resolved(accelerator=accelerator, precision=precision), unused=False)
    assert isinstance(make_fabric(resolved(precision="bf16-mixed"), unused=False), Fabric)


def too_large(logits, observed):
    return logits.sum() + torch.empty(2**60).sum()


too_large.needs = frozenset({"index"})


def test_lack_of_cpu_memory_is_reported_like_lack_of_gpu_memory(scenes, quick, tmp_path):
    settings = replace(quick, method="tests.train.test_device:too_large")
    with refused("out of memory with batches of 32 on cpu; give a smaller --batch-size"):
        fit(scenes, settings, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB"),
        RuntimeError("MPS backend out of memory (MPS allocated: 8 GB)"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        MemoryError(),
    ],
)
def test_lack_of_memory_is_recognised_on_every_device(scenes, quick, tmp_path, monkeypatch, error):
    def full(*args):
        raise error

    monkeypatch.setattr("spml.train.loop.optimizer_for", full)  # the model itself may be too large
    with refused("out of memory with batches of 32 on cpu; give a smaller --batch-size"):
        fit(scenes, quick, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_is_noted_and_the_second_interrupts(number):
    former = signal.getsignal(number)
    with Stop(Processes()) as stop:
        os.kill(os.getpid(), number)
        assert stop.asked
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) == former


def test_ignored_signals_stay_ignored():
    former = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with Stop(Processes()) as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop.asked
    finally:
        signal.signal(signal.SIGHUP, former)


def test_other_threads_do_not_change_signal_handlers():
    seen = []

    def other():
        with Stop(Processes()):
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGTERM)]
