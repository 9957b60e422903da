import json
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

import spml
from spml.data.images.decode import decode, resize
from spml.errors import UserError
from spml.model import load_model
from spml.use.export import export as module
from spml.use.export.export import EXTRA_FILE, Portable, exact_resize, export, verify
from spml.use.predict.predict import predict
from tests.conftest import spml as command
from tests.use.conftest import write_model

PAGE = Path(__file__).parents[3] / "docs" / "export.md"
CURVED = [[[-1, 0, 2], [-3, 0.5, 1]], [[0, 1], [0, 2]], [[0, 1], [0, 1]]]


def session(path):
    import onnxruntime

    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize(
    "shape", [(1, 1), (2, 900), (7, 5), (16, 16), (33, 16), (16, 33), (375, 500), (640, 480)]
)
@pytest.mark.parametrize("size", [16, 40, 160])
def test_resizing_is_that_of_training_to_the_bit(shape, size):
    generator = torch.Generator().manual_seed(sum(shape) + size)
    pictures = torch.randint(0, 256, (2, 3, *shape), dtype=torch.uint8, generator=generator)
    assert torch.equal(exact_resize(pictures, size), resize(pictures, size).float())


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A calibrated model with three classes, and its ONNX file."""
    folder = tmp_path_factory.mktemp("exported")
    how = {"thresholds": [0.5, 0.0, 1.0], "training": {"method": "gr"}, "calibration": CURVED}
    model = write_model(folder / "model", **how)
    assert command(f"export {model} --out {folder}/photos.onnx") == 0
    return folder


def test_the_file_agrees_with_predict_on_pictures_of_any_size(exported, pictures, tmp_path):
    photos = sorted((pictures.parent / "photos").iterdir())
    predict(exported / "model", photos, tmp_path / "p.jsonl")
    lines = map(json.loads, (tmp_path / "p.jsonl").read_text().splitlines())
    expected = [list(line["probabilities"].values()) for line in lines]
    run = session(exported / "photos.onnx")
    for photo, wanted in zip(photos, expected, strict=True):
        pixels = decode(photo).permute(1, 2, 0).numpy()
        for batch in (1, 4):
            probabilities = run.run(["probabilities"], {"pictures": np.stack([pixels] * batch)})[0]
            assert probabilities == pytest.approx(np.array([wanted] * batch), abs=1e-4)


def test_the_metadata_hold_all_that_is_needed(exported):
    run = session(exported / "photos.onnx")
    stored = run.get_modelmeta().custom_metadata_map
    about = {name: json.loads(text) for name, text in stored.items()}
    assert about["classes"] == ["red", "green", "blue"] and about["thresholds"] == [0.5, 0.0, 1.0]
    assert about["calibrated"] is True
    assert about["method"] == "gr"
    assert about["spml"] == spml.__version__
    assert about["preprocessing"]["size"] == 16 and about["preprocessing"]["upright"] is True
    assert [(one.name, one.type) for one in run.get_inputs()] == [("pictures", "tensor(uint8)")]
    assert [one.name for one in run.get_outputs()] == ["logits", "probabilities"]


def test_the_example_of_the_page_runs_without_spml_or_torch(exported):
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len([line for line in example.splitlines() if line.strip()]) <= 10
    Image.new("RGB", (30, 20), "red").save(exported / "photo.jpg")
    code = f"{example}\nimport sys\nassert not {{'torch', 'spml'}} & set(sys.modules)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=exported)
    assert done.returncode == 0, done.stderr
    tags = done.stdout.strip()
    predict(exported / "model", [exported / "photo.jpg"], exported / "p.jsonl")
    assert tags == str(json.loads((exported / "p.jsonl").read_text())["tags"]) and "green" in tags


def test_grey_pictures_of_16_bits_are_read_as_the_page_says(exported, monkeypatch):
    (line,) = re.findall(r"^picture = np.stack.*$", PAGE.read_text(), re.MULTILINE)
    monkeypatch.chdir(exported)
    Image.fromarray(np.linspace(0, 65535, 600).reshape(20, 30).astype(np.uint16)).save("photo.png")
    known = {"np": np, "Image": Image, "ImageOps": ImageOps}
    exec(line, known)
    np.testing.assert_array_equal(known["picture"], decode(Path("photo.png")).permute(1, 2, 0))


@pytest.mark.parametrize("head", ["boostlu", "query", "query-normal:8"])
def test_every_head_can_be_exported(make_model, tmp_path, head):
    assert export(make_model(head=head), tmp_path / "m.onnx") <= 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("backbone", ["resnet18", "tf_efficientnet_lite0"])
def test_timm_backbones_can_be_exported(make_model, tmp_path, backbone):
    assert export(make_model(backbone=backbone), tmp_path / "m.onnx") <= 1e-4


def test_a_model_of_features_can_be_exported(make_model, tmp_path):
    folder = make_model(features=4)
    assert export(folder, tmp_path / "m.onnx") <= 1e-4
    x = np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32)
    model, _ = load_model(folder)
    logits = session(tmp_path / "m.onnx").run(["logits"], {"features": x})[0]
    assert logits == pytest.approx(model(torch.from_numpy(x)).numpy(), abs=1e-4)


def test_a_torch_program_agrees_with_the_model(exported, tmp_path):
    assert command(f"export {exported}/model --out {tmp_path}/m.pt2") == 0
    files = {EXTRA_FILE: ""}
    program = torch.export.load(tmp_path / "m.pt2", extra_files=files).module()
    x = torch.randint(0, 256, (3, 21, 34, 3), dtype=torch.uint8)
    onnx = session(tmp_path.parent / exported / "photos.onnx").run(None, {"pictures": x.numpy()})
    for one, other in zip(program(x), onnx, strict=True):
        assert one.numpy() == pytest.approx(other, abs=1e-4)
    about = json.loads(files[EXTRA_FILE])
    assert about["classes"] == ["red", "green", "blue"] and about["calibrated"] is True


@pytest.mark.parametrize(
    "what,name", [("resize", "m.onnx"), ("weights", "m.pt2"), ("calibration", "m.pt2")]
)
def test_a_file_that_differs_from_the_model_is_not_written(
    make_model, tmp_path, monkeypatch, what, name, refused
):
    folder = make_model(calibration=CURVED)
    forward = Portable.forward

    def off(self, inputs):
        if what == "resize":
            x = inputs.permute(0, 3, 1, 2).float()
            logits = self.model(torch.nn.functional.interpolate(x, size=(16, 16), mode="bilinear"))
            return logits, self.calibrate(logits).sigmoid()
        logits, probabilities = forward(self, inputs)
        return (logits + 1e-3, probabilities) if what == "weights" else (logits, logits.sigmoid())

    monkeypatch.setattr(Portable, "forward", off)
    (tmp_path / name).write_text("mine")
    before = sorted(path.name for path in tmp_path.iterdir())
    error = refused(f"export {folder} --out {tmp_path / name} --overwrite")
    assert "not written, as it differs from the model" in error
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert (tmp_path / name).read_text() == "mine"


def test_nan_and_failing_runs_count_as_differences(make_model, tmp_path):
    model, info = load_model(make_model())

    def nothing(x):
        return torch.full((len(x), 3), torch.nan), torch.full((len(x), 3), torch.nan)

    def broken(x):
        raise RuntimeError("no\nkernel")

    with pytest.raises(UserError, match="differs from the model"):
        verify(model, info, nothing, tmp_path / "m.onnx")
    with pytest.raises(UserError, match=r"does not run on \[1, 16, 16, 3\] \(no kernel\)"):
        verify(model, info, broken, tmp_path / "m.onnx")


def test_export_errors_are_one_line(make_model, tmp_path, monkeypatch, refused):
    monkeypatch.setattr(module, "exact_resize", lambda x, size: x.cpu().numpy())
    error = refused(f"export {make_model()} --out {tmp_path}/m.onnx")
    assert "tiny cannot be exported as onnx" in error
    assert not (tmp_path / "m.onnx").exists()


@pytest.mark.parametrize("missing", ["onnx", "onnxscript", "onnxruntime"])
def test_a_missing_extra_is_named(make_model, tmp_path, monkeypatch, refused, missing):
    monkeypatch.setitem(sys.modules, missing, None)  # an import of it then fails
    error = refused(f"export {make_model()} --out {tmp_path}/m.onnx")
    assert f"{missing} is not installed" in error and "pip install -e '.[export]'" in error


def test_existing_files_and_wrong_suffixes_are_refused(make_model, here, refused):
    folder = make_model()
    Path("model.onnx").write_text("mine")
    for words, message in {
        "": "already there",
        "--out m.pt": "m.pt: give a name that ends in .onnx for ONNX, or in .pt2 for torch.export",
        "--out m.pt2 --format onnx": "ends in .onnx",
        "--out m.onnx --format torch": "ends in .pt2",
    }.items():
        assert message in refused(f"export {folder} {words}")
    assert "nowhere" in refused("export nowhere --out m.onnx")
    assert Path("model.onnx").read_text() == "mine"
    assert sorted(path.name for path in here.iterdir()) == ["model", "model.onnx"]


@pytest.mark.parametrize(
    ("worst", "words"), [(0.0, "equal to the model's"), (3e-8, "within 3e-08 of the model's")]
)
def test_the_command_prints_the_largest_difference(
    make_model, tmp_path, monkeypatch, capsys, worst, words
):
    def export(run, out, kind):
        out.write_text("a model")
        return worst

    monkeypatch.setattr("spml.use.export.export.export", export)
    assert command(f"export {make_model()} --out {tmp_path}/m.onnx") == 0
    assert f"probabilities {words}" in capsys.readouterr().out


def test_many_batch_sizes_and_picture_sizes_are_checked(make_model, tmp_path):
    model, info = load_model(make_model())
    portable, batches = Portable(model, info).eval(), []

    def run(x):
        batches.append(x)
        return portable(x)

    assert verify(model, info, run, tmp_path / "m") < 1e-6
    shapes = ((16, 16), (1, 1), (37, 90), (480, 360))
    expected = [(batch, *shape, 3) for batch in (1, 2, 5) for shape in shapes]
    assert [tuple(x.shape) for x in batches] == expected
    assert all(x.dtype == torch.uint8 for x in batches)
    picture = batches[3]  # not one grey
    assert picture.min() < 60 and picture.max() > 190 and picture.float().std() > 20
    assert not torch.equal(batches[4][0], batches[4][1])
    features, about = load_model(make_model("features", features=4))
    assert verify(features, about, Portable(features, about).eval(), tmp_path / "m") < 1e-6


@pytest.mark.parametrize(
    ("bias", "part", "off", "refused"),
    [
        (0.0, 1, -5e-5, False),
        (0.0, 1, -2e-4, True),
        (0.0, 0, 5e-5, False),
        (0.0, 0, 2e-4, True),
        (100.0, 0, 5e-3, False),  # a ten-thousandth of a large logit is more
        (100.0, 0, 2e-2, True),
    ],
)
def test_the_tolerance_is_a_ten_thousandth(make_model, tmp_path, bias, part, off, refused):
    model, info = load_model(make_model(features=4))
    with torch.no_grad():
        model.head.weight.mul_(0.01)
        model.head.bias.fill_(bias)
    portable = Portable(model, info).eval()

    def run(x):
        outputs = list(portable(x))
        outputs[part] = outputs[part] + off * (torch.arange(3) == 2)  # one class of three
        return tuple(outputs)

    differs = pytest.raises(UserError, match="not written, as it differs from the model")
    with differs if refused else nullcontext():
        assert verify(model, info, run, tmp_path / "m") == pytest.approx(abs(off) * part, abs=1e-6)
