"""Methods with a state for every item, against plain loops."""

import math

import pytest
import torch

from spml import losses
from tests.losses.common import build, create, random_batch

CALL = {"epoch": 2, "epochs": 10}


class TestLLCp:
    def test_the_largest_losses_are_corrected_permanently(self):
        logits = torch.tensor([[3.0, 2.0, -1.0, 0.5], [1.0, -2.0, 4.0, 0.0]])
        observed = torch.tensor([[1, 0, 0, 0], [0, 1, 0, -1]])
        loss = create("ll_cp", torch.zeros(5, 4), delta=1 / 8)
        index, labels = torch.tensor([3, 1]), observed.clone()
        # ceil(8 / 8) = 1 entry in each step: 4.0 is the largest unknown logit, then 2.0.
        for place, corrected in (((1, 2), [[1, 2]]), ((0, 1), [[1, 2], [3, 1]])):
            labels[place] = 1
            value = loss(logits, observed, **CALL, index=index)
            signs = torch.where(labels == 1, -1.0, 1.0)
            assert value.item() == pytest.approx((signs * logits).exp().log1p().mean().item())
            assert loss.corrected.nonzero().tolist() == corrected
        # Epoch 1 corrects nothing and keeps the stored corrections.
        assert loss(logits, observed, epoch=1, epochs=10, index=index) == value

    def test_known_labels_are_never_corrected(self):
        observed = torch.tensor([[1, -1, 0]])
        loss = build("ll_cp", observed, delta=1.0)
        for _ in range(3):
            loss(torch.tensor([[-9.0, 9.0, -5.0]]), observed, **CALL)
        assert loss.method.corrected.tolist() == [[False, False, True]]

    @pytest.mark.parametrize(
        ("options", "plain", "stored"),
        [
            ({"delta": 0.0}, "an", False),
            ({"delta": 0.1}, "ll_ct", True),  # in its first step
            ({"delta": 0.1, "variant": "released"}, "ll_ct", False),
        ],
    )
    def test_without_earlier_corrections_it_is_another_loss(self, options, plain, stored):
        logits, observed = random_batch()
        loss = build("ll_cp", observed, **options)
        other = losses.create(plain, **({"delta": 0.1} if plain == "ll_ct" else {}))
        for epoch in (1, 2) if stored else (1, 2, 5):
            call = {"epoch": epoch, "epochs": 10}
            assert torch.equal(loss(logits, observed, **call), other(logits, observed, **call))
        assert bool(loss.method.corrected.any()) == stored


class TestRole:
    def test_labels_start_as_published(self):
        observed = torch.zeros(300, 4)
        observed[:, 0], observed[:, 1] = 1, -1
        theta = create("role", observed).label_logits.detach().sigmoid()
        torch.testing.assert_close(theta[:, :2], torch.tensor([0.995, 0.005]).expand(300, 2))
        assert theta[:, 2:].min() > 0.4 and theta[:, 2:].max() < 0.6 and theta[:, 2:].std() > 0.04

    @pytest.mark.parametrize("side", ["classifier", "labels"])
    def test_each_gradient_is_that_of_its_own_half(self, side):
        observed, k = torch.tensor([[1.0, 0, -1], [0, 1, 0], [0, 0, 0]]), 1.2
        loss, index = create("role", observed, expected_positives=k), torch.tensor([0, 1])
        z = torch.randn(2, 3, requires_grad=True)
        loss(z, observed[:2], **CALL, index=index).backward()
        assert (loss.label_logits.grad[2] == 0).all()
        sides = [(z, z.grad), (loss.label_logits[:2], loss.label_logits.grad[:2])]
        (learner, slope), (teacher, _) = sides if side == "classifier" else sides[::-1]
        a = learner.detach().clone().requires_grad_()
        p, t = a.sigmoid(), teacher.detach().sigmoid()
        total = torch.zeros(())
        for i in range(2):
            for c in range(3):
                total = total - (t[i, c] * p[i, c].log() + (1 - t[i, c]) * (1 - p[i, c]).log())
                if observed[i, c] != 0:
                    total = total - (p[i, c] if observed[i, c] == 1 else 1 - p[i, c]).log()
        half = (total / 6 + (p.sum() / 2 - k) ** 2 / 9) / 2
        half.backward()
        assert (slope != 0).all()
        torch.testing.assert_close(slope, a.grad)

    def test_estimated_labels_may_be_0_or_1_but_nothing_outside(self):
        sure = torch.tensor([[1.0, 0.0]])
        loss = build("role", sure, estimated=sure)
        assert loss(torch.zeros(1, 2), torch.tensor([[1, 0]]), **CALL).isfinite()
        theta = loss.method.label_logits.detach().sigmoid()
        torch.testing.assert_close(theta, torch.tensor([[1 - 1e-5, 1e-5]]).double())
        for wrong in (sure * 2, sure - 1, sure * math.nan):
            with pytest.raises(ValueError, match="not probabilities"):
                create("role", sure, estimated=wrong)


