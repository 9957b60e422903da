"""SMILE's two forms against plain loops, term by term."""

import copy
import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import StandardScaler

from spml import losses
from spml.cli import main
from spml.data import LabelTable, load
from spml.errors import UserError
from spml.losses.presets import DATASETS
from spml.methods import smile_graph, smile_image, smile_table
from spml.methods.smile_graph import nearest
from spml.train import fit
from tests.conftest import assert_resumes, outcome
from tests.losses.common import embeddings, random_batch, value_and_gradient
from tests.methods.test_contrastive import by_loops, entries

ITEMS, FEATURES, CLASSES = 12, 5, 4
INDEX = torch.tensor([3, 0, 7, 11, 8, 2])
TABLE = {"mu": 0.3, "pi0": 0.07, "rate": 0.4, "gamma": 0.2, "delta": 0.6, "temperature": 1.7}
IMAGE = {"alpha": 0.3, "beta": 0.2, "theta": 0.7, "lam": 0.4, "kl_embedding": 0.05, "kl_beta": 0.06}


def features(items=ITEMS, width=FEATURES, seed=0):
    return torch.randn(items, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2 + 1


def table_form(observed=None, items=ITEMS, classes=CLASSES, **options):
    """In float64, with parameters that are always the same."""
    torch.manual_seed(0)
    observed = torch.zeros(items, classes) if observed is None else observed
    given = {"items": items, "classes": classes, "observed": observed}
    return losses.create("smile", x=options.pop("x", features(items)), **given, **options).double()


def image_form(items=ITEMS, classes=CLASSES, size=3, **options):
    given = {"items": items, "classes": classes, "observed": torch.zeros(items, classes)}
    made = losses.create("smile", **given, **options)
    torch.manual_seed(0)
    made.prepare(torch.zeros(1, classes, 2 * size + 1))
    return made.double()


def softplus(z):
    return max(z, 0) + math.log1p(math.exp(-abs(z)))


def sigmoid(z):
    return 1 / (1 + math.exp(-z))


def an(z, s):
    return softplus(-z) if s == 1 else softplus(z)


def soft(z, target):
    return target * softplus(-z) + (1 - target) * softplus(z)


def layer(linear, vector):
    weight, bias = linear.weight.tolist(), linear.bias.tolist()
    return [sum(w * x for w, x in zip(row, vector, strict=True)) + b for row, b in zip(weight, bias, strict=True)]


def relu(vector):
    return [max(value, 0.0) for value in vector]


def kl(a, b):
    def digamma(x):
        return torch.digamma(torch.tensor(x, dtype=torch.float64)).item()

    logs = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    return logs + (a - 1) * digamma(a) + (b - 1) * digamma(b) - (a + b - 2) * digamma(a + b)


class WholeGraph:
    """d of every item by plain loops: the adjacency matrix, self-loops, rows divided by their sums, two layers."""

    def __init__(self, method, x, k=3):
        self.part, self.x = method.form.enhancement, x.tolist()
        n = len(self.x)
        self.adjacency = [[0] * n for _ in range(n)]
        for i in range(n):
            others = sorted((math.dist(self.x[i], self.x[j]), j) for j in range(n) if j != i)
            for _, j in others[:k]:
                self.adjacency[i][j] = 1
        self.weights = [[(self.adjacency[i][j] + (i == j)) / (k + 1) for j in range(n)] for i in range(n)]

    def spread(self, rows):
        width = range(len(rows[0]))
        return [
            [sum(w * row[c] for w, row in zip(weights, rows, strict=True)) for c in width] for weights in self.weights
        ]

    def level(self):
        once = self.spread([layer(self.part.first, row) for row in self.x])
        twice = self.spread([layer(self.part.second, relu(row)) for row in once])
        return [layer(self.part.last, relu(row)) for row in twice]

    def restored(self, i, d):
        h = layer(self.part.encode[2], relu(layer(self.part.encode[0], self.x[i] + d)))
        return layer(self.part.decode[2], relu(layer(self.part.decode[0], d + h)))


def table_by_loops(method, x, logits, observed, drawn=None, *, mu, pi0, rate, gamma, delta, temperature):
    """Section by section of the loss on feature vectors; `drawn` are logits of the sampled labels."""
    graph, z, s, index = WholeGraph(method, x), logits.tolist(), observed.tolist(), INDEX.tolist()
    level = [[value / temperature for value in row] for row in graph.level()]
    batch, classes = range(len(index)), range(CLASSES)
    total_classifier = total_d = total_y = total_kl = total_x = total_graph = 0.0
    y = []
    for b in batch:
        d = [sigmoid(value) for value in level[index[b]]]
        means = [math.log((value + 1e-5) / (1 - value + 1e-5)) for value in d]
        out = means if drawn is None else drawn[b].tolist()
        y.append([sigmoid(value) for value in out])
        for c in classes:
            label = s[b][c]
            target = {1: mu * d[c] + (1 - mu), 0: mu * d[c] + (1 - mu) * pi0, -1: 0.0}[label]
            total_classifier += (rate if label == 0 else 1.0) * soft(z[b][c], target)
            total_d += an(level[index[b]][c], label)
            total_y += an(out[c], label)
            total_kl += kl(d[c] + 1e-5, 1 - d[c] + 1e-5)
        for found, wanted in zip(graph.restored(index[b], d), graph.x[index[b]], strict=True):
            total_x += (found - wanted) ** 2
    for b in batch:
        for other in batch:
            found = sum(y[b][c] * y[other][c] for c in classes)
            total_graph += (found - graph.adjacency[index[b]][index[other]]) ** 2
    n = len(index) * CLASSES
    again = total_x / (len(index) * FEATURES) + total_y / n + total_graph / len(index) ** 2
    return total_classifier / n + total_d / n + gamma * again + delta * total_kl / n


class TestOnFeatureVectors:
    logits, observed = random_batch(len(INDEX), CLASSES)
    x = features()

    @pytest.mark.parametrize("given", [False, True])
    @pytest.mark.parametrize("changed", [{}, *({name: 0.0} for name in TABLE if name != "temperature"), {"mu": 1.0}])
    def test_the_loss_is_its_formula(self, monkeypatch, given, changed):
        drawn = torch.randn(len(INDEX), CLASSES, dtype=torch.float64) * 3 if given else None
        options = {**TABLE, **changed}
        method = table_form(sample=given, standardise=False, x=self.x, **options)
        monkeypatch.setattr(smile_table, "draw", lambda a, b, index, salt: drawn)
        value = method(self.logits, self.observed, index=INDEX, epoch=1, epochs=3)
        expected = table_by_loops(method, self.x.float().double(), self.logits, self.observed, drawn, **options)
        assert value.item() == pytest.approx(expected, rel=1e-9)

    @pytest.mark.parametrize("name", TABLE)
    def test_each_coefficient_changes_the_value(self, name):
        value = table_form(**TABLE)(self.logits, self.observed, index=INDEX).item()
        other = table_form(**{**TABLE, name: TABLE[name] / 2})(self.logits, self.observed, index=INDEX).item()
        assert abs(other - value) > 1e-4

    def test_the_draw_is_that_of_the_beta_distribution(self, monkeypatch):
        asked = []

        def spy(a, b, index, salt):
            asked.append((a, b, index, salt))
            return a.log() - b.log()

        method = table_form(**TABLE)
        method.salt = 77
        monkeypatch.setattr(smile_table, "draw", spy)
        method(self.logits, self.observed, index=INDEX)
        d = (method.form.enhancement(INDEX) / TABLE["temperature"]).sigmoid()
        torch.testing.assert_close(asked[0][0], d + 1e-5)
        torch.testing.assert_close(asked[0][1], 1 - d + 1e-5)
        assert asked[0][2] is INDEX and asked[0][3] == 77

    def test_the_released_divergence_is_offered(self):
        values = {}
        for which in ("correct", "released"):
            method = table_form(kl=which, sample=False, **TABLE)
            values[which] = method(self.logits, self.observed, index=INDEX).item()
        d = (method.form.enhancement(INDEX) / TABLE["temperature"]).sigmoid().flatten().tolist()
        wrong = [math.lgamma(p) + math.lgamma(1 - p) for p in d]
        gap = sum(2 * logs - 0.5772156649 * -1 for logs in wrong) / len(d)
        assert values["released"] - values["correct"] == pytest.approx(TABLE["delta"] * gap, abs=1e-3)

    def test_classifier_and_enhancement_do_not_train_each_other(self):
        method = table_form(**TABLE)
        slopes = []
        for logits in (self.logits, self.logits + 5):
            z = logits.clone().requires_grad_()
            method.zero_grad()
            method(z, self.observed, index=INDEX).backward()
            slopes.append([parameter.grad.clone() for parameter in method.parameters()])
        for first, second in zip(*slopes, strict=True):
            assert torch.equal(first, second) and (first != 0).any()
        z = self.logits.clone().requires_grad_()
        d = (method.form.enhancement(INDEX) / TABLE["temperature"]).sigmoid().detach()
        method.form.classifier_loss(z, self.observed, d).mean().backward()
        torch.testing.assert_close(z.grad, value_and_gradient(method, self.logits, self.observed, index=INDEX)[1])

    def test_a_known_negative_is_taken_as_it_is(self):
        method = table_form(mu=0.9, pi0=0.9, rate=0.01, reduction="sum")
        observed = torch.full_like(self.observed, -1)
        _, slope = value_and_gradient(method, self.logits, observed, index=INDEX)
        torch.testing.assert_close(slope, self.logits.sigmoid())

    def test_without_a_rate_an_unknown_label_counts_one_over_the_others(self):
        options = {**TABLE, "rate": None}
        value = table_form(**options)(self.logits, self.observed, index=INDEX)
        assert value == table_form(**{**TABLE, "rate": 1 / 3})(self.logits, self.observed, index=INDEX)
        one = table_form(classes=1, rate=None)
        assert one.form.rate == 1 and one(self.logits[:, :1], self.observed[:, :1], index=INDEX).isfinite()

    def test_its_parts_learn_at_their_own_rate(self):
        (group,) = table_form(own_lr=0.02).parameter_groups(0.5)
        assert group["lr"] == 0.02 and len(group["params"]) == 14
        assert table_form().parameter_groups(0.5)[0]["lr"] == 1e-3

    def test_an_items_part_of_the_loss_is_the_same_in_any_batch(self):
        method = table_form(gamma=0.0, reduction="none")
        whole = method(self.logits, self.observed, index=INDEX)
        part = torch.tensor([4, 1])
        torch.testing.assert_close(method(self.logits[part], self.observed[part], index=INDEX[part]), whole[part])
        drawn = table_form(gamma=1.0)
        torch.manual_seed(3)
        first = drawn(self.logits, self.observed, index=INDEX)
        drawn.begin_epoch(1, 3)
        assert drawn.salt and drawn(self.logits, self.observed, index=INDEX) != first

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
    @pytest.mark.parametrize("scale", [1.0, 1e4])
    def test_finite_at_any_logit_and_any_feature(self, dtype, scale):
        logits = torch.tensor([[-6e4, -90.0, -20.0, 0.0, 20.0, 90.0, 6e4]] * 3, dtype=dtype)
        for labels in (torch.tensor([1, 0, -1]).view(3, 1).expand(3, 7), *(torch.full((3, 7), s) for s in (1, 0, -1))):
            method = table_form(labels, 3, 7, standardise=False, x=features(3) * scale).float()
            value, slope = value_and_gradient(method, logits, labels, index=torch.arange(3))
            assert value.isfinite() and slope.isfinite().all() and value.dtype == torch.float32
            method(logits, labels, index=torch.arange(3)).backward()
            assert all(parameter.grad.isfinite().all() for parameter in method.parameters())

    def test_reductions_agree(self):
        entry, mean, total, classes = (
            table_form(reduction=reduction)(self.logits, self.observed, index=INDEX)
            for reduction in ("none", "mean", "sum", "sum_classes")
        )
        assert entry.shape == self.logits.shape
        torch.testing.assert_close(mean, entry.mean())
        torch.testing.assert_close(total, entry.sum())
        torch.testing.assert_close(classes, entry.sum(dim=1).mean())

    def test_a_table_with_feature_vectors_makes_this_form(self):
        named = LabelTable(
            [str(i) for i in range(ITEMS)], list("abcd"), np.zeros((ITEMS, 4), np.int8), x=self.x.numpy()
        )
        torch.manual_seed(0)
        method = losses.create("smile", items=ITEMS, classes=4, observed=named, **TABLE)
        assert method.needs == {"items", "index"} and losses.needs("smile") == {"items", "index", "features"}
        assert (losses.head("smile"), losses.head("smile", pictures=False)) == ("query-normal:128", None)
        value = method.double()(self.logits, self.observed, index=INDEX)
        assert value == table_form(**TABLE)(self.logits, self.observed, index=INDEX)
        pictures = named.with_labels(named.sparse)
        object.__setattr__(pictures, "x", np.zeros((ITEMS, 3, 4, 4), np.uint8))
        assert "features" in losses.create("smile", items=ITEMS, classes=4, observed=pictures).needs

    def test_memory_is_the_graphs_and_the_features_of_an_option(self):
        assert losses.memory("smile", 100, 7) == 100 * 4 * 8
        assert losses.memory("smile", 100, 7, k=5, x=np.zeros((100, 6))) == 100 * 6 * 8 + 100 * 6 * 4

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"x": features(11)}, r"features of the 12 items, one row each; it has shape \(11, 5\)"),
            ({"x": torch.zeros(ITEMS)}, r"it has shape \(12,\)"),
            ({"x": torch.full((ITEMS, 2), math.nan)}, "not finite"),
            ({"mu": 1.5}, "mu must be from 0 to 1"),
            ({"pi0": -0.1}, "pi0 must be from 0 to 1"),
            ({"k": 0}, "k must be at least 1"),
            ({"temperature": 0.0}, "temperature above 0"),
            ({"kl": "right"}, "correct, released"),
            ({"reduction": "median"}, "median"),
        ],
    )
    def test_mistakes_are_named(self, options, message):
        with pytest.raises(ValueError, match=message):
            table_form(**options)

    def test_what_is_missing_is_named(self):
        with pytest.raises(ValueError, match="smile needs items, classes and observed"):
            losses.create("smile")
        with pytest.raises(ValueError, match="smile needs index"):
            table_form()(self.logits, self.observed)


