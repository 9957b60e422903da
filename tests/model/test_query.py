import json
import math
from pathlib import Path

import pytest
import torch
from torch import nn

from spml.data import load
from spml.model import Classifier, ModelInfo, load_model, save_model
from spml.model.classifier import build_head
from spml.model.query import EARLIER, RELEASED, Layer
from spml.runs.settings import group_key, mismatch
from spml.train import Settings, fit
from tests.conftest import noise, outcome, refused, spml

HEADS = ["query", "query-normal", "query-normal:3"]


def head(name="query", channels=8, classes=5):
    torch.manual_seed(0)
    return build_head(name, channels, classes).double().eval()


def positions(*shape, seed=1):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def normalised(x, norm):
    centred = x - x.mean(dim=-1, keepdim=True)
    scaled = centred / (centred.square().mean(dim=-1, keepdim=True) + norm.eps).sqrt()
    return scaled * norm.weight + norm.bias


def layer_by_hand(layer, vectors, seen, queries=None):
    """Four heads, each with a quarter of the channels, one vector of one item at a time.

    Queries are added to what asks and to nothing else.
    """
    asking = vectors if queries is None else vectors + queries
    attention, first, second = layer.attention, layer.feed[0], layer.feed[-1]
    weights, biases = attention.in_proj_weight.chunk(3), attention.in_proj_bias.chunk(3)
    result = torch.empty_like(vectors)
    for item in range(len(vectors)):
        for number in range(vectors.shape[1]):
            query = weights[0] @ asking[item, number] + biases[0]
            keys = [weights[1] @ x + biases[1] for x in seen[item]]
            values = [weights[2] @ x + biases[2] for x in seen[item]]
            parts = []
            for part in torch.arange(len(query)).chunk(4):
                scores = [
                    math.exp((query[part] @ k[part]).item() / math.sqrt(len(part))) for k in keys
                ]
                parts.append(
                    sum(s / sum(scores) * v[part] for s, v in zip(scores, values, strict=True))
                )
            attended = attention.out_proj.weight @ torch.cat(parts) + attention.out_proj.bias
            x = normalised(vectors[item, number] + attended, layer.after_attention)
            fed = second.weight @ (first.weight @ x + first.bias).clamp(min=0) + second.bias
            result[item, number] = normalised(x + fed, layer.after_feed)
    return result


def test_at_the_published_size_it_has_151_million_parameters():
    with torch.device("meta"):
        plain, normal = build_head("query", 2048, 80), build_head("query-normal", 2048, 80)
    width, fed = 2048, 8192
    one = 4 * (width * width + width) + 2 * width * fed + fed + width + 2 * 2 * width
    for built in (plain, normal):
        transformer = sum(
            p.numel() for layer in (built.encoder, *built.decoder) for p in layer.parameters()
        )
        assert transformer == 3 * one == pytest.approx(151e6, rel=0.01)
        assert built.queries.shape == (80, 2048)
    queries, norm = 80 * 2048, 2 * 2048
    assert sum(p.numel() for p in plain.parameters()) == 3 * one + queries + norm + 80 * 2049
    wide = 3 * one + queries + norm + 2049 * 2048 + 2049 * 512 + 80 * 257
    assert sum(p.numel() for p in normal.parameters()) == wide


def test_a_layer_by_loops():
    torch.manual_seed(0)
    layer = Layer(8).double().eval()
    vectors, seen = positions(2, 3, 8), positions(2, 6, 8, seed=2)
    torch.testing.assert_close(layer(vectors, seen), layer_by_hand(layer, vectors, seen))


def test_a_layer_on_positions_equals_torchs_encoder_layer():
    layer = Layer(8).double()
    theirs = nn.TransformerEncoderLayer(8, 4, 32, 0.1, batch_first=True).double()
    pairs = zip(layer.state_dict().values(), theirs.state_dict().items(), strict=True)
    theirs.load_state_dict({name: value for value, (name, _) in pairs})  # in the same order
    x = positions(2, 6, 8)
    torch.testing.assert_close(layer.eval()(x, x), theirs.eval()(x))


@pytest.mark.parametrize("name", ["query", "query-normal:3"])
def test_the_head_is_an_encoder_two_decoders_and_a_linear_layer_for_each_class(name):
    """The decoder starts from zeros, queries only ask, and a norm and a projection follow."""
    model, x = head(name), positions(2, 6, 8)
    seen = layer_by_hand(model.encoder, x, x)
    vectors = torch.zeros(2, 5, 8, dtype=torch.float64)
    for layer in model.decoder:
        vectors = layer_by_hand(layer, vectors, seen, model.queries.expand(2, -1, -1))
    vectors = normalised(vectors, model.norm)
    logits, shown = model.detailed(x)
    embedding = vectors
    if name != "query":
        first, _, second = model.projection
        hidden = (vectors @ first.weight.T + first.bias).clamp(min=0)
        embedding = (hidden @ second.weight.T + second.bias)[..., :3]  # then the deviations
    torch.testing.assert_close(shown[..., : embedding.shape[-1]], embedding)
    for item in range(2):
        for c in range(5):
            expected = model.read.weight[c] @ embedding[item, c] + model.read.bias[c]
            assert logits[item, c].item() == pytest.approx(expected.item())
    assert torch.equal(model(x), logits)


