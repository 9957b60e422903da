"""Every loss at logits of any size, in any precision, with labels of any kind, type and number."""

import pytest
import torch

from spml import losses

from .common import (
    EPS_NAMES,
    FORM_IDS,
    FORMS,
    NAMES,
    build,
    every_label,
    random_batch,
    value_and_gradient,
)

EXTREME = [-6e4, -90.0, -20.0, 0.0, 20.0, 90.0, 6e4]
EPOCHS = [(1, 1), (2, 8), (8, 8)]
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
every_form = pytest.mark.parametrize(("name", "options"), FORMS, ids=FORM_IDS)


def assert_finite(loss, logits, observed, **call):
    """Check value and gradients; a second call meets the state that the first one left."""
    for _ in range(2):
        z = logits.detach().clone().requires_grad_()
        value = loss(z, observed, **call)
        leaves = [z, *loss.inputs.values(), *loss.method.parameters()]
        gradients = torch.autograd.grad(value.sum(), leaves, allow_unused=True)
        assert value.isfinite().all() and value.dtype == torch.promote_types(z.dtype, torch.float32)
        assert all(each is None or each.isfinite().all() for each in gradients)
        assert gradients[0].dtype == logits.dtype


@every_form
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("epoch", "epochs"), EPOCHS)
def test_value_and_gradient_are_finite_at_any_logit(name, options, dtype, epoch, epochs):
    logits = torch.tensor([EXTREME] * 3, dtype=dtype)
    for observed in every_label():
        loss = build(name, observed, **options)
        assert_finite(loss, logits, observed, epoch=epoch, epochs=epochs)


TWICE = {"role", "lagc"}  # losses that add the loss of a label twice, so twice the largest number


@pytest.mark.parametrize("name", [name for name in NAMES if name not in TWICE])
@pytest.mark.parametrize("reduction", ["mean", "sum", "sum_classes", "none"])
@pytest.mark.parametrize("items", [1, 3])
def test_finite_up_to_the_largest_logit_of_float32(name, reduction, items):
    largest = torch.finfo(torch.float32).max
    for observed in every_label(items)[1:]:
        for logit in (-largest, -1e38, 1e38, largest):
            loss = build(name, observed, reduction=reduction)
            assert_finite(loss, torch.full((items, 7), logit), observed, epoch=2, epochs=8)


@pytest.mark.parametrize(
    ("reduction", "share", "total"),
    [("mean", 3, 2e38), ("sum", 1, 1.7e38), ("sum_classes", 1, 1.7e38)],
)
def test_the_largest_logits_keep_their_slope(reduction, share, total):
    logits, observed = torch.tensor([[-1e38, 1e38, 1e38]]), torch.tensor([[1, 0, 1]])
    loss = losses.create("an", reduction=reduction)
    value, slope = value_and_gradient(loss, logits, observed)
    assert value.item() == pytest.approx(total / share, rel=1e-2)
    torch.testing.assert_close(slope, torch.tensor([[-1.0, 1.0, 0.0]]) / share)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {"eps": eps}) for name in EPS_NAMES for eps in (1e-5, 1e-7)),
        ("gr", {"variant": "paper"}),
        ("gr", {"q1": 0.7, "q2": 0.7, "q3": 0.3}),
        ("gr", {"q1": [0.0, 0.3, 1, 0, 1, 0, 0.7], "q3": [0.0, 0.3, 1, 0, 1, 0, 1.5]}),
        ("gr", {"a": 0.68}),
        ("gce", {"q": 1e-6}),
        ("asl", {"detach": False, "gamma_neg": 0.5}),
        ("asl", {"detach": False, "clip": 0}),
        ("asl", {"clip": 1e-9}),
        ("asl", {"detach": False, "clip": 1e-9}),
        ("asl", {"detach": False, "gamma_neg": 0.5, "clip": 0.5}),  # 0 is on the boundary
        ("focal", {"gamma": 0.5}),
        ("hill", {"variant": "gr"}),
        ("splc", {"variant": "gr"}),
        ("ll_r", {"delta": 0.3}),
        ("ll_ct", {"delta": 0.3}),
        ("an", {"eps": 0}),
        ("em", {"eps": 0}),
    ],
)
def test_finite_at_any_logit_with_other_options(name, options, dtype):
    observed, logits = every_label()[0], torch.tensor([EXTREME] * 3, dtype=dtype)
    for epoch, epochs in EPOCHS:
        loss = build(name, observed, **options)
        assert_finite(loss, logits, observed, epoch=epoch, epochs=epochs)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_do_not_vanish_for_hopeless_positives(name):
    """Without eps the log keeps its slope; only losses of a probability give positives up."""
    observed = torch.ones(1, 1)
    loss = build(name, observed, reduction="sum")
    _, gradient = value_and_gradient(loss, torch.tensor([[-90.0]]), observed)
    if name not in ("gce", "taylor_ce"):
        assert gradient.item() < -0.05


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "rows",
    [
        [[0, 0, 0], [0, 0, 0]],
        [[1, 1, 0], [1, 1, 1]],
        [[-1, -1, -1], [-1, 0, -1]],
        [[1, -1, 0]],
        [[0]],
        [[1]],
        [[-1], [0], [1]],
    ],
)
def test_every_set_of_labels_is_legal(name, rows):
    observed = torch.tensor(rows, dtype=torch.int8)
    logits = torch.linspace(-3, 3, observed.numel()).view(observed.shape)
    for epoch, epochs in EPOCHS:
        assert_finite(build(name, observed), logits, observed, epoch=epoch, epochs=epochs)


