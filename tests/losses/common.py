"""Build any loss by name with the inputs it needs, so that every test covers every method."""

import copy

import torch

from spml import losses

NAMES = losses.names()
EPS_NAMES = [name for name in NAMES if "eps" in {option.name for option in losses.options(name)}]
FORMS = [  # all methods, and forms of them that compute something else
    *((name, {}) for name in NAMES),
    ("crisp", {"warmup": 0, "priors": [0.5, 0.25, 0.75, 0.125, float("nan"), 1.0, 0.5]}),
    ("em_apl", {"variant": "gr"}),
    ("en", {"cl": 1.0, "scl": 1.0, "grid": 4}),
    ("en", {"cl": 1.0, "scl": 1.0, "grid": 4, "power": 1.0, "start": "first"}),
    ("gr_learnable", {"constraint": "batch"}),
    ("gr_learnable", {"constraint": "none"}),
    ("mime", {"rule": "ignore", "mean_inverse_positives": 0.5, "warmup": 1}),
    ("smile", {"x": lambda items: torch.arange(2.0 * items).view(items, 2)}),
]
FORM_IDS = ["-".join([name, *options]) for name, options in FORMS]


def features_of(name, items, classes):
    """Features of a batch from the method's head: embeddings of a query head, else class maps."""
    head = losses.head(name) or "linear"
    rows = 2 * items if "views" in losses.needs(name) else items
    if head.startswith("query"):
        return embeddings(rows, classes, 2 * 4 + 1 if head.startswith("query-normal") else 6)
    return torch.linspace(-9, 9, rows * classes * 6).view(rows, classes, 3, 2)


def embeddings(items, classes, size):
    """Label embeddings, exact in every precision; the last value, a deviation, is above 0."""
    generator = torch.Generator().manual_seed(1)
    drawn = torch.randn(items, classes, size, generator=generator).bfloat16().float()
    return torch.cat([drawn[..., :-1], drawn[..., -1:].abs()], dim=-1)


def create(name, observed, **options):
    """A method with the tables that it needs; callable options get the number of items."""
    items, classes = observed.shape
    data = {"items": items, "classes": classes, "observed": observed.to(torch.int8)}
    data = data if "items" in losses.needs(name) else {}
    options = {key: v(items) if callable(v) else v for key, v in options.items()}
    torch.manual_seed(0)  # for random initial values
    return losses.create(name, **data, **options)


class build:  # noqa: N801  (used like a function)
    """A loss that is called as loss(logits, observed, epoch=, epochs=).

    Its index and tables are supplied; attribute `method` is the method itself, `inputs` are the
    features and views of the last call.
    """

    def __init__(self, name, observed, **options):
        self.name, self.method = name, create(name, observed, **options)
        if "features" in self.method.needs:
            self.method.prepare(features_of(name, 1, observed.shape[1]))

    def __call__(self, logits, labels, **arguments):
        needs, self.inputs = self.method.needs, {}
        if "features" in needs:
            self.inputs["features"] = features_of(self.name, *logits.shape).to(logits.dtype)
        if "views" in needs:
            self.inputs["views"] = logits.detach().roll(1, dims=0)
        for value in self.inputs.values():
            value.requires_grad_()
        index = {"index": torch.arange(len(logits))} if losses.needs(self.name) else {}
        return self.method(logits, labels, **index, **self.inputs, **arguments)

    def of(self, method):
        """The same calls of another method."""
        other = copy.copy(self)
        other.method = method
        return other


def value_and_gradient(loss, logits, observed, **call):
    """Loss and its gradient with respect to the logits."""
    z = logits.detach().clone().requires_grad_()
    value = loss(z, observed, **call)
    (gradient,) = torch.autograd.grad(value.sum(), z)
    return value.detach(), gradient


def random_batch(items=5, classes=7, seed=0):
    """Float64 logits and labels of all kinds: one row has none known, one several positives."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(items, classes, generator=generator, dtype=torch.float64) * 3
    observed = torch.randint(-1, 2, (items, classes), generator=generator).to(torch.int8)
    observed[0] = 0
    observed[1, :2] = 1
    observed[2, :3] = torch.tensor([1, 0, -1])
    return logits, observed


def every_label(items=3, classes=7):
    """Tables of labels: known positive, unknown and known negative rows, then each alone."""
    rows = torch.arange(items)[:, None].remainder(3).expand(items, classes)
    return [1 - rows, *(torch.full((items, classes), label) for label in (1, 0, -1))]