class TestGraph:
    @pytest.mark.parametrize("block", [1, 500, 2**24])
    def test_it_is_scikit_learns(self, monkeypatch, block):
        monkeypatch.setattr(smile_graph, "BLOCK", block)
        x = features(60, 4)
        found = nearest(x, 3)
        near = NearestNeighbors(n_neighbors=4).fit(x.numpy()).kneighbors(x.numpy(), return_distance=False)
        assert found.tolist() == near.tolist()

    def test_an_item_comes_before_its_copies(self):
        x = features(6).repeat(3, 1)
        found = nearest(x, 2)
        assert found[:, 0].tolist() == list(range(18))
        assert [sorted(row) for row in found.tolist()] == [sorted([i % 6, i % 6 + 6, i % 6 + 12]) for i in range(18)]

    @pytest.mark.parametrize("items", [1, 2, 3])
    def test_fewer_items_than_wanted_have_fewer_near(self, items):
        assert nearest(features(items), 3).shape == (items, items)
        logits, observed = random_batch(3, CLASSES)
        method = table_form(items=items)
        assert method(logits[:items], observed[:items], index=torch.arange(items)).isfinite()

    def test_features_are_standardised_as_the_classifier_has_them(self):
        x = features() * torch.tensor([1, 1, 50, 1e-3, 0], dtype=torch.float64)
        part = table_form(x=x).form.enhancement
        expected = StandardScaler().fit_transform(x.numpy())
        np.testing.assert_allclose(part.x.numpy(), expected, atol=1e-6)
        near = NearestNeighbors(n_neighbors=4).fit(expected).kneighbors(expected, return_distance=False)
        assert part.near.tolist() == near.tolist()
        raw = table_form(x=x, standardise=False).form.enhancement
        assert torch.equal(raw.x, x.float().double()) and raw.near.tolist() != part.near.tolist()


