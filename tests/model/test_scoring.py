"""The scoring loop, logits of a whole table in its order, and the figure that chooses the epoch."""

import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from spml import metrics
from spml.data import LabelTable
from spml.data.images import loader
from spml.data.images.decode import decode
from spml.data.images.loader import Feed, Item, Stream
from spml.model.scoring import predict_logits, score_batches, score_stream, validation_map

X = np.arange(14, dtype=np.float32).reshape(7, 2)
FEED = Feed(LabelTable(list("abcdefg"), ["one"], np.ones((7, 1)), x=X), None)


@pytest.mark.parametrize("batch_size", [1, 3, 7, 50])
@pytest.mark.parametrize("training", [True, False])
def test_logits_are_those_of_evaluation_in_the_order_of_the_table(batch_size, training):
    model = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Dropout(0.5)).train(training)
    logits = predict_logits(model, FEED, batch_size)
    assert logits == pytest.approx(model[0](torch.from_numpy(X)).detach().numpy(), abs=1e-5)
    sizes = [len(rows) for _, rows in score_batches(model, FEED, batch_size, "cpu")]
    assert model.training is training and sum(sizes) == 7 and max(sizes) == min(batch_size, 7)
    assert (predict_logits(model, FEED, batch_size) == logits).all()


def test_the_figure_is_map_in_percent_or_its_estimate_from_observed_labels():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(40, 3)).astype(np.float32)
    complete = np.where(rng.random((40, 3)) < 0.4, 1, -1).astype(np.int8)
    observed = np.where(rng.random((40, 3)) < 0.5, complete, 0).clip(min=0).astype(np.int8)
    assert validation_map(logits, complete, "complete") == pytest.approx(
        100 * metrics.average_precision(logits, complete).mean()
    )
    estimate = 100 * metrics.selection_score(logits, observed)
    assert validation_map(logits, observed, "observed") == pytest.approx(estimate)


def test_decoding_continues_while_the_model_works(monkeypatch):
    """The model waits for a decoded picture of a later batch: without overlap it never ends."""
    later = threading.Event()

    def decoding(path, size):
        if path.name == "3":
            later.set()
        return torch.zeros(3, size, size, dtype=torch.uint8)

    monkeypatch.setattr(loader, "decode", decoding)
    items = [Item(str(i), Path(str(i))) for i in range(6)]
    overlapped = []

    def model(x):
        overlapped.append(later.wait(timeout=60))
        return x.float().mean(dim=(2, 3))

    assert len(list(score_stream(model, Stream(2, batch_size=1).batches(items), "cpu"))) == 6
    assert overlapped[0]


def test_scores_belong_to_their_items(tmp_path):
    for i in range(7):
        Image.new("RGB", (20 + i, 16), (30 * i, 10, 200)).save(tmp_path / f"{i}.png")
    items = [Item(str(i), tmp_path / f"{i}.png") for i in range(7)]
    batches = Stream(16, batch_size=3).batches(items)
    scored = list(score_stream(lambda x: x.float().mean(dim=(1, 2, 3)), batches, "cpu"))
    assert [item for _, group in scored for item in group] == items
    for means, group in scored:
        for item, mean in zip(group, means, strict=True):
            assert mean == decode(item.path, 16).float().mean()
    assert list(score_stream(lambda x: x, [], "cpu")) == []


class Halves:
    """The first of two processes; the scores of the other are 0."""

    def share(self, rows):
        return rows[: -(-len(rows) // 2)]

    def whole(self, part, length):
        assert torch.is_inference_mode_enabled()
        return torch.cat([part, torch.zeros_like(part)])[:length]


def test_processes_share_batches_and_receive_them_whole():
    model = torch.nn.Identity()
    scored = list(score_batches(model, FEED, 3, "cpu", Halves()))
    assert [rows.tolist() for _, rows in scored] == [[0, 1, 2], [3, 4, 5], [6]]
    values = torch.cat([scores for scores, _ in scored])[:, 0]
    assert values.tolist() == [0, 2, 0, 6, 8, 0, 12]
