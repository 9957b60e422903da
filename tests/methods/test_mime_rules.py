"""MIME's pseudo-labels, added or ignored, against plain loops."""

import math
from itertools import combinations

import torch

from tests.losses.common import random_batch
from tests.methods.mime import CALL, IGNORE, live, method


class TestAdd:
    def test_sure_labels_are_added_permanently(self):
        observed = random_batch(30, 4, seed=2)[1]
        loss, added = method(observed, theta=0.8, warmup=2), torch.zeros(30, 4, dtype=torch.bool)
        for epoch in range(1, 7):
            scores = torch.randn(30, 4, generator=torch.Generator().manual_seed(epoch)) * 2
            live(loss, scores, epoch)
            if 2 <= epoch < 6:
                sure = (scores.sigmoid() > 0.8) & (observed == 0)
                # New labels are sure, and some are no longer sure.
                assert (sure & ~added).any() and (epoch == 2 or (added & ~sure).any())
                added |= sure
            assert torch.equal(loss.marked, added)

    def test_known_labels_are_never_touched(self):
        observed = torch.tensor([[1, -1, 0]] * 3)
        loss = method(observed, warmup=1)
        live(loss, torch.full((3, 3), 50.0), 1)
        assert loss.marked.tolist() == [[False, False, True]] * 3
        logits, features = (
            torch.zeros(3, 3, dtype=torch.float64, requires_grad=True),
            torch.zeros(3, 3, 5),
        )
        (slope,) = torch.autograd.grad(
            loss(logits, observed, **CALL, index=torch.arange(3), features=features), logits
        )
        assert (slope[:, 1] > 0).all() and (slope[:, [0, 2]] < 0).all()
        loss.marked.fill_(True)  # a known negative of the batch stays negative all the same
        (slope,) = torch.autograd.grad(
            loss(logits, observed, **CALL, index=torch.arange(3), features=features), logits
        )
        assert (slope[:, 1] > 0).all()

    def test_the_threshold_is_passed_strictly(self):
        observed = torch.zeros(3, 1)
        loss = method(observed, theta=0.5, warmup=1)
        live(loss, torch.tensor([[-0.01], [0.0], [0.01]]), 1)
        assert loss.marked[:, 0].tolist() == [False, False, True]
        none = method(observed, theta=1.0, warmup=1)
        live(none, torch.full((3, 1), 1e4), 1)
        assert not none.marked.any()

    def test_the_warm_up_is_the_first_epoch_that_adds(self):
        loss = method(torch.zeros(4, 2))
        assert [loss.wants_pass(epoch, 4) for epoch in range(1, 5)] == [False, True, True, False]
        assert [
            method(torch.zeros(4, 2), warmup=5).wants_pass(epoch, 6) for epoch in (4, 5, 6)
        ] == [False, True, False]


class TestIgnore:
    def test_the_most_probable_of_each_class_are_ignored_and_chosen_anew(self):
        observed = random_batch(40, 5, seed=2)[1]
        observed[:, 0] = 0
        observed[:3, 0] = 1
        observed[:, 1] = observed[:, 1].clamp(max=0)  # no observed positive, nothing ignored
        observed[:, 2] = 1
        observed[:4, 2] = 0  # fewer unknown labels than are to be ignored
        # floor(n / 0.4) labels are ignored in each class
        counts = [math.floor(round(n / 0.4, 6)) for n in (observed == 1).sum(dim=0).tolist()]
        loss, seen, expected = method(observed, **IGNORE), [], torch.zeros(40, 5, dtype=torch.bool)
        assert counts[:3] == [7, 0, 90]
        for epoch in range(1, 7):
            scores = torch.randn(40, 5, generator=torch.Generator().manual_seed(epoch))
            live(loss, scores, epoch)
            if 2 <= epoch < 6:
                ranked = scores.masked_fill(observed != 0, -math.inf)
                places = ranked.argsort(dim=0, descending=True).argsort(dim=0)
                expected = (places < torch.tensor(counts)) & (observed == 0)
                seen.append(expected)
            assert torch.equal(loss.marked, expected)
        assert all(not torch.equal(a, b) for a, b in combinations(seen, 2))
        assert loss.scores.numel() == 0

    def test_known_labels_are_never_ignored(self):
        observed = torch.tensor([[1, -1], [0, -1], [0, 1]])
        loss = method(observed, **{**IGNORE, "warmup": 1, "mean_inverse_positives": 0.1})
        live(loss, torch.tensor([[9.0, 9.0], [1.0, 9.0], [2.0, 9.0]]), 1)
        assert loss.marked.tolist() == [[False, False], [True, False], [True, False]]
        loss.marked.fill_(True)
        logits, features = (
            torch.zeros(3, 2, dtype=torch.float64, requires_grad=True),
            torch.zeros(3, 2, 5),
        )
        value = loss(logits, observed, **CALL, index=torch.arange(3), features=features)
        (slope,) = torch.autograd.grad(value, logits)
        assert (slope.sign().to(torch.int8) == -observed).all()