class TestEmApl:
    def test_the_lowest_open_scores_of_each_class_become_soft_negatives(self):
        torch.manual_seed(1)
        observed = torch.zeros(20, 2)
        observed[0, 0] = observed[1, 1] = 1
        observed[2, 0] = -1
        method = create("em_apl", observed, theta=0.9, warmup=2)
        marked = set()
        for epoch in range(1, 5):
            scores = torch.randn(20, 2)
            assert method.wants_pass(epoch, 4) == (epoch in (2, 3))
            if method.wants_pass(epoch, 4):
                for rows in torch.randperm(20).split(7):
                    method.take_scores(scores[rows], rows)
            method.end_epoch(epoch, 4)
            if epoch in (2, 3):
                for c, unknown in enumerate((18, 19)):
                    free = [i for i in range(20) if observed[i, c] == 0 and (i, c) not in marked]
                    free.sort(key=lambda i, c=c, scores=scores: scores[i, c].item())
                    chosen = free[: math.floor(0.9 * unknown / (4 - 2))]
                    marked |= {(i, c) for i in chosen}
                    stored = method.targets[chosen, c]
                    torch.testing.assert_close(stored, scores[chosen, c].sigmoid())
            assert {tuple(pair) for pair in (method.targets >= 0).nonzero().tolist()} == marked

    def test_carried_over_and_listed_pseudo_labels_count_towards_the_share(self):
        observed, scores = torch.zeros(20, 1), torch.linspace(-1, 1, 20)[:, None]
        carried = create("em_apl", observed, theta=0.6, warmup=1)
        listed = torch.where(torch.arange(20) < 7, -0.5, 0.0)[:, None]
        table = create("em_apl", observed, table=listed, theta=0.6, warmup=1)
        cases = (carried, [4, 8, 12]), (carried, [12, 12, 12]), (table, [11, 12, 12])
        for method, counts in cases:
            for epoch, count in enumerate(counts, start=1):
                method.take_scores(scores, torch.arange(20))
                method.end_epoch(epoch, 4)
                assert (method.targets >= 0).sum() == count

    def test_table_1_of_the_gr_loss_paper_has_thresholds_and_the_current_p(self):
        generator = torch.Generator().manual_seed(0)
        observed = random_batch(20, 3)[1]
        options = {"theta": 0.7, "warmup": 1, "alpha": 0.3, "beta": 0.6, "variant": "gr"}
        loss = build("em_apl", observed, **options, reduction="none")
        logits, scores = torch.randn(2, 20, 3, generator=generator, dtype=torch.float64) * 3
        em = losses.create("em", alpha=0.3, reduction="none")(logits, observed)
        assert torch.equal(loss(logits, observed, **CALL), em)  # before the first pass
        for rows in torch.randperm(20, generator=generator).split(6):
            loss.method.take_scores(scores[rows], rows)
        loss.method.end_epoch(1, 5)
        z = logits.clone().requires_grad_()
        entries, p = loss(z, observed, **CALL), logits.sigmoid()
        expected, low = em.clone(), torch.zeros(20, 3, dtype=torch.bool)
        for c in range(3):
            ranked = sorted(scores[observed[:, c] == 0, c].sigmoid().tolist())
            tau = ranked[math.floor(0.7 * len(ranked)) - 1]
            low[:, c] = (observed[:, c] == 0) & (p[:, c].float() <= torch.tensor(tau).float())
        expected[low] = -0.6 * (p * p.log() + (1 - p) * (1 - p).log())[low]
        torch.testing.assert_close(entries, expected)
        (slope,) = torch.autograd.grad(entries.sum(), z)
        assert low.any() and slope[low].abs().max() < 1e-12
        assert (slope[(observed == 0) & ~low] != 0).all()

    def test_a_score_of_zero_is_a_pseudo_label_too(self):
        observed = torch.zeros(4, 1)
        method = create("em_apl", observed, theta=1.0, warmup=1)
        method.take_scores(torch.full((4, 1), -6e4), torch.arange(4))
        method.end_epoch(1, 2)
        assert (method.targets == 0).all()

    def test_without_pseudo_labels_it_is_its_base(self):
        logits, observed = random_batch()
        for base, options in {"em": {"alpha": 0.3}, "gr": {}, "an": {}}.items():
            value = build("em_apl", observed, base=base, **options)(logits, observed, **CALL)
            assert value == losses.create(base, **options)(logits, observed, **CALL)

    def test_beta_weighs_the_pseudo_labels(self):
        logits, observed = torch.tensor([[0.3, -1.0]]), torch.tensor([[1, 0]])
        none, one = (build("em_apl", observed, table=[[1, -0.2]], beta=beta) for beta in (0.0, 1.0))
        added = one(logits, observed, **CALL) - none(logits, observed, **CALL)
        p = torch.sigmoid(logits[0, 1]).item()
        assert added.item() == pytest.approx(-(0.2 * math.log(p) + 0.8 * math.log(1 - p)) / 2)

    def test_the_table_gives_no_pseudo_label_to_a_known_label(self):
        logits, observed = torch.tensor([[0.3, -1.0]]), torch.tensor([[1, -1]])
        loss = build("em_apl", observed, table=[[-0.4, -1.0]], beta=0.5)
        value = loss(logits, observed, **CALL)
        assert value.item() == pytest.approx(losses.create("em")(logits, observed).item())
