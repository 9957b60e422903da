"""Search spaces: declared beside each method, valid, and different from the published options."""

import pytest
import torch

from spml import losses
from spml.data.benchmarks import NAMES as DATASETS
from spml.losses.metadata import Space, differs
from spml.train.resolve import method_options

from .common import NAMES, build, random_batch


@pytest.mark.parametrize("name", NAMES)
def test_every_value_of_a_space_makes_the_method(name):
    space = losses.space(name)
    _, observed = random_batch()
    for options in [
        *(choice for choices in space.dimensions.values() for choice in choices),
        *space.alternatives,
    ]:
        losses.check_options(name, options)
        build(name, observed, **options)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("data", [*DATASETS, "digits"])
def test_the_alternative_is_none_of_the_published_options(name, data):
    space, published = losses.space(name), method_options(name, data, {})
    other = space.alternative(published)
    assert (other is None) == (not space.alternatives)
    assert other is None or differs(other, published)


BETWEEN_EPOCHS = {"en"}  # its searched options take effect between epochs only
IN_A_BATCH = [
    n for n in NAMES if losses.space(n).alternatives and not losses.needs(n) - {"items", "index"}
]


@pytest.mark.parametrize("name", [n for n in IN_A_BATCH if n not in BETWEEN_EPOCHS])
def test_the_alternative_is_another_loss_in_batches_of_the_benchmark(name):
    """Eight pictures of twenty classes: a share of so few entries is a whole number of them."""
    published = method_options(name, "voc", {})
    logits, observed = torch.randn(8, 20), torch.zeros(8, 20)
    observed[torch.arange(8), torch.arange(8)] = 1
    values = []
    for options in (published, {**published, **(losses.space(name).alternative(published) or {})}):
        loss = build(name, observed, **options)
        values.append(torch.stack([loss(logits, observed, epoch=t, epochs=8) for t in (2, 7)]))
    assert not torch.equal(*values)


def test_a_method_without_a_declared_space_has_an_empty_one():
    assert losses.space("torch.nn.functional:cross_entropy") == Space()


def test_choices_are_options_of_that_name_or_sets_of_options():
    @losses.searched({"a": 1}, {"a": 2}, a=(1, 2), both=({"a": 1, "b": (0, 1)},))
    def method(a=1, b=(0, 0)): ...

    space = method.space
    assert space.dimensions == {"a": ({"a": 1}, {"a": 2}), "both": ({"a": 1, "b": (0, 1)},)}
    assert space.alternative({"a": 1}) == {"a": 2} and space.alternative({"a": 5}) == {"a": 1}
    assert Space(alternatives=({"w": (0, 2)},)).alternative({"w": [0.0, 2.0]}) is None
