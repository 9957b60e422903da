"""SMILE's form for feature vectors against plain loops, term by term, and its graph."""

import math

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import StandardScaler

from spml import losses
from spml.data import LabelTable
from spml.methods.smile import table as smile_table
from spml.methods.smile.table import nearest
from tests.losses.common import random_batch, value_and_gradient
from tests.methods.smile import CLASSES, INDEX, ITEMS, TABLE, an, features, kl, soft, table_form


def formula(method, x, z, s, drawn=None, *, mu, pi0, rate, gamma, delta, temperature, k=3):
    """The loss on feature vectors; `drawn` are logits of the sampled labels.

    d comes from two layers on the normalised adjacency matrix of all items.
    """
    part = method.form.enhancement
    near = torch.cdist(x, x).fill_diagonal_(math.inf).argsort(dim=1)[:, :k]
    adjacency = torch.zeros(len(x), len(x), dtype=x.dtype).scatter_(1, near, 1.0)
    weights = (adjacency + torch.eye(len(x))) / (k + 1)
    hidden = (weights @ part.second((weights @ part.first(x)).relu())).relu()
    level = part.last(hidden)[INDEX] / temperature
    d, rows, one = level.sigmoid(), x[INDEX], torch.ones_like(level)
    out = ((d + 1e-5) / (1 - d + 1e-5)).log() if drawn is None else drawn
    target = mu * d + (1 - mu) * torch.where(s == 1, one, pi0)
    classifier = torch.where(s == 0, rate, one) * soft(z, torch.where(s == -1, 0.0, target))
    restored = part.decode(torch.cat([d, part.encode(torch.cat([rows, d], dim=1))], dim=1))
    graph = out.sigmoid() @ out.sigmoid().T - adjacency[INDEX][:, INDEX]
    again = (restored - rows).square().mean() + an(out, s).mean() + graph.square().mean()
    divergence = kl(d + 1e-5, 1 - d + 1e-5).mean()
    return classifier.mean() + an(level, s).mean() + gamma * again + delta * divergence


class TestOnFeatureVectors:
    logits, observed = random_batch(len(INDEX), CLASSES)
    x = features()

    @pytest.mark.parametrize("sample", [False, True])
    @pytest.mark.parametrize(
        "changed", [{}, *({name: 0.0} for name in TABLE if name != "temperature"), {"mu": 1.0}]
    )
    def test_the_loss_is_its_formula(self, monkeypatch, sample, changed):
        drawn = torch.randn(len(INDEX), CLASSES, dtype=torch.float64) * 3 if sample else None
        options = {**TABLE, **changed}
        method = table_form(sample=sample, standardise=False, x=self.x, **options)
        monkeypatch.setattr(smile_table, "draw", lambda a, b, index, salt: drawn)
        value = method(self.logits, self.observed, index=INDEX, epoch=1, epochs=3)
        x = self.x.float().double()
        expected = formula(method, x, self.logits, self.observed, drawn, **options)
        assert value.item() == pytest.approx(expected.item(), rel=1e-9)
        method = table_form(sample=sample, standardise=False, x=self.x, **TABLE)
        whole = method(self.logits, self.observed, index=INDEX)
        assert not changed or (whole - value).abs() > 1e-4

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
        assert values["released"] - values["correct"] == pytest.approx(
            TABLE["delta"] * gap, abs=1e-3
        )

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
        smile_table.classifier_loss(method, z, self.observed, d).mean().backward()
        whole = value_and_gradient(method, self.logits, self.observed, index=INDEX)[1]
        torch.testing.assert_close(z.grad, whole)

    def test_a_known_negative_has_target_0(self):
        method = table_form(mu=0.9, pi0=0.9, rate=0.01, reduction="sum")
        observed = torch.full_like(self.observed, -1)
        _, slope = value_and_gradient(method, self.logits, observed, index=INDEX)
        torch.testing.assert_close(slope, self.logits.sigmoid())

    def test_the_default_rate_is_one_over_the_number_of_other_classes(self):
        forms = (table_form(**{**TABLE, "rate": rate}) for rate in (None, 1 / 3))
        first, second = (form(self.logits, self.observed, index=INDEX) for form in forms)
        assert first == second
        one = table_form(classes=1, rate=None)
        assert one(self.logits[:, :1], self.observed[:, :1], index=INDEX).isfinite()
        assert one.rate == 1

    def test_a_table_with_feature_vectors_makes_this_form(self):
        names = [str(i) for i in range(ITEMS)]
        named = LabelTable(names, list("abcd"), np.zeros((ITEMS, 4), np.int8), x=self.x.numpy())
        torch.manual_seed(0)
        method = losses.create("smile", items=ITEMS, classes=4, observed=named, **TABLE)
        assert method.needs == {"items", "index"}
        assert losses.needs("smile") == {"items", "index", "features"}
        heads = losses.head("smile"), losses.head("smile", pictures=False)
        assert heads == ("query", None)
        value = method.double()(self.logits, self.observed, index=INDEX)
        assert value == table_form(**TABLE)(self.logits, self.observed, index=INDEX)
        pictures = named.with_labels(named.sparse)
        object.__setattr__(pictures, "x", np.zeros((ITEMS, 3, 4, 4), np.uint8))
        assert "features" in losses.create("smile", items=ITEMS, classes=4, observed=pictures).needs


def by_scikit_learn(x):
    """Each item and its three nearest neighbours."""
    return NearestNeighbors(n_neighbors=4).fit(x).kneighbors(x, return_distance=False).tolist()


class TestGraph:
    @pytest.mark.parametrize("block", [1, 500, 2**24])
    def test_neighbours_equal_scikit_learns(self, monkeypatch, block):
        monkeypatch.setattr(smile_table, "BLOCK", block)
        x = features(60, 4)
        neighbours = nearest(x, 3)
        near = by_scikit_learn(x.numpy())
        assert neighbours.tolist() == near

    def test_an_item_comes_before_its_copies(self):
        x = features(6).repeat(3, 1)
        neighbours = nearest(x, 2)
        assert neighbours[:, 0].tolist() == list(range(18))
        assert [sorted(row) for row in neighbours.tolist()] == [
            sorted([i % 6, i % 6 + 6, i % 6 + 12]) for i in range(18)
        ]

    @pytest.mark.parametrize("items", [1, 2, 3])
    def test_few_items_have_fewer_neighbours(self, items):
        assert nearest(features(items), 3).shape == (items, items)
        logits, observed = random_batch(3, CLASSES)
        method = table_form(items=items)
        assert method(logits[:items], observed[:items], index=torch.arange(items)).isfinite()

    def test_large_and_whole_numbers_lose_no_precision(self):
        x = torch.randint(0, 2000, (60, 4), generator=torch.Generator().manual_seed(0)) + 1_000_000
        near = by_scikit_learn(x.numpy())
        for kind in (torch.float32, torch.int64):
            part = table_form(items=60, x=x.to(kind), standardise=False).form.enhancement
            assert part.near.tolist() == near

    def test_features_are_standardised_as_for_the_classifier(self):
        x = features() * torch.tensor([1, 1, 50, 1e-3, 0], dtype=torch.float64)
        part = table_form(x=x).form.enhancement
        expected = StandardScaler().fit_transform(x.numpy())
        np.testing.assert_allclose(part.x.numpy(), expected, atol=1e-6)
        assert part.near.tolist() == by_scikit_learn(expected)
        raw = table_form(x=x, standardise=False).form.enhancement
        assert torch.equal(raw.x, x.float().double()) and raw.near.tolist() != part.near.tolist()
