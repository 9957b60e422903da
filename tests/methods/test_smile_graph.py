"""The nearest-neighbour graph of SMILE."""

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import StandardScaler

from spml.methods.smile import table as smile_table
from spml.methods.smile.table import nearest
from tests.losses.common import random_batch
from tests.methods.smile import CLASSES, features, table_form


class TestGraph:
    @pytest.mark.parametrize("block", [1, 500, 2**24])
    def test_neighbours_equal_scikit_learns(self, monkeypatch, block):
        monkeypatch.setattr(smile_table, "BLOCK", block)
        x = features(60, 4)
        neighbours = nearest(x, 3)
        near = (
            NearestNeighbors(n_neighbors=4)
            .fit(x.numpy())
            .kneighbors(x.numpy(), return_distance=False)
        )
        assert neighbours.tolist() == near.tolist()

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
        near = (
            NearestNeighbors(n_neighbors=4)
            .fit(x.numpy())
            .kneighbors(x.numpy(), return_distance=False)
        )
        for kind in (torch.float32, torch.int64):
            part = table_form(items=60, x=x.to(kind), standardise=False).form.enhancement
            assert part.near.tolist() == near.tolist()

    def test_features_are_standardised_as_for_the_classifier(self):
        x = features() * torch.tensor([1, 1, 50, 1e-3, 0], dtype=torch.float64)
        part = table_form(x=x).form.enhancement
        expected = StandardScaler().fit_transform(x.numpy())
        np.testing.assert_allclose(part.x.numpy(), expected, atol=1e-6)
        near = (
            NearestNeighbors(n_neighbors=4)
            .fit(expected)
            .kneighbors(expected, return_distance=False)
        )
        assert part.near.tolist() == near.tolist()
        raw = table_form(x=x, standardise=False).form.enhancement
        assert torch.equal(raw.x, x.float().double()) and raw.near.tolist() != part.near.tolist()