def test_with_one_class_an_unknown_label_counts_as_much_as_a_positive():
    logits, observed = torch.tensor([[1.0], [2.0]]), torch.tensor([[1], [0]])
    assert losses.create("wan")(logits, observed) == losses.create("an")(logits, observed)


@pytest.mark.parametrize("name", NAMES)
def test_labels_of_any_type_give_the_same_value(name):
    logits, observed = random_batch()
    expected = build(name, observed)(logits, observed, epoch=3, epochs=8)
    for dtype in (torch.int16, torch.int64, torch.float16, torch.float32, torch.float64):
        assert build(name, observed)(logits, observed.to(dtype), epoch=3, epochs=8) == expected

    positive = observed.clamp(min=0)
    expected = build(name, positive)(logits, positive, epoch=3, epochs=8)
    for dtype in (torch.bool, torch.uint8):
        assert build(name, positive)(logits, positive.to(dtype), epoch=3, epochs=8) == expected


@pytest.mark.parametrize("name", NAMES)
def test_half_precision_is_computed_in_float32(name):
    logits, observed = random_batch()
    half = logits.to(torch.bfloat16)
    values = [build(name, observed)(z, observed, epoch=2, epochs=8) for z in (half, half.float())]
    assert values[0] == values[1]
    assert build(name, observed)(logits, observed, epoch=2, epochs=8).dtype == torch.float64


@pytest.fixture
def default_dtype():
    yield torch.set_default_dtype
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize(("name", "options"), [*FORMS, ("crisp", {"warmup": 1})])
def test_a_program_may_have_another_default_dtype(name, options, dtype, default_dtype):
    default_dtype(dtype)
    logits, observed = random_batch()
    loss = build(name, observed, **options)
    for epoch in (1, 2):
        value, gradient = value_and_gradient(loss, logits.float(), observed, epoch=epoch, epochs=3)
        assert value.isfinite() and gradient.isfinite().all()
        if loss.method.wants_pass(epoch, 3):
            loss.method.take_scores(logits.float(), torch.arange(len(logits)))
        loss.method.end_epoch(epoch, 3)


@every_form
def test_a_method_may_have_a_wider_dtype_than_the_logits(name, options):
    logits, observed = random_batch()
    loss = build(name, observed, **options)
    loss.method.double()
    value, gradient = value_and_gradient(loss, logits.float(), observed, epoch=2, epochs=8)
    expected = build(name, observed, **options)(logits.float(), observed, epoch=2, epochs=8)
    torch.testing.assert_close(value, expected, check_dtype=False, rtol=1e-5, atol=1e-6)
    assert gradient.isfinite().all()


@every_form
@pytest.mark.parametrize(("epoch", "epochs"), EPOCHS)
def test_reductions_agree(name, options, epoch, epochs):
    logits, observed = random_batch()
    value = {
        reduction: build(name, observed, reduction=reduction, **options)(
            logits, observed, epoch=epoch, epochs=epochs
        )
        for reduction in ("none", "mean", "sum", "sum_classes")
    }
    entries = value["none"]
    assert entries.shape == logits.shape
    torch.testing.assert_close(value["mean"], entries.mean())
    torch.testing.assert_close(value["sum"], entries.sum())
    torch.testing.assert_close(value["sum_classes"], entries.sum(dim=1).mean())
    default = build(name, observed, **options)(logits, observed, epoch=epoch, epochs=epochs)
    assert default == value["mean"]


@pytest.mark.parametrize("name", NAMES)
def test_a_known_negative_is_never_encouraged(name):
    """Its gradient is 0 or more in every epoch, whatever the model predicts."""
    observed = torch.tensor([[-1, -1, -1, 0, 0, 1]] * 2)
    logits = torch.tensor([[5.0, 0.0, -5.0, 1.0, 0.0, 2.0]] * 2, dtype=torch.float64)
    for epoch in (1, 2, 8):
        call = {"epoch": epoch, "epochs": 8}
        _, with_term = value_and_gradient(build(name, observed), logits, observed, **call)
        if name == "epr":  # without the slope of its penalty
            with_term -= value_and_gradient(build("epr", observed), logits, observed * 0)[1]
        assert (with_term[:, :3] >= 0).all()


@every_form
def test_evaluation_mode_changes_no_state(name, options):
    logits, observed = random_batch()
    loss = build(name, observed, **options)
    before = {key: value.clone() for key, value in loss.method.eval().state_dict().items()}
    loss(logits + 1, observed, epoch=8, epochs=8)
    after = dict(loss.method.state_dict())
    torch.testing.assert_close(after, before, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", NAMES)
def test_shapes_that_differ_are_refused(name):
    logits, observed = random_batch()
    with pytest.raises(ValueError, match=r"logits \(5, 7\) and observed \(5, 6\) differ in shape"):
        build(name, observed)(logits, observed[:, :6])
