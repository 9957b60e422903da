"""SMILE's form for pictures against plain loops, term by term."""

import pytest
import torch
import torch.nn.functional as F

from spml.methods.smile import image as smile_image
from tests.losses.common import embeddings, random_batch
from tests.methods.smile import CLASSES, IMAGE, INDEX, an, image_form, kl, soft
from tests.methods.test_contrastive import by_loops, entries


def formula(method, z, d, observed, shown, past, *, alpha, beta, theta, lam, kl_embedding, kl_beta):
    """The loss on pictures after the warm-up; z and d are logits, as drawn or not."""
    size = shown.shape[2] // 2
    mean, log_deviation, _ = shown.split([size, size, 1], dim=2)
    layers = zip(method.form.weight, method.form.bias, strict=True)
    a, b = (F.softplus((w * mean).sum(dim=2) + bias) + 1e-6 for w, bias in layers)
    level = (a / b).log() if d is None else d
    target = torch.where(observed == -1, 0.0, level.sigmoid())
    normal = (mean**2 + log_deviation.exp() ** 2 - 1 - 2 * log_deviation) / 2
    total = theta * soft(z, target) + alpha * an(z, observed) + beta * an(level, observed)
    total = total + kl_embedding * normal.mean(dim=2) + kl_beta * kl(a, b)
    batch = entries(mean, observed == 1)
    return total.mean().item() + lam * by_loops(batch, past, 0.5), batch


SHOWN = embeddings(len(INDEX), CLASSES, 7).double()
CALL = {"index": INDEX, "features": SHOWN, "epochs": 9}


class TestOnPictures:
    logits, observed = random_batch(len(INDEX), CLASSES)

    @pytest.mark.parametrize("sample", [False, True])
    @pytest.mark.parametrize("changed", [{}, *({name: 0.0} for name in IMAGE)])
    def test_the_loss_is_its_formula_over_two_steps(self, monkeypatch, sample, changed):
        options = {**IMAGE, **changed}
        method, past = image_form(sample=sample, **options), []
        torch.manual_seed(1)
        noise, d = torch.randn(2, len(INDEX), CLASSES, dtype=torch.float64)
        monkeypatch.setattr(smile_image, "draw", lambda a, b, index, salt: d)
        monkeypatch.setattr(smile_image.keyed, "normal", lambda index, salt, classes: noise)
        for step in range(2):
            shown = SHOWN.roll(step, dims=0)
            z = self.logits + shown[..., -1] * noise if sample else self.logits
            value = method(self.logits, self.observed, epoch=3, **{**CALL, "features": shown})
            drawn = d if sample else None
            inputs = z, drawn, self.observed, shown, past
            expected, batch = formula(method, *inputs, **options)
            past = past + batch
            assert value.item() == pytest.approx(expected, rel=1e-6)
            if changed and step == 0:
                other = image_form(sample=sample, **IMAGE)
                assert (other(self.logits, self.observed, epoch=3, **CALL) - value).abs() > 1e-3

    @pytest.mark.parametrize(("warmup", "epoch"), [(2, 1), (2, 2), (4, 4)])
    def test_the_warm_up_assumes_negative_twice(self, warmup, epoch):
        method = image_form(warmup=warmup, sample=False)
        a, b = method.form.concentrations(SHOWN[..., :3])
        expected = sum(an(z, self.observed).mean() for z in (self.logits, (a / b).log()))
        value = method(self.logits, self.observed, epoch=epoch, **CALL)
        assert value.item() == pytest.approx(expected.item())
        assert (method.form.queue.classes == -1).all()
        assert method(self.logits, self.observed, epoch=warmup + 1, **CALL) < value

    def test_d_trains_the_classifier_and_is_not_trained_by_it(self):
        slopes = []
        for theta in (0.0, 0.7):
            method = image_form(**{**IMAGE, "theta": theta})
            z = self.logits.clone().requires_grad_()
            method(z, self.observed, epoch=3, **CALL).backward()
            slopes.append((z.grad, method.form.weight.grad))
        assert (slopes[0][0] != slopes[1][0]).all() and torch.equal(slopes[0][1], slopes[1][1])

    def test_logit_and_d_use_different_random_numbers(self, monkeypatch):
        asked = {}
        zeros = lambda name, salt: asked.setdefault(name, salt) * self.logits  # noqa: E731
        monkeypatch.setattr(smile_image, "draw", lambda a, b, index, salt: zeros("d", salt))
        normal = lambda index, salt, classes: zeros("z", salt)  # noqa: E731
        monkeypatch.setattr(smile_image.keyed, "normal", normal)
        method = image_form()
        method.salt = 700
        method(self.logits, self.observed, epoch=3, **CALL)
        d, z = asked["d"], asked["z"]
        assert {d, z} <= set(range(700, 704)) and z not in (d, d + 1)  # a draw uses two

    def test_concentrations_do_not_vanish(self):
        method = image_form()
        low = -1e5 * method.form.weight[0].detach().sign()
        assert method.form.concentrations(low[None])[0].min().item() == pytest.approx(1e-6)
        features = SHOWN.clone()
        features[..., :3] = low
        features.requires_grad_()
        value = method(self.logits, self.observed, epoch=3, **{**CALL, "features": features})
        (slope,) = torch.autograd.grad(value, features)
        assert value.isfinite() and slope.isfinite().all()

    def test_its_layers_are_initialised_like_linear_layers(self):
        for values in image_form(classes=50, size=16).form.parameters():
            assert 0.2 < values.max() <= 0.25 and -0.25 <= values.min() < -0.2
