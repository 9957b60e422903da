"""SMILE's form for pictures against plain loops, term by term."""

import pytest
import torch
import torch.nn.functional as F

from spml.methods.smile import image as smile_image
from tests.losses.common import embeddings, random_batch
from tests.methods.smile import CLASSES, IMAGE, INDEX, an, image_form, kl, soft
from tests.methods.test_contrastive import by_loops, entries

SIZE, QUEUE = 3, 25


def formula(method, z, d, observed, shown, noise, past, options):
    """The loss on pictures after the warm-up; d are logits, drawn or None, noise of two draws."""
    layers = zip(method.form.weight, method.form.bias, strict=True)
    a, b = (F.softplus((w * shown).sum(dim=2) + bias) + 1e-6 for w, bias in layers)
    level = (a / b).log() if d is None else d
    first, _, second = method.form.projection.layers
    hidden = (shown @ first.weight.T + first.bias).clamp(min=0)
    mean, spread = (hidden @ second.weight.T + second.bias).split([SIZE, SIZE], dim=2)
    deviation = (1 + spread.exp()).log()
    normal = (mean**2 + deviation**2 - 1 - 2 * deviation.log()) / 2
    target = torch.where(observed == -1, 0.0, level.sigmoid())
    total = options["theta"] * soft(z, target) + options["alpha"] * an(z, observed)
    total = total + options["beta"] * an(level, observed)
    total = total + options["kl_embedding"] * normal.mean(dim=2) + options["kl_beta"] * kl(a, b)
    draws = torch.stack([mean + deviation * each for each in noise.unbind(dim=1)])
    present = (z.sigmoid() + (observed == 1) >= 0.9) & (observed != -1)
    batch = entries(draws, present, unit=False)
    return total.mean().item() + options["lam"] * by_loops(batch, past, 1.0, size=QUEUE), batch


def before(method, z, d, observed, shown, past, *, alpha, beta, theta, lam, kl_embedding, kl_beta):
    """The form of the earlier results: normal embeddings from the head, contrast of their means."""
    size = shown.shape[2] // 2
    mean, log_deviation, _ = shown.split([size, size, 1], dim=2)
    layers = zip(method.form.weight, method.form.bias, strict=True)
    a, b = (F.softplus((w * mean).sum(dim=2) + bias) + 1e-6 for w, bias in layers)
    level = (a / b).log() if d is None else d
    target = torch.where(observed == -1, 0.0, level.sigmoid())
    normal = (mean**2 + log_deviation.exp() ** 2 - 1 - 2 * log_deviation) / 2
    total = theta * soft(z, target) + alpha * an(z, observed) + beta * an(level, observed)
    total = total + kl_embedding * normal.mean(dim=2) + kl_beta * kl(a, b)
    batch = entries(mean[None], observed == 1)
    return total.mean().item() + lam * by_loops(batch, past, 0.5), batch


WIDTH = 8
SHOWN = embeddings(len(INDEX), CLASSES, WIDTH).double()
NORMAL = embeddings(len(INDEX), CLASSES, 7).double()
CALL = {"index": INDEX, "features": SHOWN, "epochs": 9}
BEFORE = {"contrast": "means", "detach": True, "tau": 1.0, "queue": 512, "queue_temperature": 0.5}


