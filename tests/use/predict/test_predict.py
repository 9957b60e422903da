import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from spml.data.images import loader
from spml.data.images.decode import decode
from spml.errors import DataError, UserError
from spml.model import Classifier, ModelInfo, load_model, save_model
from spml.use.predict.predict import Options, predict, reader, scorer
from tests.use.conftest import NAMES, PICTURES, rows


@pytest.mark.parametrize("kind", ["files", "folder", "table"])
def test_files_folders_and_tables_give_the_models_probabilities(model, pictures, tmp_path, kind):
    folder, out = pictures.parent / "photos", tmp_path / "p.csv"
    inputs = {"files": sorted(folder.iterdir()), "folder": [folder], "table": [pictures]}[kind]
    assert predict(model, inputs, out, Options(5)) == 12
    written = {Path(row["image"]).name: row for row in rows(out)}
    assert len(written) == 12 and list(rows(out)[0]) == ["image", "tags", *NAMES]
    classifier, _ = load_model(model)
    p = classifier(decode(folder / "3.png", 16)[None]).sigmoid()[0].tolist()
    assert [float(written["3.png"][c]) for c in NAMES] == pytest.approx(p, abs=1e-5)
    tags = written["3.png"]["tags"].split("|")
    assert "green" in tags and "blue" not in tags


def test_invalid_arrays_and_unreadable_pictures_write_nothing(model, tmp_path):
    (tmp_path / "zip.npz").write_bytes(b"PK\x03\x04aaaa")
    np.savez(tmp_path / "scalar.npz", x=np.float32(3))
    np.savez(tmp_path / "shape.npz", x=np.zeros((3, 16, 16), np.uint8))
    np.savez(tmp_path / "items.npz", x=np.zeros((3, 3, 16, 16), np.uint8), items=np.array(["a"]))
    for name in ("zip", "scalar", "shape", "items"):
        with pytest.raises(DataError, match=f"{name}.npz"):
            predict(model, [tmp_path / f"{name}.npz"], tmp_path / "out.csv")
    with pytest.raises(UserError, match="nothing was written"):
        predict(model, [tmp_path / "gone.jpg"], tmp_path / "out.csv", on_error=lambda error: None)
    with pytest.raises(DataError, match=r"gone\.jpg"):
        predict(model, [tmp_path / "gone.jpg"], tmp_path / "out.csv")
    with pytest.raises(UserError, match="--batch-size"):
        predict(model, [tmp_path / "gone.jpg"], tmp_path / "out.csv", Options(0))
    with pytest.raises(UserError, match=r"as .csv, .jsonl, .parquet"):
        predict(model, [tmp_path / "a.jpg"], tmp_path / "p.xlsx")
    assert not (tmp_path / "out.csv").exists()


def test_weights_that_are_not_numbers_are_detected(model, pictures, tmp_path):
    classifier, info = load_model(model)
    classifier.head.bias.data.fill_(float("nan"))
    save_model(model, classifier, info)
    with pytest.raises(UserError, match="weights are damaged"):
        predict(model, [pictures], tmp_path / "out.csv")


def test_probabilities_are_calibrated_unless_raw(make_model, photo, tmp_path):
    plain, steep = make_model("plain"), make_model("steep", calibration=[[[0, 1], [1, 3]]] * 3)
    probabilities = {}
    for name, folder in {"plain": plain, "steep": steep, "raw": steep}.items():
        out = tmp_path / f"{name}.csv"
        predict(folder, [photo], out, Options(raw=name == "raw"))
        probabilities[name] = np.array([float(rows(out)[0][c]) for c in NAMES])
    logits = np.log(probabilities["plain"] / (1 - probabilities["plain"]))
    assert probabilities["steep"] == pytest.approx(1 / (1 + np.exp(-(2 * logits + 1))), abs=1e-4)
    assert probabilities["raw"] == pytest.approx(probabilities["plain"], abs=1e-6)
    assert rows(tmp_path / "raw.csv")[0]["tags"] == rows(tmp_path / "steep.csv")[0]["tags"]


def test_ten_times_as_many_files_take_no_more_memory(model, tmp_path, monkeypatch):
    """Measures Python's objects of the whole command; prefetch bounds the pictures."""
    black = torch.zeros(3, 16, 16, dtype=torch.uint8)
    monkeypatch.setattr(loader, "decode", lambda path, size: black)

    def peak(count):
        class Paths:
            left = count

            def read1(self, size):
                lines = min(self.left, 50)
                self.left -= lines
                paths = [f"/pictures/{self.left + i:09d}.jpg\n" for i in range(lines)]
                return "".join(paths).encode()

        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=Paths()))
        tracemalloc.start()
        assert predict(model, ["-"], tmp_path / "out.csv") == count
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return used

    peak(300)  # imports and caches
    assert peak(6000) < 1.25 * peak(600)


@pytest.mark.parametrize(
    ("error", "expected", "message"),
    [
        (torch.OutOfMemoryError(), UserError, "no room for 4 items; give a smaller --batch-size"),
        (RuntimeError("shapes differ"), RuntimeError, "shapes differ"),
    ],
)
def test_out_of_memory_is_one_line_and_other_errors_pass_through(
    monkeypatch, error, expected, message
):
    model, info = Classifier.build("tiny", 3), ModelInfo(NAMES, "tiny", PICTURES, [0.5] * 3)

    def fail(x):
        raise error

    monkeypatch.setattr(model, "forward", fail)
    with pytest.raises(expected, match=message):
        scorer(model, info, "cpu")(torch.zeros(4, 3, 16, 16, dtype=torch.uint8))


def test_a_gpu_has_larger_batches_and_fewer_decoding_threads_by_default(monkeypatch):
    info = ModelInfo(["a"], "tiny", PICTURES, [0.5])
    for cores, on_gpu, on_cpu in ((16, 8, 8), (6, 4, 6), (2, 1, 2), (1, 1, 1)):
        available = set(range(cores))
        monkeypatch.setattr("os.sched_getaffinity", lambda process, all=available: all)
        threads = [reader(info, None, None, device).threads for device in ("cuda", "cpu")]
        assert threads == [on_gpu, on_cpu]
    assert reader(info, None, 3, "cuda").threads == 3
    for device, default in (("cpu", 32), ("cuda", 64)):
        assert reader(info, None, None, device).batch_size == default
        assert reader(info, 7, None, device).batch_size == 7
