"""SMILE: estimate how much each label describes an item, and train the classifier with it."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from spml.losses.components import Context
from spml.losses.framework import Reduction
from spml.losses.metadata import (
    Above0,
    Citation,
    Count0,
    Count1,
    Share,
    method,
    published,
    searched,
)
from spml.methods.parts.draws import EpochDraws
from spml.methods.smile.image import Contrast, ImageForm
from spml.methods.smile.table import TableForm, feature_table

ON_PICTURES = (
    "SMILE on pictures as in the development repository of MIME's author; "
    "the released code has feature data only"
)


@method(
    order=250,
    table2=12,
    citation=Citation(
        "Xu et al.",
        "One Positive Label is Sufficient: Single-Positive Multi-Label Learning with Label "
        "Enhancement",
        "NeurIPS",
        2022,
        repository="https://github.com/palm-ml/smile",
        commit="8feb9b8",
        link="https://arxiv.org/abs/2206.00517",
        names="Ning Xu, Congyu Qiao, Jiaqi Lv, Xin Geng, Min-Ling Zhang",
    ),
    presets=[
        published(ON_PICTURES, lr=1e-5, optimizer="adam", alpha=0.1, beta=0.01, theta=0.01),
        published(ON_PICTURES, kl_embedding=1e-5, kl_beta=1e-5, warmup=2),
        published(ON_PICTURES, head_lr=1, frozen_norm=True, head="query"),
        published(ON_PICTURES, queue=2048, queue_temperature=1, tau=0.9),
        published(ON_PICTURES, "voc", batch_size=8, epochs=10, lam=0.1, size=128),
        published(ON_PICTURES, "coco", batch_size=16, epochs=10, lam=0.01, size=64),
        published(ON_PICTURES, "nuswide", batch_size=16, epochs=10, lam=0.1, size=128),
        published(ON_PICTURES, "cub", batch_size=8, epochs=20, lam=0.001, size=128),
    ],
    notes=r"""
    **Idea.** A second model beside the classifier estimates $d$, the degree to which each label
    describes an item: from a graph of neighbouring items for feature vectors, from label embeddings
    with a Beta distribution for pictures. The classifier learns partly from $d$, and $d$ must
    reconstruct the known labels.

    **Loss.** On feature vectors, with $\tilde s=1$ for observed labels and $\pi_0$ for unknown
    ones, $w$ = `rate` for unknown labels and $\hat y\sim\mathrm{Beta}(d,1-d)$,

    $$w\,\mathrm{BCE}\bigl(\mu\bar d+(1-\mu)\tilde s,\,p\bigr)+\mathrm{AN}(d)
    +\gamma\bigl[\mathrm{MSE}(\hat x,x)+\mathrm{AN}(\hat y)
    +\mathrm{MSE}(\hat y\hat y^{\top},A)\bigr]
    +\delta\,\mathrm{KL}\bigl(\mathrm{Beta}(d,1-d)\,\Vert\,\mathrm{Beta}(1,1)\bigr).$$

    On pictures, with $d\sim\mathrm{Beta}(a,b)$ from each label's embedding:
    $\mathrm{AN}(p)+\mathrm{AN}(d)$ in the first two epochs, then

    $$\theta\,\mathrm{CE}(d,p)+\alpha\,\mathrm{AN}(p)+\beta\,\mathrm{AN}(d)
    +10^{-5}\,\mathrm{KL}_z+10^{-5}\,\mathrm{KL}_{\mathrm{Beta}}+\lambda\,\mathrm{LAC},$$

    LAC being the contrastive loss of `lagc` with $T=1$, over two draws $z$ from a normal
    distribution that two layers project from the embedding, not scaled, of the newest 2048 labels
    that are observed or have $p\ge0.9$. A known negative has 0 as its target.

    **In the framework.** The whole method does not fit, since $d$ is not a function of $p$. The
    classifier's part on feature vectors is $\hat k=\mu d+(1-\mu)\pi_0$ and $v$ = `rate`.

    **State and cost.** On feature vectors the graph, 8 (k + 1) bytes per item, and the features; on
    pictures a projection, two numbers for each class and dimension, and the queue. The query head
    has about 151 million parameters on ResNet-50.

    **Differences.** The released code has feature vectors only; the form for pictures is that of
    MIME's author's repository. The released divergence has the wrong sign in its logs of gamma
    functions (`kl=released`); features are standardised here (`standardise=false` turns that off);
    one Adam with two parameter groups replaces two optimisers. On pictures the logs are exact, the
    backbone's first layers learn too, and [the query head](#mime) has no positions or dropout.

    The [recorded results](reproduction.md#query-heads) had `--head query-normal:128`, its earlier
    structure, `contrast=means`, `detach=true`, `tau=1`, `queue=512` and `queue_temperature=0.5`.
    """,
    examples=[
        "digits --method smile --lr 1e-3 --head-lr 1 --set warmup=0",
        "features.npz --method smile --set mu=0.5",
    ],
)
@searched(
    {"lam": 0.01}, {"lam": 0.1}, lam=(0.01, 0.1, 1.0), mu=(0.01, 0.1, 0.5), pi0=(0.001, 0.025, 0.1)
)
class smile(EpochDraws):  # noqa: N801  (methods are called by their names)
    """Label enhancement: learn how much each label describes an item (Xu et al., 2022).

    There are two forms: on feature vectors, `x` or those of the table `observed`, that of the
    published code, where a graph of neighbouring items gives the degrees d; on pictures that of
    MIME's authors, where the embeddings of a query head do.

    Args:
        mu: feature vectors: share of d in the classifier's target; published: 0.01 to 0.9, mostly
            low.
        pi0: feature vectors: target of an unknown label without d; published: 0.001 to 0.1.
        rate: feature vectors: weight of an unknown label in the classifier's loss; published: 0.1
            to 0.7, or none, which is 1 / (classes - 1).
        k: feature vectors: number of neighbours of an item in the graph.
        gamma: feature vectors: weight of the reconstruction of labels, features and graph from d.
        delta: feature vectors: weight of d's divergence from the uniform distribution.
        temperature: feature vectors: divisor of d's logits.
        kl: feature vectors: "correct" divergence, or the "released" code's expression, whose logs
            of gamma functions have the wrong sign.
        standardise: feature vectors: whether to standardise features for the graph and the
            reconstruction, as for the classifier; the published code does not.
        own_lr: feature vectors: learning rate of the model of d.
        x: feature vectors: features (items, features) of the training split, if its table has none.
        warmup: pictures: epochs of assume-negative for the classifier and d. Their loss is about
            ten times that of later epochs, so Adam takes small steps for a while: 0 is better on
            few items.
        alpha: pictures: weight of assume-negative for the classifier.
        beta: pictures: weight of assume-negative for d.
        theta: pictures: weight of the classifier's cross-entropy with d as target.
        lam: pictures: weight of the contrastive loss.
        kl_embedding: pictures: weight of the embeddings' divergence from the standard normal
            distribution.
        kl_beta: pictures: weight of d's divergence from the uniform distribution.
        size: pictures: size of the embeddings in the contrastive loss, a projection of the head's.
        tau: pictures: probability from which an unknown label enters the contrastive loss; 1 admits
            observed labels only.
        contrast: pictures: compare two "draws" of each embedding, not scaled, averaged over the
            queue; or "means", scaled to length 1, averaged over the batch.
        detach: pictures: whether the classifier's cross-entropy leaves d without a gradient.
        queue: pictures: number of labels in the contrastive loss.
        queue_temperature: pictures: temperature of the contrastive loss.
        sample: whether to sample d and, for pictures, the embeddings and a query-normal head's
            logit; otherwise use their means.
    """

    needs = frozenset({"items", "index", "features"})
    head: ClassVar[str | None] = "query"
    form: TableForm | ImageForm

    def __init__(
        self,
        mu: Share = 0.1,
        pi0: Share = 0.025,
        rate: float | None = 0.1,
        k: Count1 = 3,
        gamma: float = 1e-3,
        delta: float = 1.0,
        temperature: Above0 = 1.0,
        kl: Literal["correct", "released"] = "correct",
        standardise: bool = True,
        own_lr: Above0 = 1e-3,
        x: Any = None,
        warmup: int = 2,
        alpha: float = 0.1,
        beta: float = 0.01,
        theta: float = 0.01,
        lam: float = 0.1,
        kl_embedding: float = 1e-5,
        kl_beta: float = 1e-5,
        size: Count1 = 128,
        tau: Share = 0.9,
        contrast: Contrast = "draws",
        detach: bool = False,
        queue: Count0 = 2048,
        queue_temperature: Above0 = 1.0,
        sample: bool = True,
        reduction: Reduction = "mean",
        *,
        items: int,
        classes: int,
        observed: Any,
    ) -> None:
        super().__init__()
        self.mu, self.pi0, self.gamma, self.delta = mu, pi0, gamma, delta
        self.rate = 1 / max(classes - 1, 1) if rate is None else rate
        self.temperature, self.kl, self.own_lr = temperature, kl, own_lr
        self.warmup, self.alpha, self.beta, self.theta, self.lam = warmup, alpha, beta, theta, lam
        self.kl_embedding, self.kl_beta = kl_embedding, kl_beta
        self.least = torch.logit(torch.tensor(tau, dtype=torch.float64)).item()  # inf for tau = 1
        self.detach = detach
        self.sample, self.reduction = sample, reduction
        x = _features(observed) if x is None else x
        if x is not None:
            self.needs = frozenset({"items", "index"})
            self.form = TableForm(feature_table(x, items), k, standardise, classes)
        else:
            self.form = ImageForm(size, queue, queue_temperature, contrast)

    @classmethod
    def memory(cls, items: int, classes: int, **options: Any) -> int:
        """Bytes of the graph, and of the features if they are an option; a table's do not count."""
        x = options.get("x")
        graph = 8 * items * (1 + int(options.get("k", 3)))
        return graph if x is None else graph + 4 * torch.as_tensor(x).numel()

    def prepare(self, features: Tensor) -> None:
        """Pictures: reject features that are no embeddings; create layers of their size."""
        if isinstance(self.form, ImageForm):
            self.form.prepare(features)

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """Parameters of d's model, at its own learning rate or, for pictures, the head's."""
        rate = self.own_lr if isinstance(self.form, TableForm) else lr
        return [{"params": list(self.parameters()), "lr": rate}]

    def entries(self, logits: Tensor, context: Context) -> Tensor:
        entries: Tensor = self.form(self, logits, context)
        return entries


def _features(observed: Any) -> Any:
    """The feature vectors of a table, or None."""
    x = getattr(observed, "x", None)
    return x if x is not None and x.ndim == 2 else None