class TestOnPictures:
    logits, observed = random_batch(len(INDEX), CLASSES)

    @pytest.mark.parametrize("sample", [False, True])
    @pytest.mark.parametrize("changed", [{}, *({name: 0.0} for name in IMAGE)])
    def test_the_loss_is_its_formula_over_three_steps(self, monkeypatch, sample, changed):
        options = {**IMAGE, **changed}
        method, past = image_form(sample=sample, size=SIZE, queue=QUEUE, **options), []
        torch.manual_seed(1)
        d = torch.randn(len(INDEX), CLASSES, dtype=torch.float64)
        noise = torch.randn(len(INDEX), 2, CLASSES, SIZE, dtype=torch.float64) * sample
        monkeypatch.setattr(smile_image, "draw", lambda a, b, index, salt: d)
        monkeypatch.setattr(smile_image.keyed, "normal", lambda index, salt, *shape: noise)
        for step in range(3):
            shown = SHOWN.roll(step, dims=0)
            value = method(self.logits, self.observed, epoch=3, **{**CALL, "features": shown})
            inputs = self.logits, d if sample else None, self.observed, shown, noise
            expected, batch = formula(method, *inputs, past, options)
            past = past + batch
            assert value.item() == pytest.approx(expected, rel=1e-6)
            if changed and step == 0:
                other = image_form(sample=sample, size=SIZE, queue=QUEUE, **IMAGE)
                assert (other(self.logits, self.observed, epoch=3, **CALL) - value).abs() > 1e-3
        assert len(batch) < QUEUE < len(past)

    @pytest.mark.parametrize("sample", [False, True])
    @pytest.mark.parametrize("changed", [{}, *({name: 0.0} for name in IMAGE)])
    def test_the_form_of_earlier_results_remains_an_option(self, monkeypatch, sample, changed):
        options = {**IMAGE, **changed}
        method, past = image_form(sample=sample, width=7, **BEFORE, **options), []
        torch.manual_seed(1)
        noise, d = torch.randn(2, len(INDEX), CLASSES, dtype=torch.float64)
        monkeypatch.setattr(smile_image, "draw", lambda a, b, index, salt: d)
        monkeypatch.setattr(smile_image.keyed, "normal", lambda index, salt, classes: noise)
        for step in range(2):
            shown = NORMAL.roll(step, dims=0)
            z = self.logits + shown[..., -1] * noise if sample else self.logits
            value = method(self.logits, self.observed, epoch=3, **{**CALL, "features": shown})
            inputs = z, d if sample else None, self.observed, shown, past
            expected, batch = before(method, *inputs, **options)
            past = past + batch
            assert value.item() == pytest.approx(expected, rel=1e-6)

    @pytest.mark.parametrize(("warmup", "epoch"), [(2, 1), (2, 2), (4, 4)])
    def test_the_warm_up_assumes_negative_twice(self, warmup, epoch):
        method = image_form(warmup=warmup, sample=False)
        a, b = method.form.concentrations(SHOWN)
        expected = sum(an(z, self.observed).mean() for z in (self.logits, (a / b).log()))
        value = method(self.logits, self.observed, epoch=epoch, **CALL)
        assert value.item() == pytest.approx(expected.item())
        assert (method.form.queue.classes == -1).all()
        assert method(self.logits, self.observed, epoch=warmup + 1, **CALL) < value

    @pytest.mark.parametrize("detach", [False, True])
    def test_the_cross_entropy_trains_the_classifier_and_d_unless_detached(self, detach):
        slopes = []
        for theta in (0.0, 0.7):
            method = image_form(**{**IMAGE, "theta": theta}, detach=detach)
            z = self.logits.clone().requires_grad_()
            method(z, self.observed, epoch=3, **CALL).backward()
            slopes.append((z.grad, method.form.weight.grad))
        assert (slopes[0][0] != slopes[1][0]).all()
        assert torch.equal(slopes[0][1], slopes[1][1]) == detach

    def test_draws_use_different_random_numbers(self, monkeypatch):
        asked = {}
        zeros = lambda name, salt: asked.setdefault(name, salt) * self.logits  # noqa: E731

        def normal(index, salt, *shape):
            asked["z" if len(shape) == 1 else "views"] = salt
            return torch.zeros(len(index), *shape)

        monkeypatch.setattr(smile_image, "draw", lambda a, b, index, salt: zeros("d", salt))
        monkeypatch.setattr(smile_image.keyed, "normal", normal)
        for shown in (SHOWN, NORMAL):
            method = image_form(width=shown.shape[2])
            method.salt = 700
            method(self.logits, self.observed, epoch=3, **{**CALL, "features": shown})
        d, z, views = asked["d"], asked["z"], asked["views"]
        assert len({d, d + 1, z, views}) == 4 and {d, z, views} <= set(range(700, 706))

    def test_an_embedding_is_drawn_twice(self):
        method = image_form(size=200)
        mean, spread = torch.zeros(2, 6, CLASSES, 200, dtype=torch.float64)
        one, two = method.form.views(method, mean, spread, INDEX)
        assert abs(one.std() - 1) < 0.05 and abs(two.std() - 1) < 0.05
        assert abs((one * two).mean()) < 0.05

    def test_a_spread_that_vanishes_leaves_value_and_slope_finite(self):
        method = image_form()
        method.form.projection.layers[2].bias.data[3:] = -1e4
        value = method(self.logits, self.observed, epoch=3, **CALL)
        value.backward()
        slopes = [p.grad for p in method.parameters()]
        assert value.isfinite() and all(slope.isfinite().all() for slope in slopes)

    def test_concentrations_do_not_vanish(self):
        method = image_form()
        low = -1e5 * method.form.weight[0].detach().sign()
        assert method.form.concentrations(low[None])[0].min().item() == pytest.approx(1e-6)
        features = low[None].expand_as(SHOWN).clone().requires_grad_()
        value = method(self.logits, self.observed, epoch=3, **{**CALL, "features": features})
        (slope,) = torch.autograd.grad(value, features)
        assert value.isfinite() and slope.isfinite().all()

    def test_its_layers_are_initialised_like_linear_layers(self):
        form = image_form(classes=50, width=16).form
        for values in (form.weight, form.bias):
            assert 0.2 < values.max() <= 0.25 and -0.25 <= values.min() < -0.2
