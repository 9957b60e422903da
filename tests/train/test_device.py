import json
import os
import signal
import threading
from unittest.mock import Mock

import pytest
import torch

# Imported before a test patches torch.cuda: the import reads what the test replaces.
from lightning.fabric import Fabric

from spml.model import Classifier
from spml.train import fit
from spml.train.device import Processes, Stop, make_fabric, norm_note
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


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("20 MiB"), MemoryError()])
def test_lack_of_memory_is_one_line(scenes, quick, tmp_path, monkeypatch, error):
    # the model itself may be too large
    monkeypatch.setattr("spml.train.loop.optimizer_for", Mock(side_effect=error))
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


def test_a_run_of_several_cpu_processes_names_its_separate_batch_norm():
    tiny, linear = Classifier.build("tiny", 2), Classifier.build("linear", 2, features=3)
    note = norm_note(tiny, Processes(0, 2, "cpu"))
    assert note.startswith("batch norm on cpu uses the share of each of 2 processes")
    assert norm_note(tiny, Processes()) is norm_note(linear, Processes(0, 2, "cpu")) is None


def test_the_configuration_records_threads_and_processes(finished):
    config = json.loads((finished / "config.json").read_text())
    assert config["threads"] == torch.get_num_threads() and config["processes"] == 1
