"""The classifier: backbones, weights, class maps and the BoostLU head."""

import json
import logging

import pytest
import torch
from safetensors.torch import save_file

from spml import losses
from spml.files import read_json
from spml.model import Classifier, load_model
from spml.model.backbones import PACKAGED, build_backbone
from spml.model.classifier import BoostLU
from tests.conftest import noise, refused

# height and width of the map of 224 px
SIDES = {"tiny": 56, "resnet18": 7, "vit_tiny_patch16_224": 14, "swin_tiny_patch4_window7_224": 7}


@pytest.mark.parametrize("backbone", SIDES)
def test_any_kind_of_backbone_gives_logits(backbone):
    torch.manual_seed(0)
    model = Classifier.build(backbone, 7).eval()
    x = noise(2, 3, 224, 224)
    logits = model(x)
    assert logits.shape == (2, 7)
    assert torch.allclose(model(x[:1]), logits[:1], atol=1e-4)  # a batch of one keeps its axis


def test_the_head_is_the_mean_of_the_map_then_a_linear_layer():
    model = Classifier.build("tiny", 4).eval()
    x = noise(3, 3, 40, 40)
    features = model.backbone((x.float() / 255 - 0.5) / 0.5)
    assert torch.allclose(model.features(x), features, atol=1e-5)
    assert torch.allclose(
        model(x), features.mean((2, 3)) @ model.head.weight.T + model.head.bias, atol=1e-4
    )


@pytest.mark.parametrize("head", ["linear", "boostlu", "query"])
def test_logits_of_evaluation_are_not_rounded_to_half_precision(head):
    torch.manual_seed(0)
    model = Classifier.build("tiny", 4, head=head)
    rounded = {}
    for training in (True, False):
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
            logits = model.train(training)(noise(64, 3, 32, 32)).float()
        rounded[training] = torch.equal(logits, logits.bfloat16().float())
    assert rounded == {True: head != "query", False: False}


def test_normalisation_is_the_backbones_own():
    model = Classifier.build("resnet50", 2)
    x = noise(1, 3, 8, 8)
    mean = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
    expected = (x / 255 - mean) / torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
    assert torch.allclose((x.float() - model.mean) / model.std, expected, atol=1e-6)


def test_the_protocols_resnet50_is_the_one_with_torchvisions_weights():
    backbone = build_backbone("resnet50", "none")
    assert backbone.network.pretrained_cfg["tag"] == "tv_in1k"


def test_features_are_standardised_by_the_training_rows():
    model = Classifier.build("linear", 3, features=4)
    x = torch.randn(50, 4) * torch.tensor([1, 10, 100, 0]) + 5
    model.standardise(x)
    z = model.features(x)
    assert torch.allclose(z.mean(0), torch.zeros(4), atol=1e-5)
    assert torch.allclose(z.std(0, correction=0), torch.tensor([1.0, 1, 1, 0]), atol=1e-5)


@pytest.mark.parametrize(
    ("name", "weights", "features", "message"),
    [
        ("resnet5", "none", None, r"no backbone 'resnet5'; '\w+'\?"),
        ("linear", "none", None, "takes feature vectors, not pictures"),
        ("tiny", "none", 8, "take the backbone 'linear'"),
        ("tiny", "pretrained", None, "no pretrained weights"),
        ("tiny", "gone.pth", None, "gone.pth: no such file of weights"),
        ("resnet18", "pretrained", None, r"cannot be reached .*--weights FILE or .*tf_eff.*pip"),
    ],
)
def test_models_that_cannot_be_built_are_refused_in_one_line(name, weights, features, message):
    with refused(message) as caught:
        build_backbone(name, weights, features)
    assert "\n" not in str(caught.value)


def test_weights_are_loaded_by_name_and_else_by_order(tmp_path):
    source = build_backbone("tiny", "none").network.state_dict()
    torch.save(source, tmp_path / "named.pth")
    ordered = {f"x{i}": value for i, value in enumerate(source.values())}
    torch.save(ordered, tmp_path / "ordered.pth")
    torch.save({"state_dict": source}, tmp_path / "wrapped.pth")
    whole = {"model": {"head.bias": torch.ones(3), **source}}  # with another head
    torch.save(whole, tmp_path / "whole.pth")
    torch.save({**ordered, "last": torch.ones(3)}, tmp_path / "longer.pth")
    save_file(source, tmp_path / "plain.safetensors")
    for path in [*tmp_path.glob("*.pth"), tmp_path / "plain.safetensors"]:
        loaded = build_backbone("tiny", str(path)).network.state_dict()
        assert all(torch.equal(loaded[name], value) for name, value in source.items()), path