def image_by_loops(method, z, d, observed, shown, past, *, alpha, beta, theta, lam, kl_embedding, kl_beta):
    """The loss on pictures after the warm-up; z and d are logits, as drawn or not."""
    size, s = (shown.shape[2] - 1) // 2, observed.tolist()
    weight, bias = method.form.weight.tolist(), method.form.bias.tolist()
    total = 0.0
    for i, row in enumerate(shown.tolist()):
        for c, entry in enumerate(row):
            mean, log_deviation = entry[:size], entry[size : 2 * size]
            a, b = (
                softplus(sum(w * m for w, m in zip(weight[k][c], mean, strict=True)) + bias[k][c]) + 1e-6
                for k in (0, 1)
            )
            level = math.log(a / b) if d is None else d[i][c].item()
            target = 0.0 if s[i][c] == -1 else sigmoid(level)
            normal = [(m * m + math.exp(t) ** 2 - 1 - 2 * t) / 2 for m, t in zip(mean, log_deviation, strict=True)]
            total += theta * soft(z[i][c].item(), target)
            total += alpha * an(z[i][c].item(), s[i][c]) + beta * an(level, s[i][c])
            total += kl_embedding * sum(normal) / size + kl_beta * kl(a, b)
    batch = entries(shown[..., :size], observed == 1)
    return total / observed.numel() + lam * by_loops(batch, past, 0.5), batch


