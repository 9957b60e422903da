"""Methods with a state for every item, against plain loops."""

import math

import pytest
import torch

from spml import losses

CALL = {"epoch": 2, "epochs": 10}


def data_of(observed):
    return {"items": len(observed), "classes": observed.shape[1], "observed": observed}


class TestLLCp:
    def test_the_largest_losses_are_corrected_permanently(self):
        logits = torch.tensor([[3.0, 2.0, -1.0, 0.5], [1.0, -2.0, 4.0, 0.0]])
        observed = torch.tensor([[1, 0, 0, 0], [0, 1, 0, -1]])
        loss = losses.create("ll_cp", delta=1 / 8, **data_of(torch.zeros(5, 4)))
        index = torch.tensor([3, 1])
        value = loss(logits, observed, **CALL, index=index)

        labels = observed.clone()
        labels[1, 2] = 1  # ceil(8 / 8) = 1 entry, and 4.0 is the largest unknown logit
        expected = sum(
            math.log1p(math.exp(-z)) if s == 1 else math.log1p(math.exp(z))
            for z, s in zip(logits.flatten().tolist(), labels.flatten().tolist(), strict=True)
        )
        assert value.item() == pytest.approx(expected / 8)
        assert loss.corrected.nonzero().tolist() == [[1, 2]]

        # The corrected entry is known now: the next largest follows.
        loss(logits, observed, **CALL, index=index)
        assert loss.corrected.nonzero().tolist() == [[1, 2], [3, 1]]
        # Epoch 1 corrects nothing and keeps the stored corrections.
        last = loss(logits, observed, epoch=1, epochs=10, index=index)
        labels[0, 1] = 1
        assert last.item() == pytest.approx(losses.create("an")(logits, labels).item())

    @pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0]])
    def test_an_item_repeated_in_a_batch_keeps_all_its_corrections(self, order):
        logits = torch.tensor([[5.0, -1.0, 0.0], [-2.0, 4.0, 0.0], [-3.0, -4.0, 0.0]])[order]
        observed = torch.tensor([[0, 0, 1]] * 3)
        loss = losses.create("ll_cp", delta=2 / 9, **data_of(torch.zeros(4, 3)))
        loss(logits, observed, **CALL, index=torch.tensor([2, 2, 2]))
        assert loss.corrected.nonzero().tolist() == [[2, 0], [2, 1]]

    def test_known_labels_are_never_corrected(self):
        observed = torch.tensor([[1, -1, 0]])
        loss = losses.create("ll_cp", delta=1.0, **data_of(observed))
        for _ in range(3):
            loss(torch.tensor([[-9.0, 9.0, -5.0]]), observed, **CALL, index=torch.tensor([0]))
        assert loss.corrected.tolist() == [[False, False, True]]

    def test_a_delta_of_0_corrects_nothing(self):
        logits, observed = torch.randn(6, 5), torch.zeros(6, 5)
        loss = losses.create("ll_cp", delta=0.0, **data_of(observed))
        value = loss(logits, observed, **CALL, index=torch.arange(6))
        assert (
            torch.equal(value, losses.create("an")(logits, observed)) and not loss.corrected.any()
        )

    def test_the_first_step_is_ll_ct_with_the_same_pick(self):
        torch.manual_seed(0)
        logits, observed = torch.randn(6, 5), torch.zeros(6, 5)
        observed[torch.arange(6), torch.arange(6) % 5] = 1
        cp = losses.create("ll_cp", delta=0.1, **data_of(observed))(
            logits, observed, **CALL, index=torch.arange(6)
        )
        ct = losses.create("ll_ct", delta=0.1)(logits, observed, **CALL)
        assert cp.item() == pytest.approx(ct.item())

    def test_as_released_it_is_ll_ct(self):
        logits, observed = torch.randn(6, 5), torch.zeros(6, 5)
        loss = losses.create("ll_cp", delta=0.1, variant="released", **data_of(observed))
        for epoch in (1, 2, 5):
            call = {"epoch": epoch, "epochs": 10, "index": torch.arange(6)}
            assert torch.equal(
                loss(logits, observed, **call),
                losses.create("ll_ct", delta=0.1)(logits, observed, **call),
            )
        assert not loss.corrected.any()


