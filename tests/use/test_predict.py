import contextlib
import csv
import json
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from spml.data.pictures import decode
from spml.errors import DataError, UserError
from spml.model import Classifier, ModelInfo, load_model, save_model
from spml.use import ahead
from spml.use.predict import Options, predict, reader, scorer
from tests.use.conftest import huge_png

PICTURES = {"kind": "pictures", "size": 16, "upright": True, "features": None}


@pytest.fixture
def model(tmp_path):
    torch.manual_seed(2)
    info = ModelInfo(["red", "green", "blue"], "tiny", PICTURES, [0.5, 0.0, 0.999999])
    save_model(tmp_path / "model", Classifier.build("tiny", 3), info)
    return tmp_path / "model"


def rows(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_files_folders_and_tables_give_the_models_probabilities(model, pictures, tmp_path):
    folder = pictures.parent / "photos"
    for name, given in {"files": sorted(folder.iterdir()), "folder": [folder], "table": [pictures]}.items():
        out = tmp_path / f"{name}.csv"
        assert predict(model, given, out, Options(5)) == 12
        found = {Path(row["image"]).name: row for row in rows(out)}
        assert len(found) == 12 and list(rows(out)[0]) == ["image", "tags", "red", "green", "blue"]
        classifier, _ = load_model(model)
        p = classifier(decode(folder / "3.png", 16)[None]).sigmoid()[0]
        assert [float(found["3.png"][c]) for c in ("red", "green", "blue")] == pytest.approx(p.tolist(), abs=1e-5)
        assert ("green" in found["3.png"]["tags"].split("|")) and "blue" not in found["3.png"]["tags"]


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


def test_a_bad_picture_is_told_and_the_rest_go_on(model, pictures, tmp_path):
    bad = pictures.parent / "photos" / "5.png"
    bad.write_bytes(bad.read_bytes()[:40])
    told = []
    written = predict(model, [pictures], tmp_path / "p.csv", on_error=lambda error: told.append(str(error)))
    assert written == 11 and len(told) == 1 and "5.png" in told[0]
    with pytest.raises(DataError):
        predict(model, [pictures], tmp_path / "q.csv")
    assert not (tmp_path / "q.csv").exists()


def test_features_are_predicted_from_arrays(tmp_path):
    info = ModelInfo(
        ["a", "b"], "linear", {"kind": "features", "size": None, "upright": True, "features": 4}, [0.5, 0.5]
    )
    save_model(tmp_path / "model", Classifier.build("linear", 2, features=4), info)
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32))
    assert predict(tmp_path / "model", [tmp_path / "x.npz"], tmp_path / "p.csv") == 7
    np.savez(tmp_path / "y.npz", x=np.zeros((3, 5), np.float32))
    with pytest.raises(UserError, match="5 features, the model takes 4"):
        predict(tmp_path / "model", [tmp_path / "y.npz"], tmp_path / "p.csv")
    with pytest.raises(UserError, match=r"takes \.npz or \.npy files"):
        predict(tmp_path / "model", [tmp_path / "photo.jpg"], tmp_path / "p.csv")


