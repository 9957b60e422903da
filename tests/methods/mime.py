"""Helpers of the tests of MIME."""

from functools import partial

import torch

from tests.losses.common import create

CALL = {"epoch": 2, "epochs": 10}
IGNORE = {"rule": "ignore", "mean_inverse_positives": 0.4, "warmup": 2}


method = partial(create, "mime")


def live(loss, scores, epoch, epochs=6):
    """End an epoch; the pass over the items comes in parts and out of order."""
    if loss.wants_pass(epoch, epochs):
        for rows in torch.randperm(
            len(scores), generator=torch.Generator().manual_seed(epoch)
        ).split(7):
            loss.take_scores(scores[rows], rows)
    loss.end_epoch(epoch, epochs)
