"""Build any loss by name with the inputs it needs, so that every test covers every method."""

import torch

from spml import losses

NAMES = losses.names()
EPS_NAMES = [name for name in NAMES if "eps" in {option.name for option in losses.options(name)}]


def features_of(name, items, classes):
    """Features of a batch from the method's head: embeddings of a query head, else class maps."""
    head = losses.head(name) or "linear"
    rows = 2 * items if "views" in losses.needs(name) else items
    if head.startswith("query"):
        return embeddings(rows, classes, 2 * 4 + 1 if head.startswith("query-normal") else 6)
    return torch.linspace(-9, 9, rows * classes * 6).view(rows, classes, 3, 2)


def embeddings(items, classes, size):
    """Label embeddings, exact in every precision; the last value, a deviation, is above 0."""
    drawn = (
        torch.randn(items, classes, size, generator=torch.Generator().manual_seed(1))
        .bfloat16()
        .float()
    )
    return torch.cat([drawn[..., :-1], drawn[..., -1:].abs()], dim=-1)


def build(name, observed, **options):
    """Build a loss that is called as loss(logits, observed, epoch=, epochs=).

    Its index and tables are supplied; attribute `method` is the method itself.
    """
    items, classes = observed.shape
    supply = {"items": items, "classes": classes, "observed": observed.to(torch.int8)}
    torch.manual_seed(0)  # for random initial values
    loss = losses.create(name, **(supply if "items" in losses.needs(name) else {}), **options)

    def call(logits, labels, **arguments):
        extra = {"index": torch.arange(len(logits))} if losses.needs(name) else {}
        if "features" in loss.needs:
            extra["features"] = features_of(name, *logits.shape).to(logits.dtype)
        if "views" in loss.needs:
            extra["views"] = logits.detach().roll(1, dims=0)
        return loss(logits, labels, **extra, **arguments)

    call.method = loss
    return call


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