def test_inputs_that_cannot_be_predicted_are_refused(model, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.npz").write_text("no zip")
    for given, message in {
        (tmp_path / "empty",): "no pictures in this folder",
        (tmp_path / "broken.npz",): "broken.npz",
        (): "nothing to predict",
    }.items():
        with pytest.raises(UserError, match=message):
            predict(model, list(given), tmp_path / "p.csv")
    with pytest.raises(UserError, match=r"as .csv, .jsonl, .parquet"):
        predict(model, [tmp_path / "a.jpg"], tmp_path / "p.xlsx")


def test_evaluation_repeats_the_runs_own_figures(finished, tmp_path):
    import shutil

    from spml.use.assess import assess

    run = tmp_path / "run"
    shutil.copytree(finished, run)
    result = json.loads((run / "result.json").read_text())
    before = (run / "result.json").read_bytes()
    test, val = assess(run, "test"), assess(run, "val")
    assert test["metrics"]["map"] == pytest.approx(result["test_map"], abs=1e-9)
    assert val["metrics"]["map"] == pytest.approx(result["val_map"], abs=1e-9)
    assert (run / "result.json").read_bytes() == before
    assert json.loads((run / "eval-test.json").read_text()) == test


def test_a_table_needs_no_more_than_an_image_column(model, pictures, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [f"photos/{i}.jpg" for i in (0, 2)]
    (pictures.parent / "list.csv").write_text("image;date\n" + "".join(f"{name};today\n" for name in names))
    pq.write_table(pa.table({"image": names, "note": ["a", "b"]}), pictures.parent / "list.parquet")
    for table in ("list.csv", "list.parquet"):
        assert predict(model, [pictures.parent / table], tmp_path / f"{table}.out.csv") == 2
    (pictures.parent / "none.csv").write_text("path\nphotos/0.jpg\n")
    with pytest.raises(DataError, match="no column 'image'"):
        predict(model, [pictures.parent / "none.csv"], tmp_path / "x.csv")


def test_arrays_that_are_none_and_unreadable_pictures_write_nothing(model, tmp_path):
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


def test_weights_that_are_not_numbers_are_found_out(model, pictures, tmp_path):
    classifier, info = load_model(model)
    classifier.head.bias.data.fill_(float("nan"))
    save_model(model, classifier, info)
    with pytest.raises(UserError, match="weights are damaged"):
        predict(model, [pictures], tmp_path / "out.csv")


def test_a_completely_labelled_test_split_of_ones_own_has_all_metrics(tmp_path, pictures, monkeypatch, capsys):
    from spml.cli import main
    from spml.use.assess import assess

    monkeypatch.chdir(pictures.parent)
    wide = ["image,red,green,blue,split"]
    for line in pictures.read_text().splitlines()[1:]:
        image, label, split = line.split(",")
        absent = "" if split == "train" else "-1"
        wide.append(",".join([image, *("1" if c == label else absent for c in ("red", "green", "blue")), split]))
    Path("wide.csv").write_text("\n".join(wide) + "\n")
    words = ["--backbone", "tiny", "--size", "16", "--epochs", "1", "--quiet", "--out", "run"]
    assert main(["train", "wide.csv", *words]) == 0
    result = json.loads(Path("run/result.json").read_text())
    assert assess(Path("run"), "test")["metrics"]["map"] == pytest.approx(result["test_map"])


def spml(*words, **more):
    return subprocess.run([sys.executable, "-m", "spml.cli", *map(str, words)], capture_output=True, **more)


def test_probabilities_are_calibrated_unless_raw(make_model, pictures, tmp_path):
    photo = pictures.parent / "photos" / "3.png"
    plain, steep = make_model("plain"), make_model("steep", calibration=[[[0, 1], [1, 3]]] * 3)
    found = {}
    for name, folder, raw in (("plain", plain, False), ("steep", steep, False), ("raw", steep, True)):
        predict(folder, [photo], tmp_path / f"{name}.csv", Options(raw=raw))
        found[name] = np.array([float(rows(tmp_path / f"{name}.csv")[0][c]) for c in ("red", "green", "blue")])
    logits = np.log(found["plain"] / (1 - found["plain"]))
    assert found["steep"] == pytest.approx(1 / (1 + np.exp(-(2 * logits + 1))), abs=1e-4)
    assert found["raw"] == pytest.approx(found["plain"], abs=1e-6)
    assert rows(tmp_path / "raw.csv")[0]["tags"] == rows(tmp_path / "steep.csv")[0]["tags"]


def test_thresholds_and_numbers_of_tags_are_changed_at_predict_time(model, pictures, tmp_path):
    from spml.cli import main

    photo = str(pictures.parent / "photos" / "3.png")

    def tags(*words):
        out = tmp_path / "tags.jsonl"
        assert main(["predict", str(model), photo, "--out", str(out), "--overwrite", *words]) == 0
        return json.loads(out.read_text())["tags"]

    assert tags("--threshold", "0") == ["red", "green", "blue"] and tags("--threshold", "1") == []
    assert tags("--threshold", "1", "--threshold", "blue=0") == ["blue"]
    order = tags("--top-k", "3")
    p = json.loads((tmp_path / "tags.jsonl").read_text())["probabilities"]
    assert sorted(p, key=p.get, reverse=True) == order
    assert tags("--threshold", "1", "--at-least", "1") == order[:1]
    assert tags("--top-k", "2", "--no-probabilities") == order[:2]
    assert "probabilities" not in json.loads((tmp_path / "tags.jsonl").read_text())


def test_paths_on_standard_input_and_rows_on_standard_output(model, pictures):
    photos = sorted((pictures.parent / "photos").iterdir())
    given = "\n".join(map(str, photos)) + "\n"
    done = spml("predict", model, "-", "--out", "-", "--format", "jsonl", input=given.encode())
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["image"] for line in done.stdout.splitlines()] == [str(photo) for photo in photos]
    given = "".join(f"{photo}\0" for photo in [*photos, pictures.parent / "gone.jpg"])
    done = spml("predict", model, "-", "-0", "--out", "-", input=given.encode())
    assert done.returncode == 2 and len(done.stdout.splitlines()) == 13
    assert b"gone.jpg: cannot be read" in done.stderr and b"1 of 13 inputs" in done.stderr


def test_a_reader_that_has_had_enough_is_no_error(model, pictures):
    photos = "\n".join([str(pictures.parent / "photos" / "1.png")] * 4000)
    command = [sys.executable, "-m", "spml.cli", "predict", str(model), "-", "--out", "-"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        writer = threading.Thread(target=feed, args=(process.stdin, photos.encode()))
        writer.start()
        assert process.stdout.readline().startswith(b"image,tags")
        process.stdout.close()
        error = process.stderr.read()
        writer.join()
    assert process.returncode == 141 and error == b""


def feed(stream, data):
    with contextlib.suppress(BrokenPipeError), stream:
        stream.write(data)


def test_bad_pictures_of_every_kind_do_not_stop_the_rest(model, tmp_path, capsys):
    from PIL import Image

    from spml.cli import main

    folder = tmp_path / "p"
    folder.mkdir()
    Image.new("RGB", (1, 1), "red").save(folder / "one.png")
    (folder / "text.jpg").write_text("no picture at all")
    (folder / "empty.jpg").write_bytes(b"")
    huge_png(folder / "huge.png")
    (folder / "loop.jpg").symlink_to("loop.jpg")
    (folder / "up").symlink_to("..")
    assert main(["predict", str(model), str(folder), "--out", str(tmp_path / "o.csv")]) == 2
    error = capsys.readouterr().err
    assert [Path(row["image"]).name for row in rows(tmp_path / "o.csv")] == ["one.png"]
    for text in ("text.jpg: not a picture", "empty.jpg: the file is empty", "above 179 megapixels", "symbolic links"):
        assert text in error
    assert "p/up/p: a link to a folder that was already read; not followed" in error
    assert "4 of 5 inputs could not be read" in error and "Traceback" not in error


def test_wrong_models_are_one_line_and_nothing_is_overwritten(model, pictures, tmp_path, capsys):
    from spml.cli import main

    out = tmp_path / "o.csv"
    out.write_text("mine")
    description = json.loads((model / "model.json").read_text())

    def refused(*words):
        assert main(["predict", str(model), str(pictures), "--out", str(out), *words]) == 2
        assert out.read_text() == "mine"
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        return error

    assert "already there" in refused()
    assert main(["predict", str(model), str(pictures), str(out), "--out", str(out), "--overwrite"]) == 2
    assert "o.csv is one of the inputs and would be replaced; give another --out" in capsys.readouterr().err
    (tmp_path / "names.txt").write_text("red\nblue\n")
    assert "2 classes, the model has 3" in refused("--overwrite", "--classes", str(tmp_path / "names.txt"))
    (model / "model.json").write_text(json.dumps({**description, "format": 99}))
    assert "newer version of spml" in refused("--overwrite")
    (model / "model.json").write_text(json.dumps({**description, "classes": ["red", "green"]}))
    assert "2 classes but 3 thresholds" in refused("--overwrite")
    (model / "model.json").write_text(json.dumps(description)[:50])
    assert "not a model description" in refused("--overwrite")
    (model / "model.json").write_text(json.dumps(description))
    weights = (model / "model.safetensors").read_bytes()
    (model / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    assert "model.safetensors" in refused("--overwrite")
    (model / "model.safetensors").unlink()
    assert "model.safetensors" in refused("--overwrite")


def test_classes_called_like_columns_are_told_apart(make_model, pictures, tmp_path):
    folder = make_model(classes=["image", "tags", "dog"])
    predict(folder, [pictures], tmp_path / "p.csv")
    first = rows(tmp_path / "p.csv")[0]
    assert list(first) == ["image", "tags", "class:image", "class:tags", "dog"] and first["image"].endswith("0.jpg")


def test_ten_times_as_many_files_take_no_more_memory(model, tmp_path, monkeypatch):
    """Python's own objects, of the whole command; the pictures themselves are bounded by the look-ahead."""
    monkeypatch.setattr(ahead, "decode", lambda path, size, upright: torch.zeros(3, size, size, dtype=torch.uint8))

    def peak(count):
        class Paths:
            left = count

            def read1(self, size):
                given, self.left = min(self.left, 50), self.left - min(self.left, 50)
                return "".join(f"/pictures/{self.left + i:09d}.jpg\n" for i in range(given)).encode()

        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=Paths()))
        tracemalloc.start()
        assert predict(model, ["-"], tmp_path / "out.csv") == count
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return used

    peak(300)  # what is imported and kept once
    assert peak(6000) < 1.25 * peak(600)


@pytest.mark.parametrize(
    ("error", "said", "message"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), UserError, "no room for 4 items; give a smaller --batch-size"),
        (RuntimeError("shapes differ"), RuntimeError, "shapes differ"),
    ],
)
def test_no_room_for_a_batch_is_one_line_and_other_errors_stay_as_they_are(monkeypatch, error, said, message):
    model, info = Classifier.build("tiny", 3), ModelInfo(["a", "b", "c"], "tiny", PICTURES, [0.5] * 3)

    def fail(x):
        raise error

    monkeypatch.setattr(model, "forward", fail)
    with pytest.raises(said, match=message):
        scorer(model, info, "cpu")(torch.zeros(4, 3, 16, 16, dtype=torch.uint8))


def test_a_gpu_is_given_larger_batches_and_is_left_cores_unless_told(monkeypatch):
    info = ModelInfo(["a"], "tiny", PICTURES, [0.5])
    for cores, on_gpu, on_cpu in ((16, 8, 8), (6, 4, 6), (2, 1, 2), (1, 1, 1)):
        monkeypatch.setattr("os.sched_getaffinity", lambda process, cores=cores: set(range(cores)), raising=False)
        assert [reader(info, None, None, device).threads for device in ("cuda", "cpu")] == [on_gpu, on_cpu]
    assert reader(info, None, 3, "cuda").threads == 3
    found = [reader(info, given, None, device).batch_size for given in (None, 7) for device in ("cpu", "cuda")]
    assert found == [32, 64, 7, 7]