class Malicious:
    def __reduce__(self):
        return (print, ("executed",))


def test_other_files_of_weights_are_refused_without_running_code(tmp_path, capsys):
    source = build_backbone("tiny", "none").network.state_dict()
    torch.save(dict(list(source.items())[:5]), tmp_path / "few.pth")
    torch.save({**source, "0.weight": torch.zeros(1)}, tmp_path / "shape.pth")
    turned = [source["0.weight"].transpose(0, 1), *list(source.values())[1:]]
    torch.save({f"x{i}": value for i, value in enumerate(turned)}, tmp_path / "turned.pth")
    torch.save({"a": Malicious()}, tmp_path / "code.pth")
    (tmp_path / "photo.jpg").write_bytes(b"\xff\xd8\xff\xe0\0\x10JFIF")
    (tmp_path / "text.safetensors").write_text("hello")
    torch.save([1, 2], tmp_path / "list.pth")
    expected = {
        "few.pth": "not weights of this backbone",
        "shape.pth": r"'0.weight' has shape \(1,\), not \(16, 3, 3, 3\)",
        "turned.pth": "not weights of this backbone: .* are not there, first '0.weight'",
        "code.pth": r"not a file of weights \(torch .* it holds more than tensors; nothing",
        "photo.jpg": r"not a file of weights \(torch cannot read it, .*\); give a state dict",
        "text.safetensors": "not a file of weights",
        "list.pth": "holds no table of tensors",
    }
    for name, message in expected.items():
        with refused(message):
            build_backbone("tiny", str(tmp_path / name))
    assert "executed" not in capsys.readouterr().out


def test_library_messages_are_silenced_only_inside_the_block():
    with refused("cannot be reached"):
        build_backbone("resnet18", "pretrained")
    assert logging.getLogger("timm").isEnabledFor(logging.CRITICAL)


