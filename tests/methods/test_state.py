"""What a method remembers: its state, copies of it, the memory that it reports, its optimiser."""

import copy
import pickle

import pytest
import torch

from spml import losses
from spml.data import LabelTable
from tests.losses.common import FORM_IDS, FORMS, NAMES, build, create, features_of, random_batch

ITEMS, CLASSES = 37, 5
WITH_DATA = [name for name in NAMES if "items" in losses.needs(name)]


def trained(name, options):
    """A loss after a step of the last epoch, and its batch."""
    logits, observed = random_batch()
    loss = build(name, observed, **options)
    torch.manual_seed(7)
    loss.method.begin_epoch(8, 8)
    loss(logits, observed, epoch=8, epochs=8)
    return loss, logits + 1, observed


@pytest.mark.parametrize(("name", "options"), FORMS, ids=FORM_IDS)
def test_copies_pickles_and_states_give_the_same_loss(name, options):
    loss, logits, observed = trained(name, options)
    restored = create(name, observed, **options)  # not prepared for the size of features
    restored.load_state_dict(loss.method.state_dict())
    copies = [copy.deepcopy(loss.method), pickle.loads(pickle.dumps(loss.method)), restored]
    expected = loss(logits, observed, epoch=8, epochs=8)
    for method in copies:
        assert loss.of(method)(logits, observed, epoch=8, epochs=8) == expected
        assert method.needs == loss.method.needs
    assert "lambda" not in repr(loss.method) and "0x" not in repr(loss.method)


LAYERS = {f"projection.layers.{n}.{part}" for n in (0, 2) for part in ("weight", "bias")}
STATES = {
    "role": {"label_logits"},
    "ll_cp": {"corrected"},
    "em_apl": {"targets"},
    "en": {"mean", "labels", "seen"},
    "en-cl-scl-grid": {"mean", "labels", "seen", "heat.maps", "heat.seen"},
    "crisp": {"priors", "running", "_extra_state"},
    "mime": {"marked", "_extra_state"},
    "lagc": {*LAYERS, "queue.embeddings", "queue.classes"},
    "smile": {"_extra_state"}
    | {f"form.{part}" for part in ("weight", "bias", "queue.embeddings", "queue.classes", *LAYERS)},
    "gr_learnable": {"khat.w", "khat.b", "weight.mu", "weight.width"},
}


@pytest.mark.parametrize("form", [form for form in FORM_IDS if form in {*STATES, *NAMES}])
def test_a_state_has_nothing_that_follows_from_labels_or_options(form):
    name, options = FORMS[FORM_IDS.index(form)]
    assert set(trained(name, options)[0].method.state_dict()) == STATES.get(form, set())


@pytest.mark.parametrize("form", ["mime", "smile", "smile-x"])
def test_random_numbers_of_an_epoch_are_in_the_state(form):
    loss, logits, observed = trained(*FORMS[FORM_IDS.index(form)])
    call = {"epoch": 8, "epochs": 8}
    loss.method.eval()  # the queue does not change
    expected, state = loss(logits, observed, **call), loss.method.state_dict()
    loss.method.begin_epoch(8, 8)
    other = loss(logits, observed, **call)
    assert other != expected
    loss.method.load_state_dict(state)
    assert loss(logits, observed, **call) == expected


X = torch.arange(10.0).view(5, 2)


@pytest.mark.parametrize(
    ("name", "options", "random"),
    [
        ("mime", {}, True),
        ("mime", {"sample": False}, False),
        ("smile", {"lam": 0.0, "warmup": 0}, True),
        ("smile", {"lam": 0.0, "warmup": 0, "sample": False}, False),
        ("smile", {"x": X, "gamma": 0.0}, False),
        ("smile", {"x": X, "gamma": 1.0}, True),
    ],
)
def test_random_numbers_depend_on_the_item_and_the_epoch(name, options, random):
    logits, observed = random_batch()
    method = build(name, observed, reduction="none", **options).method
    features = features_of(name, 5, 7) if "features" in method.needs else None

    def entries(rows):
        shown = None if features is None else features[rows].double()
        return method(logits[rows], observed[rows], epoch=2, index=rows, features=shown)

    whole, some = entries(torch.arange(5)), torch.tensor([3, 1])
    if options.get("gamma") != 1.0:  # its graph term is a number of the batch
        # The last bit of a logarithm may depend on the batch.
        torch.testing.assert_close(entries(some), whole[some], rtol=1e-5, atol=0)
    method.begin_epoch(2, 10)
    assert bool((entries(torch.arange(5)) != whole).all()) == random
    assert torch.equal(entries(torch.arange(5)), whole) != random