SHOWN = embeddings(len(INDEX), CLASSES, 7).double()
CALL = {"index": INDEX, "features": SHOWN, "epochs": 9}


class TestOnPictures:
    logits, observed = random_batch(len(INDEX), CLASSES)

    @pytest.mark.parametrize("given", [False, True])
    @pytest.mark.parametrize("changed", [{}, *({name: 0.0} for name in IMAGE)])
    def test_the_loss_is_its_formula_over_two_steps(self, monkeypatch, given, changed):
        options = {**IMAGE, **changed}
        method, past = image_form(sample=given, **options), []
        torch.manual_seed(1)
        noise, d = torch.randn(2, len(INDEX), CLASSES, dtype=torch.float64)
        monkeypatch.setattr(smile_image, "draw", lambda a, b, index, salt: d)
        monkeypatch.setattr(smile_image.keyed, "normal", lambda index, salt, classes: noise)
        for step in range(2):
            shown = SHOWN.roll(step, dims=0)
            z = self.logits + shown[..., -1] * noise if given else self.logits
            value = method(self.logits, self.observed, epoch=3, **{**CALL, "features": shown})
            drawn = d if given else None
            expected, batch = image_by_loops(method, z, drawn, self.observed, shown, past, **options)
            past = past + batch
            assert value.item() == pytest.approx(expected, rel=1e-6)

    @pytest.mark.parametrize("name", IMAGE)
    def test_each_coefficient_changes_the_value(self, name):
        values = [
            image_form(**{**IMAGE, name: factor * IMAGE[name]})(self.logits, self.observed, epoch=3, **CALL).item()
            for factor in (1, 0)
        ]
        assert abs(values[0] - values[1]) > 1e-3

    @pytest.mark.parametrize(("warmup", "epoch"), [(2, 1), (2, 2), (4, 4)])
    def test_the_warm_up_assumes_negative_twice(self, warmup, epoch):
        method = image_form(warmup=warmup, sample=False)
        a, b = method.form.concentrations(SHOWN[..., :3])
        expected = losses.create("an")(self.logits, self.observed) + losses.create("an")((a / b).log(), self.observed)
        value = method(self.logits, self.observed, epoch=epoch, **CALL)
        assert value.item() == pytest.approx(expected.item())
        assert (method.form.queue.classes == -1).all()
        assert method(self.logits, self.observed, epoch=warmup + 1, **CALL) < value

    def test_d_teaches_the_classifier_and_is_not_taught_by_it(self):
        slopes = []
        for theta in (0.0, 0.7):
            method = image_form(**{**IMAGE, "theta": theta})
            z = self.logits.clone().requires_grad_()
            method(z, self.observed, epoch=3, **CALL).backward()
            slopes.append((z.grad, method.form.weight.grad))
        assert (slopes[0][0] != slopes[1][0]).all() and torch.equal(slopes[0][1], slopes[1][1])

    def test_noise_is_the_items_own_and_changes_with_the_epoch(self):
        method = image_form(lam=0.0, reduction="none")
        whole = method(self.logits, self.observed, epoch=3, **CALL)
        part = torch.tensor([5, 2])
        call = {"index": INDEX[part], "features": SHOWN[part], "epoch": 3, "epochs": 9}
        torch.testing.assert_close(method(self.logits[part], self.observed[part], **call), whole[part])
        torch.manual_seed(3)
        method.begin_epoch(3, 9)
        assert (method(self.logits, self.observed, epoch=3, **CALL) != whole).all()
        still = image_form(sample=False, lam=0.0)
        before = still(self.logits, self.observed, epoch=3, **CALL)
        still.begin_epoch(3, 9)
        assert still(self.logits, self.observed, epoch=3, **CALL) == before

    def test_logit_and_d_have_random_numbers_of_their_own(self, monkeypatch):
        asked = {}
        monkeypatch.setattr(smile_image, "draw", lambda a, b, index, salt: asked.setdefault("d", (salt, a.log()))[1])
        monkeypatch.setattr(
            smile_image.keyed, "normal", lambda index, salt, c: asked.setdefault("z", (salt, torch.zeros(6, c)))[1]
        )
        method = image_form()
        method.salt = 700
        method(self.logits, self.observed, epoch=3, **CALL)
        d, z = asked["d"][0], asked["z"][0]
        assert {d, z} <= set(range(700, 704)) and z not in (d, d + 1)  # a draw uses two

    def test_concentrations_do_not_vanish(self):
        method = image_form()
        low = -1e5 * method.form.weight[0].detach().sign()
        assert method.form.concentrations(low[None])[0].min().item() == pytest.approx(1e-6)
        features = SHOWN.clone()
        features[..., :3] = low
        features.requires_grad_()
        value = method(self.logits, self.observed, epoch=3, **{**CALL, "features": features})
        (slope,) = torch.autograd.grad(value, features)
        assert value.isfinite() and slope.isfinite().all()

    @pytest.mark.parametrize("shape", [(1, 4, 8, 8), (1, 64), (1, 4, 6), (1, 4, 1)])
    def test_features_of_another_head_are_refused(self, shape):
        method = losses.create("smile", items=3, classes=4, observed=torch.zeros(3, 4))
        with pytest.raises(ValueError, match="give --head query-normal:128"):
            method.prepare(torch.zeros(shape))

    def test_what_is_missing_is_named(self):
        with pytest.raises(ValueError, match="smile needs features"):
            image_form()(self.logits, self.observed, index=INDEX)
        with pytest.raises(ValueError, match="smile needs index"):
            image_form()(self.logits, self.observed, features=SHOWN)
        with pytest.raises(ValueError, match="temperature must be above 0"):
            image_form(queue_temperature=0.0)

    def test_a_state_brings_the_layers_that_no_batch_has_made_yet(self):
        first = image_form()
        first(self.logits, self.observed, epoch=3, **CALL)
        other = losses.create("smile", items=ITEMS, classes=CLASSES, observed=torch.zeros(ITEMS, CLASSES))
        other.load_state_dict(first.state_dict())
        expected = copy.deepcopy(first)(self.logits, self.observed, epoch=3, **CALL)
        for again in (other, pickle.loads(pickle.dumps(first))):
            assert again(self.logits, self.observed, epoch=3, **CALL) == expected
        names = {"form.weight", "form.bias", "form.queue.embeddings", "form.queue.classes"}
        assert set(first.state_dict()) == names

    def test_its_layers_learn_as_fast_as_the_head(self):
        (group,) = image_form().parameter_groups(0.25)
        assert group["lr"] == 0.25 and [tuple(p.shape) for p in group["params"]] == [(2, 4, 3), (2, 4)]


