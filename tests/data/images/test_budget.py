"""Decoding draws its memory from one budget, and refuses pictures above a limit of pixels."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from PIL import Image

from spml.data.images.decode import Budget, decode, pixel_limit, set_limits
from tests.conftest import refused, spml

GIGABYTE = 1e9


@pytest.fixture
def kilobyte(monkeypatch):
    """A budget that the user has set to 1000 bytes."""
    monkeypatch.setenv("SPML_DECODE_MEMORY", str(1000 / GIGABYTE))
    return Budget()


def test_threads_wait_until_the_budget_has_room_for_their_picture(kilobyte):
    most, barrier = [], threading.Barrier(8)

    def decode_one(need):
        barrier.wait()
        with kilobyte.claim(need):
            most.append(kilobyte.taken)
            threading.Event().wait(0.01)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(decode_one, [400, 100, 900, 1000, 300, 300, 300, 700]))
    assert len(most) == 8 and max(most) <= 1000 and kilobyte.taken == 0


def test_a_picture_above_a_budget_that_the_user_set_is_refused(kilobyte):
    with pytest.raises(ValueError, match="takes 1 kB, and --decode-memory allows 1 kB"):
        claim(kilobyte, 1001)
    assert kilobyte.taken == 0


def test_a_picture_above_the_default_budget_is_decoded_alone():
    budget = Budget()
    need = budget.limit + 1
    with budget.claim(need):
        other = threading.Thread(target=claim, args=(budget,), daemon=True)
        other.start()
        other.join(0.05)
        assert other.is_alive() and budget.taken == need
    other.join()
    assert budget.taken == 0


def claim(budget, need=1):
    with budget.claim(need):
        pass


@pytest.mark.parametrize("suffix", ["png", "jpg"])
def test_both_decoders_keep_to_the_limits(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    Image.new("RGB", (50, 40)).save(path)
    set_limits(None, 1999)
    with refused(r"above 0\.001999 megapixels"):
        decode(path)
    set_limits(1e-6, 2000)
    with refused("decoding takes .* kB, and --decode-memory allows 1 kB"):
        decode(path)
    set_limits(1e-4, 2000)
    assert decode(path).shape == (3, 40, 50)


def test_commands_that_decode_have_the_limits(finished, pictures, capsys):
    photos, out = pictures.parent / "photos", pictures.parent / "p.csv"
    predict = f"predict {finished} {photos} --out {out}"
    assert spml(f"{predict} --max-pixels 400") == 2
    assert "above 0.0004 megapixels" in capsys.readouterr().err
    assert spml(f"{predict} --overwrite --max-pixels 400 --decode-memory 1e-9") == 2
    assert "--decode-memory allows 1 B" in capsys.readouterr().err
    assert pixel_limit() == 400
    for flags, words in (
        ("--max-pixels 3e8", "pictures above 178,956,970 pixels are not read"),
        ("--max-pixels 0", "--max-pixels must be above 0"),
        ("--decode-memory -1", "--decode-memory must be above 0"),
    ):
        assert spml(f"{predict} --overwrite {flags}") == 2 and words in capsys.readouterr().err
    for command in [
        "train",
        "eval",
        "predict",
        "calibrate",
        "review",
        "explain",
        "serve",
        "check",
        "report",
        "bench",
    ]:
        assert spml(f"{command} --help-all") == 0
        shown = capsys.readouterr().out
        assert "--max-pixels" in shown and "--decode-memory" in shown, command
