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
from tests.use.conftest import PICTURES, rows


def test_files_folders_and_tables_give_the_models_probabilities(model, pictures, tmp_path):
    folder = pictures.parent / "photos"
    for name, inputs in {
        "files": sorted(folder.iterdir()),
        "folder": [folder],
        "table": [pictures],
    }.items():
        out = tmp_path / f"{name}.csv"
        assert predict(model, inputs, out, Options(5)) == 12
        written = {Path(row["image"]).name: row for row in rows(out)}
        assert len(written) == 12 and list(rows(out)[0]) == [
            "image",
            "tags",
            "red",
            "green",
            "blue",
        ]
        classifier, _ = load_model(model)
        p = classifier(decode(folder / "3.png", 16)[None]).sigmoid()[0]
        assert [float(written["3.png"][c]) for c in ("red", "green", "blue")] == pytest.approx(
            p.tolist(), abs=1e-5
        )
        assert ("green" in written["3.png"]["tags"].split("|")) and "blue" not in written["3.png"][
            "tags"
        ]


def test_parquet_holds_the_same(model, pictures, tmp_path):
    import pyarrow.parquet as pq

    predict(model, [pictures], tmp_path / "p.parquet", Options(5))
    predict(model, [pictures], tmp_path / "p.csv")
    table = pq.read_table(tmp_path / "p.parquet").to_pylist()
    assert [row["image"] for row in table] == [row["image"] for row in rows(tmp_path / "p.csv")]
    assert [row["red"] for row in table] == pytest.approx(
        [float(row["red"]) for row in rows(tmp_path / "p.csv")], abs=1e-5
    )
    assert [row["tags"] for row in table] == [row["tags"] for row in rows(tmp_path / "p.csv")]


def test_a_bad_picture_is_reported_and_the_rest_continue(model, pictures, tmp_path):
    bad = pictures.parent / "photos" / "5.png"
    bad.write_bytes(bad.read_bytes()[:40])
    reported = []
    written = predict(
        model, [pictures], tmp_path / "p.csv", on_error=lambda error: reported.append(str(error))
    )
    assert written == 11 and len(reported) == 1 and "5.png" in reported[0]
    with pytest.raises(DataError):
        predict(model, [pictures], tmp_path / "q.csv")
    assert not (tmp_path / "q.csv").exists()


def test_features_are_predicted_from_arrays(tmp_path):
    info = ModelInfo(
        ["a", "b"],
        "linear",
        {"kind": "features", "size": None, "upright": True, "features": 4},
        [0.5, 0.5],
    )
    save_model(tmp_path / "model", Classifier.build("linear", 2, features=4), info)
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32))
    assert predict(tmp_path / "model", [tmp_path / "x.npz"], tmp_path / "p.csv") == 7
    np.savez(tmp_path / "y.npz", x=np.zeros((3, 5), np.float32))
    with pytest.raises(UserError, match="5 features, the model takes 4"):
        predict(tmp_path / "model", [tmp_path / "y.npz"], tmp_path / "p.csv")
    with pytest.raises(UserError, match=r"takes CSV, \.npz or \.npy files"):
        predict(tmp_path / "model", [tmp_path / "photo.jpg"], tmp_path / "p.csv")