@pytest.mark.parametrize("name", WITH_DATA)
def test_a_label_table_is_accepted_like_an_array(name):
    observed = random_batch(6, 3)[1]
    named = LabelTable(list("012345"), list("abc"), observed.numpy())
    methods = []
    for source in (named, observed, observed.numpy()):
        torch.manual_seed(0)
        method = losses.create(name, items=6, classes=3, observed=source)
        if method.wants_pass(5, 10):
            method.take_scores(torch.linspace(-3, 2, 18).view(6, 3), torch.arange(6))
        method.end_epoch(5, 10)
        methods.append(method)
    for method in methods[1:]:
        pairs = zip(methods[0].buffers(), method.buffers(), strict=True)
        assert all(torch.equal(a.nan_to_num(-1), b.nan_to_num(-1)) for a, b in pairs)


@pytest.mark.parametrize(
    ("name", "options", "lr", "shapes"),
    [
        ("role", {}, 0.25, [(5, 7)]),
        ("role", {"label_lr": 10.0}, 2.5, [(5, 7)]),
        ("lagc", {"size": 3}, 0.25, [(6, 6), (6,), (3, 6), (3,)]),
        ("smile", {"size": 3}, 0.25, [(2, 7, 6), (2, 7), (6, 6), (6,), (6, 6), (6,)]),
        ("smile", {"x": torch.ones(5, 2), "own_lr": 0.02}, 0.02, None),
        ("smile", {"x": torch.ones(5, 2)}, 1e-3, None),
    ],
)
def test_own_parameters_are_trained_as_fast_as_the_head_or_as_they_ask(name, options, lr, shapes):
    method = build(name, random_batch()[1], **options).method
    (group,) = method.parameter_groups(0.25)
    assert group["lr"] == lr
    assert {id(p) for p in group["params"]} == {id(p) for p in method.parameters()}
    assert shapes is None or [tuple(p.shape) for p in group["params"]] == shapes


MEMORY = [  # method and options
    ("role", {}),
    ("role", {"estimated": torch.full((ITEMS, CLASSES), 0.5)}),
    ("ll_cp", {}),
    ("ll_cp", {"variant": "released"}),
    ("em_apl", {"warmup": 1}),
    ("em_apl", {"warmup": 1, "table": torch.zeros(ITEMS, CLASSES)}),
    ("em_apl", {"warmup": 1, "variant": "gr"}),
    ("crisp", {"warmup": 1}),
    ("crisp", {"warmup": 0, "priors": [0.5] * CLASSES}),
    ("en", {}),
    ("en", {"scl": 1.0, "grid": 3}),
    ("mime", {"warmup": 1}),
    ("mime", {"warmup": 1, "rule": "ignore", "mean_inverse_positives": 0.5}),
    ("gr_learnable", {}),
    ("gr_learnable", {"learn_alpha": False}),
    ("gr_learnable", {"own_momentum": 0.0}),
    ("an", {}),
    ("gr", {}),
]


def size(tensors):
    return sum(t.numel() * t.element_size() for t in tensors if isinstance(t, torch.Tensor))


def stored_bytes(loss):
    """Bytes held by a trained method, in the middle of its pass if it makes one."""
    method = loss.method
    groups = method.parameter_groups(0.1)
    optimizers = [torch.optim.Adam(groups)] if groups else []
    optimizers += [own] if (own := method.optimizer()) else []
    logits = torch.randn(ITEMS, CLASSES, requires_grad=True)
    loss(logits, torch.eye(ITEMS, CLASSES), epoch=1, epochs=4).backward()
    for optimizer in optimizers:
        optimizer.step()
    if method.wants_pass(1, 4):
        method.take_scores(torch.randn(ITEMS, CLASSES), torch.arange(ITEMS))
    moments = [
        value
        for optimizer in optimizers
        for state in optimizer.state.values()
        for name, value in state.items()
        if name != "step"  # a single number
    ]
    return size([*method.parameters(), *method.buffers(), *moments, *vars(method).values()])


@pytest.mark.parametrize(
    ("name", "options"), MEMORY, ids=["-".join([name, *options]) for name, options in MEMORY]
)
def test_memory_is_what_a_method_keeps(name, options):
    observed = torch.zeros(ITEMS, CLASSES, dtype=torch.int8)
    observed[torch.arange(ITEMS), torch.arange(ITEMS) % CLASSES] = 1
    loss = build(name, observed, **options)
    loss.method.observed = None  # belongs to the training split
    assert losses.memory(name, ITEMS, CLASSES, **options) == stored_bytes(loss)


def test_memory_of_heat_maps_and_graphs():
    coco = losses.memory("en", 65665, 80, scl=1.0)
    assert coco / 1e9 == pytest.approx(8.2, abs=0.15)
    assert losses.memory("en", 65665, 80, scl=1.0, grid=14) < coco / 3.8
    assert losses.memory("smile", 100, 7) == 100 * 4 * 8
    x = torch.zeros(100, 6)
    assert losses.memory("smile", 100, 7, k=5, x=x) == 100 * 6 * 8 + 100 * 6 * 4
    with pytest.raises(ValueError, match="grid is a whole number"):
        losses.memory("en", 6, 4, scl=1.0, grid="x")
