"""All that is drawn from: seeded together, and put back where it stood."""

import random

import numpy as np
import pytest
import torch

from spml.runs.folder import read_checkpoint, write_checkpoint
from spml.train.randomness import kept, random_state, seed, set_random_state

CPU = torch.device("cpu")


def drawn():
    return random.random(), np.random.rand(), torch.rand(1).item()


def test_a_seed_of_any_size_is_that_of_all_three():
    for number in (7, 2**40 + 7):
        seed(number)
        first = drawn()
        seed(number)
        assert drawn() == first
        seed(number + 1)
        assert all(one != other for one, other in zip(drawn(), first, strict=True))


def test_a_checkpoint_brings_each_back_to_where_it_stood(tmp_path):
    drawn()
    write_checkpoint(tmp_path / "last.ckpt", {"epoch": 1, **random_state(CPU)})
    then = drawn()
    state = read_checkpoint(tmp_path / "last.ckpt")
    set_random_state(state, CPU)
    assert drawn() == then and state == {"epoch": 1}


def test_what_is_seeded_and_drawn_inside_is_not_seen_outside():
    seed(3)
    expected = drawn()
    seed(3)
    with pytest.raises(KeyError), kept():
        seed(9)
        drawn()
        raise KeyError
    assert drawn() == expected
