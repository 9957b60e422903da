from datetime import timedelta

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from spml.errors import UserError
from spml.metrics import MeanAveragePrecision, average_precision

ITEMS, CLASSES = 37, 5
# rows of each process: unequal, with duplicates within and between processes, and none at all
SHARDS = {
    "two": [[*range(20), 3], [*range(20, ITEMS), 0, 1, 2]],
    "three": [[*range(0, ITEMS, 2)], [], [*range(1, ITEMS, 2), 36, 0]],
}


def make(unknown=0.2):
    random = np.random.default_rng(5)
    truth = np.where(random.random((ITEMS, CLASSES)) < 0.3, 1, -1).astype(np.int8)
    logits = np.round(random.normal(size=truth.shape) + truth, 1).astype(np.float32)
    truth[random.random(truth.shape) < unknown] = 0
    return torch.from_numpy(logits), torch.from_numpy(truth)


def worker(rank, folder, shards):
    store, minute = f"file://{folder}/store", timedelta(seconds=60)
    dist.init_process_group(
        "gloo", init_method=store, rank=rank, world_size=len(shards), timeout=minute
    )
    logits, truth = make()
    metric = MeanAveragePrecision()
    for _ in range(2):  # a second epoch, after reset, must not see the first
        for rows in torch.tensor(shards[rank], dtype=torch.long).split(6):
            if len(rows):
                # float64, where an idle process gathers float32
                metric.update(logits[rows].double(), truth[rows], index=rows)
        result = metric.compute()
        local = sum(len(part) for part in metric.index)
        metric.reset()
    np.savez(f"{folder}/{rank}.npz", local=local, **result)
    dist.destroy_process_group()


@pytest.mark.parametrize("name", SHARDS)
def test_every_process_returns_the_single_process_result(name, tmp_path):
    shards = SHARDS[name]
    mp.spawn(worker, (str(tmp_path), shards), nprocs=len(shards))
    expected = average_precision(*make())
    for rank, rows in enumerate(shards):
        result = np.load(tmp_path / f"{rank}.npz")
        np.testing.assert_array_equal(result["per_class"], expected)
        assert result["map"] == expected.mean()
        assert result["local"] == len(rows)  # gathering leaves a process with its own items


@pytest.fixture
def metric():
    return MeanAveragePrecision()


def test_batches_give_the_result_of_the_whole_table(metric):
    logits, truth = make()
    for rows in torch.randperm(ITEMS).split(4):
        metric.update(logits[rows], truth[rows], rows)
    result = metric.compute()
    np.testing.assert_array_equal(result["per_class"], average_precision(logits, truth))
    assert isinstance(result["map"], float)


def test_a_repeated_item_counts_once_with_its_first_scores(metric):
    metric.update([[2.0], [1.0]], [[-1], [1]], [4, 9])
    metric.update([[9.0], [0.0]], [[1], [1]], [9, 2])
    assert metric.compute()["map"] == pytest.approx((1 / 2 + 2 / 3) / 2)


def test_items_without_index_all_count(metric):
    for _ in range(2):
        metric.update([[2.0], [1.0]], [[-1], [1]])
    metric.update([[3.0]], [[1]], [0])
    expected = average_precision([[2.0], [1.0], [2.0], [1.0], [3.0]], [[-1], [1], [-1], [1], [1]])
    assert metric.compute()["map"] == expected[0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(metric, dtype):
    logits, truth = make()
    metric.update(logits.to(dtype), truth.float())
    expected = average_precision(logits.to(dtype), truth)
    np.testing.assert_array_equal(metric.compute()["per_class"], expected)


def test_float64_is_stored_after_set_dtype(metric):
    metric.set_dtype(torch.float64)
    metric.update(torch.tensor([[1 + 1e-12], [1.0]], dtype=torch.float64), [[1], [-1]])
    assert metric.compute()["map"] == 1.0


def test_forward_returns_the_batch_value_and_accumulates(metric):
    logits, truth = make()
    assert metric(logits[:9], truth[:9])["map"] == average_precision(logits[:9], truth[:9]).mean()
    metric(logits[9:], truth[9:])
    np.testing.assert_array_equal(metric.compute()["per_class"], average_precision(logits, truth))


def test_one_class_keeps_its_axis(metric):
    metric.update([[1.0]], [[1]])
    assert metric.compute()["per_class"].shape == (1,)


@pytest.mark.filterwarnings("ignore:The ``compute`` method")
def test_no_items(metric):
    with pytest.raises(UserError, match="call update"):
        metric.compute()
    metric.update(np.zeros((0, 3)), np.zeros((0, 3)))
    with pytest.raises(UserError, match="call update"):
        metric.compute()


def test_reset_allows_other_classes(metric):
    metric.update(np.zeros((2, 3)), np.ones((2, 3)))
    with pytest.raises(UserError, match="4 classes, those before it 3"):
        metric.update(np.zeros((2, 4)), np.ones((2, 4)))
    metric.reset()
    metric.update(np.zeros((2, 4)), np.ones((2, 4)))
    assert metric.compute()["per_class"].shape == (4,)


@pytest.mark.parametrize("index", [[0], [0, -1], [0.5, 1.0], [[0], [1]]])
def test_wrong_index(metric, index):
    with pytest.raises(UserError, match="each of the 2 items"):
        metric.update(np.zeros((2, 3)), np.ones((2, 3)), index)
