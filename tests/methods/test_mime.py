"""MIME: loss, draws and pseudo-labels against plain loops."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from spml import losses
from spml.errors import UserError
from spml.keyed import normal
from spml.model.classifier import build_head
from spml.model.scoring import predict_logits
from spml.train import fit
from tests.conftest import assert_resumes
from tests.losses.common import embeddings, random_batch
from tests.methods.mime import CALL, IGNORE, method


def batch(items=5, classes=7, size=4):
    logits, observed = random_batch(items, classes)
    return logits, observed, embeddings(items, classes, 2 * size + 1).double()


def by_loops(logits, table, features, noise, beta=1e-4, eps=0.0, ignored=()):
    """The whole loss; `table` holds 1 for each label counted as positive."""
    items, classes, size = len(logits), len(logits[0]), len(features[0][0]) // 2
    entries = [[0.0] * classes for _ in range(items)]
    for b in range(items):
        for c in range(classes):
            mu, log_sigma, deviation = (
                features[b][c][:size],
                features[b][c][size:-1],
                features[b][c][-1],
            )
            p = 1 / (1 + math.exp(-(logits[b][c] + deviation * noise[b][c])))
            if (b, c) not in ignored:
                entries[b][c] = -math.log((p if table[b][c] == 1 else 1 - p) + eps)
            for m, s in zip(mu, log_sigma, strict=True):
                entries[b][c] += beta * (m**2 + math.exp(s) ** 2 - 1 - 2 * s) / 2 / size
    return sum(map(sum, entries)) / items / classes


ZEROS = [[0.0] * 7] * 5


@pytest.mark.parametrize("beta", [1e-4, 0.7])
@pytest.mark.parametrize("eps", [None, 1e-5])
def test_the_loss_of_the_mean_is_its_formula(beta, eps):
    logits, observed, features = batch()
    loss = method(observed, beta=beta, sample=False, eps=eps)
    value = loss(logits, observed, **CALL, index=torch.arange(5), features=features)
    expected = by_loops(
        logits.tolist(), observed.tolist(), features.tolist(), ZEROS, beta, eps or 0.0
    )
    assert value.item() == pytest.approx(expected, rel=1e-9)


def test_the_loss_of_a_draw_is_its_formula():
    logits, observed, features = batch()
    loss = method(torch.zeros(30, 7), beta=0.7)
    index = torch.tensor([3, 29, 0, 11, 4])
    torch.manual_seed(8)
    loss.begin_epoch(2, 10)
    noise = normal(index, loss.salt, 7).tolist()
    value = loss(logits, observed, **CALL, index=index, features=features)
    assert value.item() == pytest.approx(
        by_loops(logits.tolist(), observed.tolist(), features.tolist(), noise, 0.7)
    )


@pytest.mark.parametrize("rule", ["add", "ignore"])
def test_marked_labels_are_positive_or_ignored(rule):
    logits, observed, features = batch()
    loss = method(observed, rule=rule, beta=0.7, sample=False, mean_inverse_positives=0.5)
    marked = [
        (b, c) for b in range(5) for c in range(7) if observed[b, c] == 0 and (b + c) % 3 == 0
    ]
    for place in marked:
        loss.marked[place] = True
    value = loss(logits, observed, **CALL, index=torch.arange(5), features=features)
    table = [
        [1 if (b, c) in marked else s for c, s in enumerate(row)]
        for b, row in enumerate(observed.tolist())
    ]
    options = {"ignored": marked} if rule == "ignore" else {}
    assert value.item() == pytest.approx(
        by_loops(logits.tolist(), table, features.tolist(), ZEROS, 0.7, **options)
    )
    assert len(marked) > 3


def test_each_term_counts():
    logits, observed, features = batch()
    logits, features = logits.requires_grad_(), features.requires_grad_()

    def at(**options):
        loss = method(observed, **{"beta": 0.7, **options})
        loss.marked[0, 3] = loss.marked[3, 4] = True
        value = loss(logits, observed, **CALL, index=torch.arange(5), features=features)
        return value.item(), *torch.autograd.grad(value, (logits, features))

    value, slope, by_embedding = at()
    for changed in (
        {"beta": 0.0},
        {"sample": False},
        {"rule": "ignore", "mean_inverse_positives": 0.5},
    ):
        other, other_slope, other_embedding = at(**changed)
        assert abs(other - value) > 1e-3
        # The divergence does not depend on the logits.
        assert torch.equal(other_slope, slope) == ("beta" in changed)
        assert not torch.equal(other_embedding, by_embedding)
    *_, plain = at(beta=0.0, sample=False)
    assert (plain == 0).all()
    assert (by_embedding[..., :-1] != 0).all() and (by_embedding[..., -1] != 0).all()


def test_the_divergence_is_least_at_the_standard_normal_distribution():
    logits, observed, features = batch()
    standard = torch.zeros_like(features).requires_grad_()
    loss = method(observed, beta=1.0, sample=False)
    call = {**CALL, "index": torch.arange(5)}
    value = loss(logits, observed, **call, features=standard)
    assert value.item() == pytest.approx(losses.create("an")(logits, observed).item())
    (slope,) = torch.autograd.grad(value, standard)
    assert (slope == 0).all() and loss(logits, observed, **call, features=features) > value


class TestDraws:
    """A drawn logit against ten drawn embeddings, as published."""

    ITEMS = 40_000

    @pytest.fixture
    def shown(self):
        torch.manual_seed(0)
        head = build_head("query-normal:6", 8, 3).double().eval()
        head.spread.weight.data *= 3
        logits, features = head.detailed(torch.randn(1, 5, 8, dtype=torch.float64))
        return head, logits, features

    def drawn(self, logits, features, **options):
        """Logits of many items with the same embedding, from their loss -log p as positives."""
        ones = torch.ones(self.ITEMS, 3)
        loss = method(ones, beta=0.0, reduction="none", **options)
        torch.manual_seed(5)
        loss.begin_epoch(1, 1)
        many = {"index": torch.arange(self.ITEMS), "features": features.expand(self.ITEMS, -1, -1)}
        entries = loss(logits.expand(self.ITEMS, -1), ones, **many)
        return -entries.expm1().log()

    def literal(self, head, features, generator):
        """Logits of the mean of ten embeddings: (items, classes)."""
        mean, deviation = features[0, :, :6], features[0, :, 6:12].exp()
        noise = torch.randn(self.ITEMS, 10, 3, 6, dtype=torch.float64, generator=generator)
        return head.read((mean + deviation * noise).mean(dim=1))

    @torch.no_grad()
    def test_they_have_the_same_distribution(self, shown):
        head, logits, features = shown
        ours = self.drawn(logits, features)
        theirs = self.literal(head, features, torch.Generator().manual_seed(1))
        deviation = features[0, :, -1]
        error = deviation / math.sqrt(self.ITEMS)  # of a mean; that of a deviation is smaller
        for sample in (ours, theirs):
            assert ((sample.mean(dim=0) - logits[0]).abs() < 4 * error).all()
            assert ((sample.std(dim=0) - deviation).abs() < 4 * error).all()
            scaled = (sample - logits[0]) / deviation
            assert (scaled**3).mean(dim=0).abs().max() < 0.06 and (
                (scaled**4).mean(dim=0) - 3
            ).abs().max() < 0.15
            # Classes are drawn independently.
            assert (torch.corrcoef(sample.T) - torch.eye(3)).abs().max() < 0.02
        for c in range(3):
            assert stats.ks_2samp(ours[:, c], theirs[:, c]).pvalue > 0.001
        assert deviation.min() > 0.05

    def test_gradients_have_the_same_mean_and_less_noise(self, shown):
        """Slope of -log p by the logs of deviations."""
        head, logits, features = shown
        size, ones = 6, torch.ones(self.ITEMS, 3)
        logs = features[0, :, size : 2 * size].detach().clone().requires_grad_()
        each = logs.expand(self.ITEMS, -1, -1)
        weight, mean = head.read.weight.detach(), features[0, :, :size].detach()
        deviation = torch.linalg.vector_norm(weight * each.exp(), dim=-1, keepdim=True) / math.sqrt(
            10
        )
        inputs = torch.cat([mean.expand_as(each), each, deviation], dim=-1)
        loss = method(ones, beta=0.0, reduction="none")
        inputs.retain_grad()
        entries = loss(
            logits.detach().expand(self.ITEMS, -1),
            ones,
            index=torch.arange(self.ITEMS),
            features=inputs,
            **CALL,
        )
        (ours,) = torch.autograd.grad(entries.sum(), each, retain_graph=True)
        literal = (
            features[0, :, size : 2 * size]
            .detach()
            .expand(self.ITEMS, -1, -1)
            .clone()
            .requires_grad_()
        )
        noise = torch.randn(
            self.ITEMS, 10, 3, size, dtype=torch.float64, generator=torch.Generator().manual_seed(2)
        )
        z = ((mean + literal.exp()[:, None] * noise).mean(dim=1) * weight).sum(
            dim=-1
        ) + head.read.bias.detach()
        (theirs,) = torch.autograd.grad(torch.nn.functional.softplus(-z).sum(), literal)
        error = ((ours.var(dim=0) + theirs.var(dim=0)) / self.ITEMS).sqrt()
        assert ((ours.mean(dim=0) - theirs.mean(dim=0)).abs() < 4.5 * error).all()
        assert (ours.var(dim=0) < theirs.var(dim=0)).all()
        assert (ours.mean(dim=0).abs() > 5 * error).any()

    @torch.no_grad()
    def test_they_can_be_turned_off(self, shown):
        _, logits, features = shown
        assert torch.allclose(self.drawn(logits, features, sample=False), logits)

    def test_they_depend_on_the_item_and_the_epoch(self):
        logits, observed, features = batch()
        loss = method(torch.zeros(9, 7), reduction="none")
        loss.begin_epoch(1, 10)
        index = torch.tensor([8, 2, 5, 0, 3])
        whole = loss(logits, observed, **CALL, index=index, features=features)
        some = torch.tensor([3, 1])
        part = loss(
            logits[some], observed[some], **CALL, index=index[some], features=features[some]
        )
        # The last bit of a logarithm may depend on the batch.
        torch.testing.assert_close(part, whole[some], rtol=1e-5, atol=0)
        loss.begin_epoch(2, 10)
        assert (
            (loss(logits, observed, **CALL, index=index, features=features) - whole).abs() > 1e-4
        ).all()
        states = []
        for _ in range(2):
            torch.manual_seed(4)
            loss.begin_epoch(2, 10)
            states.append(loss.salt)
        assert states[0] == states[1]


@pytest.fixture(scope="module")
def settings(quick):
    return replace(quick, method="mime", lr=1e-3, head_lr=1)


@pytest.mark.parametrize("head", ["linear", "query", "boostlu"])
def test_a_run_with_another_head_is_refused_before_it_begins(scenes, settings, tmp_path, head):
    with pytest.raises(UserError, match="give --head query-normal"):
        fit(scenes, replace(settings, head=head), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("options", [{"theta": 0.2, "warmup": 1}, {**IGNORE, "warmup": 1}])
def test_a_run_whose_labels_changed_resumes_to_the_bit(scenes, settings, tmp_path, options):
    marked = assert_resumes(scenes, settings, tmp_path, options)["marked"]
    assert marked.any() and not marked.all()


def test_evaluation_is_deterministic(scenes, settings, tmp_path):
    from spml.data.images.loader import Feed
    from spml.model import load_model

    result = fit(scenes, replace(settings, epochs=1), tmp_path / "run", quiet=True)
    assert result["head"] == "query-normal"
    model, _ = load_model(tmp_path / "run")
    first, second = (predict_logits(model, Feed(scenes.test, None), 16) for _ in range(2))
    assert (first == second).all()
    with np.load(tmp_path / "run" / "scores" / "test.npz") as file:
        assert np.allclose(file["logits"], first, atol=2e-3)


def test_its_head_works_on_feature_vectors_too(tmp_path):
    from spml.data import load
    from spml.train import Settings
    from tests.model.test_query import vectors

    settings = Settings(
        method="mime", lr=1e-3, head_lr=1, batch_size=16, epochs=3, accelerator="cpu"
    )
    result = fit(load(vectors(tmp_path), labels="complete"), settings, tmp_path / "run", quiet=True)
    assert result["head"] == "query-normal" and result["backbone"] == "linear"