@pytest.fixture(scope="module")
def feature_file(tmp_path_factory):
    """Points about centres that tell which of four labels they have."""
    rng = np.random.default_rng(0)
    labels = np.where(rng.random((200, 4)) < 0.4, 1, -1).astype(np.int8)
    labels[np.arange(200), rng.integers(0, 4, 200)] = 1
    x = (labels @ rng.normal(size=(4, 6)) + rng.normal(size=(200, 6))).astype(np.float32)
    path = tmp_path_factory.mktemp("features") / "features.npz"
    split = np.repeat(["train", "val", "test"], [120, 40, 40])
    np.savez(path, x=x, labels=labels, classes=np.array(list("abcd")), split=split)
    return path


class TestTraining:
    def test_on_feature_vectors_it_resumes_to_the_bit(self, feature_file, quick, tmp_path):
        settings = replace(quick, method="smile", backbone="linear", lr=1e-2)
        assert_resumes(load(feature_file, labels="complete"), settings, tmp_path)

    def test_the_command_trains_on_feature_vectors(self, feature_file, tmp_path, capsys):
        command = f"train {feature_file} --labels complete --method smile --set mu=0.2 --epochs 3 --lr 0.01"
        assert main([*command.split(), "--out", str(tmp_path / "run")]) == 0
        assert "smile on linear" in capsys.readouterr().out
        assert outcome(tmp_path / "run")["test_map"] > 60

    def test_a_linear_head_is_refused_on_pictures(self, scenes, quick, tmp_path):
        with pytest.raises(UserError, match="give --head query-normal:128"):
            fit(scenes, replace(quick, method="smile", head="linear"), tmp_path / "run", quiet=True)


def test_published_settings():
    presets = [losses.preset("smile", dataset) for dataset in DATASETS]
    assert [preset.options["lam"] for preset in presets] == [0.1, 0.01, 0.1, 0.001]
    assert [preset.training["head"] for preset in presets] == [f"query-normal:{n}" for n in (128, 64, 128, 128)]
    assert [preset.training["batch_size"] for preset in presets] == [8, 16, 16, 8]
    assert [preset.training["epochs"] for preset in presets] == [10, 10, 10, 20]
    assert {preset.training["lr"] for preset in presets} == {1e-5}
    common = {"alpha": 0.1, "beta": 0.01, "theta": 0.01, "kl_embedding": 1e-5, "kl_beta": 1e-5, "warmup": 2}
    assert all(preset.options | common == preset.options for preset in presets)
