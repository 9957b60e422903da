import json

import pytest
import torch

from spml import losses
from spml.files import read_json
from spml.model import Classifier, load_model
from spml.model.classifier import BoostLU
from tests.conftest import noise, refused


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