def test_inputs_that_cannot_be_predicted_are_refused(model, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.npz").write_text("no zip")
    for inputs, message in {
        (tmp_path / "empty",): "no pictures in this folder",
        (tmp_path / "broken.npz",): "broken.npz",
        (): "nothing to predict",
    }.items():
        with pytest.raises(UserError, match=message):
            predict(model, list(inputs), tmp_path / "p.csv")
    with pytest.raises(UserError, match=r"as .csv, .jsonl, .parquet"):
        predict(model, [tmp_path / "a.jpg"], tmp_path / "p.xlsx")


def test_a_table_needs_no_more_than_an_image_column(model, pictures, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [f"photos/{i}.jpg" for i in (0, 2)]
    (pictures.parent / "list.csv").write_text(
        "image;date\n" + "".join(f"{name};today\n" for name in names)
    )
    pq.write_table(pa.table({"image": names, "note": ["a", "b"]}), pictures.parent / "list.parquet")
    for table in ("list.csv", "list.parquet"):
        assert predict(model, [pictures.parent / table], tmp_path / f"{table}.out.csv") == 2
    (pictures.parent / "none.csv").write_text("path\nphotos/0.jpg\n")
    with pytest.raises(DataError, match="no column 'image'"):
        predict(model, [pictures.parent / "none.csv"], tmp_path / "x.csv")


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
    with pytest.raises(UserError, match="--batch-size"):
        predict(model, [tmp_path / "gone.jpg"], tmp_path / "out.csv", Options(0))
    assert not (tmp_path / "out.csv").exists()


def test_weights_that_are_not_numbers_are_detected(model, pictures, tmp_path):
    classifier, info = load_model(model)
    classifier.head.bias.data.fill_(float("nan"))
    save_model(model, classifier, info)
    with pytest.raises(UserError, match="weights are damaged"):
        predict(model, [pictures], tmp_path / "out.csv")


def test_probabilities_are_calibrated_unless_raw(make_model, pictures, tmp_path):
    photo = pictures.parent / "photos" / "3.png"
    plain, steep = make_model("plain"), make_model("steep", calibration=[[[0, 1], [1, 3]]] * 3)
    probabilities = {}
    for name, folder, raw in (
        ("plain", plain, False),
        ("steep", steep, False),
        ("raw", steep, True),
    ):
        predict(folder, [photo], tmp_path / f"{name}.csv", Options(raw=raw))
        probabilities[name] = np.array(
            [float(rows(tmp_path / f"{name}.csv")[0][c]) for c in ("red", "green", "blue")]
        )
    logits = np.log(probabilities["plain"] / (1 - probabilities["plain"]))
    assert probabilities["steep"] == pytest.approx(1 / (1 + np.exp(-(2 * logits + 1))), abs=1e-4)
    assert probabilities["raw"] == pytest.approx(probabilities["plain"], abs=1e-6)
    assert rows(tmp_path / "raw.csv")[0]["tags"] == rows(tmp_path / "steep.csv")[0]["tags"]


def test_classes_named_like_columns_get_prefixed_columns(make_model, pictures, tmp_path):
    folder = make_model(classes=["image", "tags", "dog"])
    predict(folder, [pictures], tmp_path / "p.csv")
    first = rows(tmp_path / "p.csv")[0]
    assert list(first) == ["image", "tags", "class:image", "class:tags", "dog"] and first[
        "image"
    ].endswith("0.jpg")


def test_ten_times_as_many_files_take_no_more_memory(model, tmp_path, monkeypatch):
    """Measures Python's objects of the whole command; prefetch bounds the pictures."""
    monkeypatch.setattr(
        loader, "decode", lambda path, size: torch.zeros(3, size, size, dtype=torch.uint8)
    )

    def peak(count):
        class Paths:
            left = count

            def read1(self, size):
                lines = min(self.left, 50)
                self.left -= lines
                return "".join(
                    f"/pictures/{self.left + i:09d}.jpg\n" for i in range(lines)
                ).encode()

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
        (
            torch.OutOfMemoryError("CUDA out of memory"),
            UserError,
            "no room for 4 items; give a smaller --batch-size",
        ),
        (RuntimeError("shapes differ"), RuntimeError, "shapes differ"),
    ],
)
def test_out_of_memory_is_one_line_and_other_errors_pass_through(
    monkeypatch, error, expected, message
):
    model, info = (
        Classifier.build("tiny", 3),
        ModelInfo(["a", "b", "c"], "tiny", PICTURES, [0.5] * 3),
    )

    def fail(x):
        raise error

    monkeypatch.setattr(model, "forward", fail)
    with pytest.raises(expected, match=message):
        scorer(model, info, "cpu")(torch.zeros(4, 3, 16, 16, dtype=torch.uint8))


def test_a_gpu_has_larger_batches_and_fewer_decoding_threads_by_default(monkeypatch):
    info = ModelInfo(["a"], "tiny", PICTURES, [0.5])
    for cores, on_gpu, on_cpu in ((16, 8, 8), (6, 4, 6), (2, 1, 2), (1, 1, 1)):
        monkeypatch.setattr(
            "os.sched_getaffinity", lambda process, cores=cores: set(range(cores)), raising=False
        )
        assert [reader(info, None, None, device).threads for device in ("cuda", "cpu")] == [
            on_gpu,
            on_cpu,
        ]
    assert reader(info, None, 3, "cuda").threads == 3
    batch_sizes = [
        reader(info, size, None, device).batch_size
        for size in (None, 7)
        for device in ("cpu", "cuda")
    ]
    assert batch_sizes == [32, 64, 7, 7]
