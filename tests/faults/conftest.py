import shlex

import numpy as np
import pytest

from tests.faults.driver import spml

# Arguments for a method with a pass over the training split, and for one that draws at random.
METHODS = {
    "em_apl": ("--method", "em_apl", "--set", "warmup=1"),
    "drawn": ("--method", "tests.faults.methods:drawn"),
}
EVERY_STEP = ("--checkpoint-minutes", "1e-9")


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    """A CSV of 64 small pictures of four colours: 40 to train on, in 5 batches."""
    from PIL import Image

    folder = tmp_path_factory.mktemp("photos")
    noise = np.random.default_rng(0).integers(0, 156, (64, 18, 18, 3), np.uint8)
    rows = ["image,label,split"]
    for i, pixels in enumerate(noise):
        name = ("red", "green", "blue", "grey")[i % 4]
        pixels[:, :, slice(3) if name == "grey" else i % 4] += 4
        Image.fromarray(pixels).save(folder / f"{i:02}.png")
        rows.append(f"{i:02}.png,{name},{'train' if i < 40 else ('val', 'test')[i // 4 % 2]}")
    (folder / "photos.csv").write_text("\n".join(rows) + "\n")
    return folder / "photos.csv"


@pytest.fixture(scope="session")
def training(photos):
    """Arguments of a command that trains on the photos for three epochs, with files in a folder."""
    common = shlex.split(
        "--backbone tiny --size 16 --epochs 3 --batch-size 8 --lr 0.003 --flip True"
    )

    def words(method, folder):
        places = ("--accelerator", "cpu", "--out", folder / "run", "--cache-dir", folder / "cache")
        return ("train", photos, *common, *METHODS[method], *places)

    return words


@pytest.fixture(scope="session")
def undisturbed(training, tmp_path_factory):
    """The folder of an undisturbed run, by method."""
    done = {}

    def run(method):
        if method not in done:
            folder = tmp_path_factory.mktemp(method)
            ended = spml(*training(method, folder))
            assert ended.code == 0, ended
            done[method] = folder / "run"
        return done[method]

    return run