def test_new_label_embeddings_depend_on_the_picture():
    """Nearly all of their variance is between pictures; in the earlier structure it is 14 %."""
    shares = {}
    for structure in (RELEASED, EARLIER):
        torch.manual_seed(0)
        model = build_head("query", 64, 10, structure).double().eval()
        embeddings = model.labels(positions(32, 9, 64)).detach()  # (pictures, classes, width)
        between = embeddings - embeddings.mean(dim=0)
        shares[structure] = (between.square().sum() / centred(embeddings).square().sum()).item()
    assert shares[RELEASED] > 0.8 and shares[EARLIER] < 0.2


def centred(embeddings):
    return embeddings - embeddings.mean(dim=(0, 1))


def test_layers_are_initialised_by_glorots_rule():
    torch.manual_seed(0)
    model = build_head("query", 64, 4)
    for layer in (model.encoder, *model.decoder):
        for weight in (p for p in layer.parameters() if p.ndim > 1):
            bound = math.sqrt(6 / sum(weight.shape))
            assert 0.95 * bound < weight.abs().max() <= bound


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("query", [[-0.1252629, 1.1944800, -0.4206400], [-0.1252456, 1.1944642, -0.4206289]]),
        (
            "query-normal:3",
            [[0.1952364, 0.1578629, -0.0110343], [0.1952393, 0.1578592, -0.0110334]],
        ),
    ],
)
def test_a_model_stored_before_its_structure_was_recorded_loads_unchanged(tmp_path, name, expected):
    """The logits are those of the code that stored such models."""
    model = Classifier.build("linear", 3, features=4, head=name, structure=EARLIER)
    state = {}
    for number, (key, value) in enumerate(sorted(model.state_dict().items())):
        numbers = torch.arange(value.numel(), dtype=torch.float64).add(number).mul(0.7).sin()
        state[key] = (numbers.view(value.shape) / 2).float()
    state |= {"std": torch.ones(1, 4), "mean": torch.zeros(1, 4)}
    preprocessing = {"kind": "features", "features": 4, "size": None, "upright": True}
    info = ModelInfo(list("abc"), "linear", preprocessing, [0.5] * 3, head=name)
    save_model(tmp_path, state, info)
    stored = json.loads((tmp_path / "model.json").read_text())
    assert stored.pop("head_structure") == RELEASED
    (tmp_path / "model.json").write_text(json.dumps(stored))
    again, described = load_model(tmp_path)
    assert described.head_structure == EARLIER
    x = torch.tensor([[1.0, -2.0, 0.5, 3.0], [0.0, 1.0, 2.0, -1.0]], dtype=torch.float64)
    torch.testing.assert_close(again.double()(x).tolist(), expected, rtol=0, atol=1e-6)


def test_a_run_with_the_earlier_structure_does_not_resume_or_count_as_a_repetition():
    before = {"head": "query", "method": "an", "lr": 0.001}
    now = {**before, "head_structure": RELEASED}
    assert mismatch(before, now) == "another structure of its query head"
    assert mismatch(now, now) is None and group_key(before) != group_key(now)


def test_deviations_of_embeddings_and_logits_by_loops():
    model, x = head("query-normal:3"), positions(2, 6, 8)
    model.projection[-1].weight.data[3:] *= 90  # some at the ends of their range
    _, shown = model.detailed(x)
    assert shown.shape == (2, 5, 7)
    raw = model.projection(model.labels(x))[..., 3:].tolist()
    ends = 0
    for item in range(2):
        for c in range(5):
            logs = [min(max(a / 2, -6), 6) for a in raw[item][c]]
            ends += sum(abs(value) == 6 for value in logs)
            assert shown[item, c, 3:6].tolist() == pytest.approx(logs)
            variance = sum(
                (w * math.exp(s)) ** 2
                for w, s in zip(model.read.weight[c].tolist(), logs, strict=True)
            )
            assert shown[item, c, 6].item() == pytest.approx(math.sqrt(variance / 10))
    assert 0 < ends < 30


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_finite_at_the_ends_of_deviations(dtype):
    model = head("query-normal:3").float()
    for end in (-1e4, 1e4):
        model.projection[-1].bias.data[3:] = end
        with torch.autocast("cpu", dtype):
            logits, shown = model.detailed(positions(2, 6, 8).float())
        assert logits.isfinite().all() and shown.isfinite().all() and (shown[..., -1] > 0).all()


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("training", [False, True])
def test_one_step_moves_every_parameter(name, training):
    torch.manual_seed(0)
    model = Classifier.build("tiny", 4, head=name).train(training)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    before = {key: value.clone() for key, value in model.named_parameters()}
    logits, shown = model(noise(4, 3, 24, 24), True)
    (logits.square().mean() + shown.square().mean()).backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, key
    optimizer.step()
    assert all(not torch.equal(value, before[key]) for key, value in model.named_parameters())


