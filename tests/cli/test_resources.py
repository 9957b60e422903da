import importlib.util
from pathlib import Path

import pytest

from spml.cli.output.resources import Work, about, recorded, resource_lines
from tests.conftest import TINY, spml

TOOL = Path(__file__).parents[2] / "tools" / "resource_table.py"
LITE, RESNET = "tf_efficientnet_lite0", "resnet50"


def work(folder, **changed):
    """Training on 50,000 photos with default settings."""
    sizes = {"train": 40_000, "val": 10_000, "test": 0, "size": 448, "epochs": 10}
    return Work(**{**sizes, "batch_size": 16, "backbone": LITE, "folder": folder, **changed})


def test_the_table_is_that_of_the_records():
    spec = importlib.util.spec_from_file_location(TOOL.stem, TOOL)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert recorded() == tool.table(), "run: python tools/resource_table.py"


def test_the_lines_are_computed_from_the_table(tmp_path):
    table = recorded()
    gpu, cpu = (
        next(row for row in table["speed"] if (row["device"], row["backbone"]) == (device, LITE))
        for device in ("cuda", "cpu")
    )
    disk, memory, time = resource_lines(work(tmp_path / "new" / "folder", race=2.5))
    assert disk.startswith("disk: 50,000 pictures at 448 px are 30.1 GB decoded, in ")
    row = table["memory"][LITE]
    needed = row["base"] + row["per_pixel"] * 16 * 448**2
    assert memory.startswith(f"memory on a CPU: about {needed / 1e9:.1f} GB in batches of 16")
    seconds = [
        (10 * 40_000 * one["train_seconds"] + 10 * 10_000 * one["score_seconds"])
        * (448 / one["size"]) ** 2
        for one in (gpu, cpu)
    ]
    assert time == (
        f"time: about {about(seconds[0])} on an NVIDIA H200 or {about(seconds[1])} on 2 CPU cores "
        f"for 10 epochs of {LITE}; the race of methods makes it up to 3.5 times as long"
    )


@pytest.mark.parametrize(
    ("changed", "starts"),
    [
        ({"device": "cpu"}, ["disk: ", "memory on a CPU: ", "time: "]),
        ({"device": "cpu", "backbone": RESNET}, ["disk: ", "memory on a CPU: "]),
        ({"device": "cuda", "cache": "device"}, ["disk: ", "GPU memory: 30.1 GB", "time: "]),
        ({"device": "cuda", "cache": "none"}, ["time: "]),
        ({"backbone": "tiny"}, ["disk: "]),
    ],
)
def test_nothing_is_estimated_without_a_record(changed, starts, tmp_path):
    lines = list(resource_lines(work(tmp_path, **changed)))
    assert all(line.startswith(start) for line, start in zip(lines, starts, strict=True))


def test_pictures_in_memory_count(tmp_path):
    _, memory, _ = resource_lines(work(tmp_path, device="cpu", cache="memory"))
    _, plain, _ = resource_lines(work(tmp_path, device="cpu"))
    words = [float(line.split("about ")[1].split()[0]) for line in (memory, plain)]
    assert words[0] - words[1] == pytest.approx(30.1, abs=0.11)


@pytest.mark.parametrize(
    ("seconds", "text"), [(40, "40 s"), (240, "4 min"), (5580, "1.6 h"), (259_200, "3 days")]
)
def test_an_estimate_has_two_digits(seconds, text):
    assert about(seconds) == text


def test_check_and_train_print_the_lines_before_they_decode(pictures, capsys):
    (pictures.parent / "photos" / "0.jpg").write_bytes(b"broken")
    for command in ("check {}", f"train {{}} --method gr {TINY.replace('--quiet', '')}"):
        assert spml(command.format(pictures)) == 2
        shown = "".join(capsys.readouterr())
        size = 448 if command.startswith("check") else 16
        assert f"disk: 12 pictures at {size} px" in shown
        assert shown.index("disk: 12 pictures") < shown.index("0.jpg")


def test_arrays_are_not_decoded(scenes_file, capsys):
    assert spml(f"check {scenes_file} --labels complete") == 0
    assert "disk: " not in capsys.readouterr().out
