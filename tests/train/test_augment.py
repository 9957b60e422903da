import torch

from spml.keyed import coin, key
from spml.train.augment import mirror


def test_a_coin_depends_on_seed_epoch_and_item_alone():
    index = torch.arange(1000)
    flips = coin(index, 3, 5)
    shuffled = torch.randperm(1000)
    assert (coin(shuffled, 3, 5) == flips[shuffled]).all()
    assert (coin(index, 3, 6) != flips).float().mean() > 0.3
    assert (coin(index, 4, 5) != flips).float().mean() > 0.3


def test_the_coin_is_fair_and_neighbours_are_independent():
    flips = torch.stack([coin(torch.arange(20000), 0, epoch) for epoch in range(5)]).float()
    assert (flips.mean(dim=1) - 0.5).abs().max() < 0.02
    assert ((flips[:, 1:] == flips[:, :-1]).float().mean() - 0.5).abs() < 0.01
    assert ((flips[1:] == flips[:-1]).float().mean() - 0.5).abs() < 0.01


def test_mirror_turns_the_chosen_pictures_left_to_right():
    pictures = torch.arange(6 * 3 * 2 * 4).view(6, 3, 2, 4).to(torch.uint8)
    index = torch.tensor([9, 1, 7, 3, 12, 40])
    flips = coin(index, 0, 1)
    assert 0 < flips.sum() < 6
    for picture, result, flipped in zip(pictures, mirror(pictures, index, 0, 1), flips, strict=True):
        assert (result == (picture.flip(-1) if flipped else picture)).all()


def test_keys_differ_and_repeat():
    assert len({key(seed, epoch) for seed in range(20) for epoch in range(20)}) == 400
    assert key(1, 23) == key(1, 23) != key(12, 3)
