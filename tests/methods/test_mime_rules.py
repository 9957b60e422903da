"""MIME's pseudo-labels, added or ignored, against plain loops."""

import math

import torch

from tests.losses.common import random_batch
from tests.methods.mime import CALL, IGNORE, live, method


class TestAdd:
    def test_sure_labels_are_added_permanently(self):
        observed = random_batch(30, 4, seed=2)[1]
        loss, added = method(observed, theta=0.8, warmup=2), set()
        for epoch in range(1, 7):
            scores = torch.randn(30, 4, generator=torch.Generator().manual_seed(epoch)) * 2
            live(loss, scores, epoch)
            if 2 <= epoch < 6:
                sure = set()
                for i in range(30):
                    for c in range(4):
                        if observed[i, c] == 0 and 1 / (1 + math.exp(-scores[i, c].item())) > 0.8:
                            sure.add((i, c))
                # New labels are sure, and some are no longer sure.
                assert sure - added and (epoch == 2 or added - sure)
                added |= sure
            assert {tuple(pair) for pair in loss.marked.nonzero().tolist()} == added
        assert added

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
        loss = method(observed, **IGNORE)
        seen = []
        for epoch in range(1, 7):
            scores = torch.randn(40, 5, generator=torch.Generator().manual_seed(epoch))
            live(loss, scores, epoch)
            if 2 <= epoch < 6:
                expected = set()
                for c in range(5):
                    frequency = sum(observed[i, c].item() == 1 for i in range(40)) / 40
                    unknown = [i for i in range(40) if observed[i, c] == 0]
                    unknown.sort(key=lambda i, c=c, scores=scores: -scores[i, c].item())
                    expected |= {
                        (i, c) for i in unknown[: math.floor(round(frequency / 0.4 * 40, 6))]
                    }
                seen.append(expected)
                assert sum(c == 0 for _, c in expected) == 7  # floor(3 / 0.4)
                assert sum(c == 2 for _, c in expected) == 4
                assert not any(c == 1 for _, c in expected)
            assert {tuple(pair) for pair in loss.marked.nonzero().tolist()} == (
                seen[-1] if seen else set()
            )
        assert len({frozenset(s) for s in seen}) == 4 and loss.scores.numel() == 0

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
