import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from spml.data.pictures import decode
from spml.errors import DataError, UserError
from spml.model import Classifier, ModelInfo, load_model, save_model
from spml.use.predict import predict

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
        assert predict(model, given, out, batch_size=5) == 12
        found = {Path(row["image"]).name: row for row in rows(out)}
        assert len(found) == 12 and list(rows(out)[0]) == ["image", "tags", "red", "green", "blue"]
        classifier, _ = load_model(model)
        p = classifier(decode(folder / "3.png", 16)[None]).sigmoid()[0]
        assert [float(found["3.png"][c]) for c in ("red", "green", "blue")] == pytest.approx(p.tolist(), abs=1e-5)
        assert ("green" in found["3.png"]["tags"].split("|")) and "blue" not in found["3.png"]["tags"]


def test_parquet_holds_the_same(model, pictures, tmp_path):
    import pyarrow.parquet as pq

    predict(model, [pictures], tmp_path / "p.parquet", batch_size=5)
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
    written = predict(model, [pictures], tmp_path / "p.csv", on_error=lambda row, error: told.append(str(error)))
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
    with pytest.raises(UserError, match=r"takes \.npz files"):
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
    with pytest.raises(UserError, match=r"as .csv or .parquet"):
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
        predict(model, [tmp_path / "gone.jpg"], tmp_path / "out.csv", on_error=lambda row, error: None)
    with pytest.raises(UserError, match="--batch-size"):
        predict(model, [tmp_path / "gone.jpg"], tmp_path / "out.csv", batch_size=0)
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