def test_logits_alone_reach_all_but_the_deviations():
    model = head("query-normal:3")
    model(positions(2, 6, 8)).sum().backward()
    last = model.projection[-1]
    for slope in (last.weight.grad, last.bias.grad):
        assert (slope[:3] != 0).any() and (slope[3:] == 0).all()
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("name", HEADS)
def test_the_order_of_positions_does_not_matter(name):
    model, x = head(name), positions(2, 9, 8)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(0))
    for ours, theirs in zip(model.detailed(x), model.detailed(x[:, order]), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)
    assert not torch.allclose(model(x), model(positions(2, 9, 8, seed=5)), atol=1e-3)


@pytest.mark.parametrize("name", HEADS)
def test_a_class_does_not_look_at_other_queries(name):
    model, x = head(name), positions(2, 9, 8)
    before = model.detailed(x)
    model.queries.data[[0, 1, 3, 4]] = positions(4, 8, seed=6)
    after = model.detailed(x)
    for old, new in zip(before, after, strict=True):
        torch.testing.assert_close(old[:, 2], new[:, 2], rtol=1e-10, atol=1e-10)
        assert not torch.allclose(old[:, 1], new[:, 1], atol=1e-3)


@pytest.mark.parametrize("name", HEADS)
def test_an_item_depends_neither_on_its_batch_nor_on_the_mode(name):
    model, x = head(name), positions(4, 9, 8)
    torch.testing.assert_close(model(x)[2:3], model(x[2:3]))
    torch.testing.assert_close(model.train()(x), model.eval()(x))


@pytest.mark.parametrize(
    ("backbone", "name", "size"),
    [
        ("tiny", "query", 64),
        ("tiny", "query-normal", 513),
        ("resnet18", "query-normal:3", 7),
        ("vit_tiny_patch16_224", "query-normal:3", 7),
        ("swin_tiny_patch4_window7_224", "query-normal:3", 7),
    ],
)
def test_query_heads_work_with_any_kind_of_backbone(backbone, name, size):
    torch.manual_seed(0)
    model = Classifier.build(backbone, 3, head=name).eval()
    x = noise(2, 3, 40, 40) if backbone == "tiny" else noise(2, 3, 224, 224)
    with torch.inference_mode():
        logits, shown = model(x, True)
        torch.testing.assert_close(model(x), logits)
    assert logits.shape == (2, 3) and shown.shape == (2, 3, size)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("querry", "no head 'querry'; give --head linear or boostlu or query or query-normal"),
        ("query:64", "no head 'query:64'"),
        ("linear:3", "no head 'linear:3'"),
        ("query-normal:", "'' is no size; give a whole number above 0, as in query-normal:64"),
        ("query-normal:0", "'0' is no size"),
        ("query-normal:-4", "'-4' is no size"),
        ("query-normal:many", "'many' is no size"),
    ],
)
def test_invalid_head_names_are_refused(name, message):
    with refused(message):
        build_head(name, 8, 3)


@pytest.mark.parametrize("name", HEADS)
def test_channels_that_attention_heads_do_not_divide_are_refused(name):
    with refused(r"4 equal parts, which 6 channels do not allow; .*--head"):
        Classifier.build("linear", 3, features=6, head=name)


@pytest.mark.parametrize("name", HEADS)
def test_a_feature_vector_is_one_position(name):
    torch.manual_seed(0)
    model = Classifier.build("linear", 3, features=8, head=name).eval()
    x = torch.randn(4, 8)
    logits, shown = model(x, True)
    assert torch.equal(model.head.detailed(x[:, None])[0], logits)
    assert logits.shape == (4, 3)
    assert shown.ndim == 3


def test_a_run_on_feature_vectors_supports_query_heads(features_file, tmp_path):
    settings = Settings(
        method="an", head="query", lr=1e-3, head_lr=1, batch_size=16, epochs=2, accelerator="cpu"
    )
    result = fit(load(features_file, labels="complete"), settings, tmp_path / "run", quiet=True)
    assert result["head"] == "query" and result["test_map"] > 0


def test_a_trained_model_predicts_and_is_evaluated_by_the_commands(pictures, scenes_file, here):
    head = "--head query-normal:4 --method an --lr 1e-3 --head-lr 1"
    small = "--backbone tiny --epochs 1 --accelerator cpu --quiet"
    assert spml(f"train {pictures} {small} {head} --size 16 --out run") == 0
    model, info = load_model("run")
    assert info.head == "query-normal:4" and model.head.projection[-1].out_features == 8
    for out in ("one.csv", "two.csv"):
        assert spml(f"predict run {pictures} --out {out}") == 0
    assert Path("one.csv").read_bytes() == Path("two.csv").read_bytes()
    assert len(Path("one.csv").read_text().splitlines()) == 13
    assert spml(f"train {scenes_file} --labels complete {small} {head} --out scenes") == 0
    assert spml("eval scenes --split test") == 0
    evaluated = json.loads(Path("scenes/eval-test.json").read_text())["metrics"]
    assert evaluated["map"] == pytest.approx(outcome(Path("scenes"))["test_map"], abs=1e-6)