class TestRole:
    def test_labels_start_as_published(self):
        observed = torch.zeros(300, 4, dtype=torch.int8)
        observed[:, 0], observed[:, 1] = 1, -1
        theta = losses.create("role", **data_of(observed)).label_logits.detach().sigmoid()
        assert torch.allclose(theta[:, 0], torch.tensor(0.995)) and torch.allclose(
            theta[:, 1], torch.tensor(0.005)
        )
        assert theta[:, 2:].min() > 0.4 and theta[:, 2:].max() < 0.6 and theta[:, 2:].std() > 0.04

    def test_both_sides_learn_from_each_other(self):
        torch.manual_seed(0)
        observed = torch.tensor([[1, 0, -1], [0, 1, 0]])
        loss = losses.create("role", **data_of(observed))
        logits = torch.randn(1, 3, requires_grad=True)
        loss(logits, observed[1:], **CALL, index=torch.tensor([1])).backward()
        assert (logits.grad != 0).all()
        assert (loss.label_logits.grad[1] != 0).all() and (loss.label_logits.grad[0] == 0).all()

    @pytest.mark.parametrize("side", ["classifier", "labels"])
    def test_each_gradient_is_that_of_its_own_half(self, side):
        torch.manual_seed(0)
        observed, k = torch.tensor([[1.0, 0, -1], [0, 1, 0]]), 1.2
        loss = losses.create("role", expected_positives=k, **data_of(observed))
        z = torch.randn(2, 3, requires_grad=True)
        loss(z, observed, **CALL, index=torch.arange(2)).backward()
        learner, teacher = (
            (z, loss.label_logits) if side == "classifier" else (loss.label_logits, z)
        )
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
        torch.testing.assert_close(learner.grad, a.grad)

    def test_estimated_labels_may_be_0_or_1_but_nothing_outside(self):
        sure = torch.tensor([[1.0, 0.0]])
        loss = losses.create("role", estimated=sure)
        assert loss(torch.zeros(1, 2), torch.tensor([[1, 0]]), **CALL).isfinite()
        torch.testing.assert_close(
            loss.label_logits.detach().sigmoid(), torch.tensor([[1 - 1e-5, 1e-5]]).double()
        )
        for wrong in (sure * 2, sure - 1, sure * math.nan):
            with pytest.raises(ValueError, match="not probabilities"):
                losses.create("role", estimated=wrong)


class TestEmApl:
    @staticmethod
    def method(observed, **options):
        return losses.create("em_apl", **data_of(observed), **options)

    def test_the_lowest_open_scores_of_each_class_become_soft_negatives(self):
        torch.manual_seed(1)
        observed = torch.zeros(20, 2, dtype=torch.int8)
        observed[0, 0] = observed[1, 1] = 1
        observed[2, 0] = -1
        method = self.method(observed, theta=0.9, warmup=2)
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
                    for i in chosen:
                        assert method.targets[i, c].item() == pytest.approx(
                            scores[i, c].sigmoid().item()
                        )
            assert {tuple(pair) for pair in (method.targets >= 0).nonzero().tolist()} == marked

    def test_carried_over_and_listed_pseudo_labels_count_towards_the_share(self):
        observed, scores = torch.zeros(20, 1, dtype=torch.int8), torch.linspace(-1, 1, 20)[:, None]
        carried = self.method(observed, theta=0.6, warmup=1)
        table = losses.create(
            "em_apl",
            table=torch.where(torch.arange(20) < 7, -0.5, 0.0)[:, None],
            theta=0.6,
            warmup=1,
        )
        for method, counts in (
            (carried, [4, 8, 12]),
            (carried, [12, 12, 12]),
            (table, [11, 12, 12]),
        ):
            for epoch, count in enumerate(counts, start=1):
                method.take_scores(scores, torch.arange(20))
                method.end_epoch(epoch, 4)
                assert (method.targets >= 0).sum() == count

    def test_a_score_of_zero_is_a_pseudo_label_too(self):
        observed = torch.zeros(4, 1, dtype=torch.int8)
        method = self.method(observed, theta=1.0, warmup=1)
        method.take_scores(torch.full((4, 1), -6e4), torch.arange(4))
        method.end_epoch(1, 2)
        assert (method.targets == 0).all()

    def test_training_shorter_than_the_warm_up_gives_none(self):
        observed = torch.zeros(4, 1, dtype=torch.int8)
        method = self.method(observed)
        for epoch in range(1, 4):
            assert not method.wants_pass(epoch, 3)
            method.end_epoch(epoch, 3)
        assert (method.targets < 0).all()

    def test_without_pseudo_labels_it_is_its_base(self):
        torch.manual_seed(0)
        logits, observed = torch.randn(5, 3), torch.tensor([[1, 0, -1]] * 5)
        call = {**CALL, "index": torch.arange(5)}
        for base, options in {"em": {"alpha": 0.3}, "gr": {}, "an": {}}.items():
            method = self.method(observed, base=base, **options)
            assert torch.equal(
                method(logits, observed, **call),
                losses.create(base, **options)(logits, observed, **call),
            )

    def test_beta_weighs_the_pseudo_labels(self):
        logits, observed = torch.tensor([[0.3, -1.0]]), torch.tensor([[1, 0]])
        values = [
            losses.create("em_apl", table=[[1, -0.2]], beta=beta)(logits, observed, **CALL).item()
            for beta in (0, 1)
        ]
        p = torch.sigmoid(logits[0, 1]).item()
        soft = -(0.2 * math.log(p) + 0.8 * math.log(1 - p))
        assert values[1] - values[0] == pytest.approx(soft / 2, rel=1e-5)

    def test_the_table_gives_no_pseudo_label_to_a_known_label(self):
        logits, observed = torch.tensor([[0.3, -1.0]]), torch.tensor([[1, -1]])
        value = losses.create("em_apl", table=[[-0.4, -1.0]], beta=0.5)(logits, observed, **CALL)
        assert value.item() == pytest.approx(losses.create("em")(logits, observed).item())