def test_a_packaged_file_serves_as_pretrained_weights(tmp_path, monkeypatch):
    source = build_backbone("tf_efficientnet_lite0", "none").network.state_dict()
    path = tmp_path / "lite0.pth"
    torch.save(
        {f"x{i}": torch.full_like(value, 0.5) for i, value in enumerate(source.values())}, path
    )
    (tmp_path / "lite0_package.py").write_text(
        "class Holder:\n    @staticmethod\n    def get_model_file_path():\n"
        f"        return {str(path)!r}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(PACKAGED, "tf_efficientnet_lite0", ("lite0_package", "Holder"))
    backbone = build_backbone("tf_efficientnet_lite0", "pretrained")
    assert backbone.mean == backbone.std == (0.5, 0.5, 0.5)
    assert (backbone.network.conv_stem.weight == 0.5).all()


@pytest.mark.parametrize("backbone", SIDES)
@pytest.mark.parametrize("head", ["linear", "boostlu"])
def test_a_class_map_is_the_linear_layer_at_each_position(backbone, head):
    torch.manual_seed(0)
    model = Classifier.build(backbone, 5, head=head).eval().requires_grad_(False)
    x = noise(2, 3, 224, 224)
    features = model.features(x)
    logits, maps = model.detailed(features)
    both = model(x, True)
    assert torch.equal(both[0], logits) and torch.equal(both[1], maps)
    torch.testing.assert_close(model(x), logits)
    side = SIDES[backbone]
    assert maps.shape == (2, 5, side, side)
    pooled = maps if head == "linear" else torch.where(maps > 0, 5 * maps, maps)
    torch.testing.assert_close(pooled.mean(dim=(2, 3)), logits, rtol=0, atol=1e-5)
    y, x_ = side - 1, 1
    at = {  # features of one position, as each kind of backbone gives them
        "vit_tiny_patch16_224": lambda: features[1, 1 + y * side + x_],
        "swin_tiny_patch4_window7_224": lambda: features[1, y, x_],
    }.get(backbone, lambda: features[1, :, y, x_])()
    torch.testing.assert_close(
        maps[1, :, y, x_], model.head.weight @ at + model.head.bias, rtol=0, atol=1e-5
    )


def test_maps_that_are_not_square_keep_their_height_and_width():
    model = Classifier.build("tiny", 4).eval()
    features = torch.randn(2, 64, 3, 5)
    logits, maps = model.detailed(features)
    assert maps.shape == (2, 4, 3, 5)
    last = model.detailed(features.permute(0, 2, 3, 1))  # the same map, channels last
    torch.testing.assert_close(last[0], logits)
    torch.testing.assert_close(last[1], maps)


def test_features_that_cannot_be_pooled_are_refused():
    model = Classifier.build("tiny", 4)
    with refused(r"gives \(2, 64, 1, 3, 3\), which cannot be pooled"):
        model.head_input(torch.zeros(2, 64, 1, 3, 3))


def test_feature_vectors_are_returned_unchanged():
    model = Classifier.build("linear", 3, features=4).eval()
    model.standardise(torch.randn(50, 4) * 3 + 1)
    x = torch.randn(6, 4)
    logits, shown = model(x, True)
    assert torch.equal(shown, model.features(x)) and torch.equal(logits, model(x))


def twins(backbone):
    """A classifier with each head and the same weights."""
    torch.manual_seed(0)
    linear = Classifier.build(backbone, 4)
    boosted = Classifier.build(backbone, 4, head="boostlu")
    boosted.load_state_dict(linear.state_dict())
    return linear.eval(), boosted.eval()


@pytest.mark.parametrize(
    "backbone", ["tiny", "resnet18", "vit_tiny_patch16_224", "swin_tiny_patch4_window7_224"]
)
def test_without_boost_it_is_pooling_and_a_linear_layer(backbone, monkeypatch):
    linear, boosted = (model.double() for model in twins(backbone))
    x = noise(2, 3, 224, 224)
    expected = linear(x)
    assert not torch.allclose(boosted(x), expected, atol=1e-3)
    monkeypatch.setattr(BoostLU, "alpha", 1.0)
    torch.testing.assert_close(boosted(x), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("training", [False, True])
def test_the_formula_by_loops(training):
    model = twins("tiny")[1].train(training)
    maps = torch.randn(2, 64, 3, 5)
    weight, bias = model.head.weight.tolist(), model.head.bias.tolist()
    logits = model.head(model.head_input(maps))
    for item in range(2):
        for c in range(4):
            total = 0.0
            for y in range(3):
                for x in range(5):
                    value = bias[c] + sum(
                        w * v for w, v in zip(weight[c], maps[item, :, y, x].tolist(), strict=True)
                    )
                    total += 5 * value if value > 0 else value
            assert logits[item, c].item() == pytest.approx(total / 15, abs=1e-4)


def test_channels_last_and_tokens_are_the_same_positions():
    model = twins("tiny")[1]
    maps = torch.randn(2, 64, 3, 5)
    expected = model.positions(maps)
    assert torch.equal(model.positions(maps.permute(0, 2, 3, 1)), expected)
    model.backbone.num_prefix_tokens = 1
    assert torch.equal(
        model.positions(torch.cat([torch.zeros(2, 1, 64), expected], dim=1)), expected
    )


def test_the_gradient_reaches_head_and_backbone():
    model = Classifier.build("tiny", 4, head="boostlu")
    losses.create("gr")(model(noise(4, 3, 16, 16)), torch.eye(4), epoch=1, epochs=2).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


def test_backbones_without_a_feature_map_are_refused():
    with refused(r"--head boostlu needs a feature map, .*--backbone linear.*--head linear"):
        Classifier.build("linear", 3, features=4, head="boostlu")
    model = Classifier.build("tiny", 3, head="boostlu")
    model.backbone = torch.nn.Sequential(
        model.backbone, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    )
    with refused(r"\(2, 64\), which is no feature map; give --head linear"):
        model(noise(2, 3, 16, 16))
    with refused("no head 'boost'; give --head linear or boostlu"):
        Classifier.build("tiny", 3, head="boost")


def test_method_boostlu_is_ll_r_with_the_boostlu_head(train, tmp_path):
    assert losses.head("boostlu") == "boostlu"
    assert losses.head("gr") is losses.head("role") is None
    z, s = torch.randn(6, 5), torch.eye(6, 5)
    call = {"epoch": 4, "epochs": 5}
    ours, plain = (losses.create(name, delta=0.1)(z, s, **call) for name in ("boostlu", "ll_r"))
    assert torch.equal(ours, plain)
    options = {"delta": 0.01}
    alone = train("alone", method="boostlu", options=options)
    general = train("general", method="ll_r", head="boostlu", options=options)
    plain = train("plain", method="boostlu", head="linear", options=options)
    assert alone["head"] == general["head"] == "boostlu" and plain["head"] == "linear"
    assert alone["per_class_ap"] == general["per_class_ap"] != plain["per_class_ap"]
    for name in ("config.json", "best/model.json"):
        assert read_json(tmp_path / "alone" / name)["head"] == "boostlu"
    assert isinstance(load_model(tmp_path / "alone")[0].head, BoostLU)


def test_a_model_stored_without_a_head_is_linear(finished, run):
    path = run / "best" / "model.json"
    values = json.loads(path.read_text())
    assert values.pop("head") == "linear"
    path.write_text(json.dumps(values))
    assert load_model(run)[1] == load_model(finished)[1]
