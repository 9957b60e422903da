"""What tests of MIME share."""

import torch

from spml import losses

CALL = {"epoch": 2, "epochs": 10}
IGNORE = {"rule": "ignore", "mean_inverse_positives": 0.4, "warmup": 2}


def method(observed, **options):
    given = {"items": len(observed), "classes": observed.shape[1], "observed": observed}
    return losses.create("mime", **given, **options)


def live(loss, scores, epoch, epochs=6):
    """The end of an epoch; the pass comes in parts and out of order."""
    if loss.wants_pass(epoch, epochs):
        for rows in torch.randperm(
            len(scores), generator=torch.Generator().manual_seed(epoch)
        ).split(7):
            loss.take_scores(scores[rows], rows)
    loss.end_epoch(epoch, epochs)
