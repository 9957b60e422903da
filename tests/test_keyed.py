import math

import pytest
import torch
from scipy import stats

from spml.keyed import bits, coin, key, normal, uniform

INDEX = torch.arange(20_000)


def test_uniform_numbers_lie_strictly_between_0_and_1():
    drawn = uniform(torch.arange(400_000), 5, 10)
    assert drawn.dtype == torch.float32 and drawn.shape == (400_000, 10)
    assert 0 < drawn.min() < 1e-5 and 1 - 1e-5 < drawn.max() < 1


def test_the_ends_of_the_range_are_never_reached(monkeypatch):
    for value in (0, -1):  # 64 bits all off, all on
        monkeypatch.setattr(
            "spml.keyed.bits", lambda index, salt, value=value: torch.full_like(index, value)
        )
        assert 0 < uniform(INDEX[:1], 0, 1).item() < 1 and normal(INDEX[:1], 0, 1).isfinite().all()


def test_uniform_numbers_have_their_moments():
    drawn = uniform(INDEX, 7, 6).double()
    assert (drawn.mean(dim=0) - 0.5).abs().max() < 4 / math.sqrt(12 * len(INDEX))
    assert (drawn.var(dim=0) - 1 / 12).abs().max() < 0.003
    assert stats.kstest(drawn.flatten(), "uniform").pvalue > 0.001


def test_normal_numbers_have_their_moments():
    drawn = normal(INDEX, 7, 6).double()
    assert drawn.shape == (20_000, 6)
    assert drawn.mean(dim=0).abs().max() < 4 / math.sqrt(len(INDEX))
    assert (drawn.std(dim=0) - 1).abs().max() < 0.02
    assert drawn.pow(3).mean().abs() < 0.05 and (drawn.pow(4).mean() - 3).abs() < 0.1
    assert stats.kstest(drawn.flatten(), "norm").pvalue > 0.001


@pytest.mark.parametrize("draw", [uniform, normal])
def test_places_items_and_salts_are_independent(draw):
    drawn = torch.cat([draw(INDEX, salt, 4) for salt in (0, 1, 2, key(3, 4))], dim=1).double()
    neighbours = torch.cat([drawn[:-1], drawn[1:]], dim=1)
    assert (torch.corrcoef(neighbours.T) - torch.eye(32)).abs().max() < 5 / math.sqrt(len(INDEX))


@pytest.mark.parametrize("draw", [uniform, normal])
def test_an_items_numbers_do_not_depend_on_its_batch(draw):
    whole = draw(INDEX, 9, 3, 2)
    shuffled = torch.randperm(len(INDEX), generator=torch.Generator().manual_seed(0))[:777]
    for batch in (shuffled, shuffled[:1], shuffled[:13]):
        torch.testing.assert_close(draw(batch, 9, 3, 2), whole[batch], rtol=1e-6, atol=1e-6)
    assert torch.equal(
        uniform(shuffled, 9, 3, 2), uniform(INDEX, 9, 3, 2)[shuffled]
    )  # and these to the bit


def test_integers_of_any_width_are_the_same_items():
    assert torch.equal(uniform(INDEX[:9].to(torch.int32), 2, 4), uniform(INDEX[:9], 2, 4))


def test_the_bits_are_those_of_splitmix64():
    """The generator's published first outputs from 0, so that a seed always gives the same run."""
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC]
    assert [value % 2**64 for value in bits(torch.arange(1, 5), 0).tolist()] == published
    assert len({key(1, 2), key(2, 1), key(12), key(1, 23), key(12, 3)}) == 5
    assert key(3, 4) == 3916937679215157678
    assert uniform(INDEX[1:2], 5, 2)[0].tolist() == pytest.approx([0.18956393, 0.47306043])
    assert torch.equal(coin(INDEX, 1, 2), bits(INDEX, key(1, 2)) < 0)
