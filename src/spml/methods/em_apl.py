"""EM with asymmetric pseudo-labels: the labels with the lowest scores become soft negatives."""

from typing import Any, Literal

import torch
from torch import Tensor

from spml.losses.components import Context
from spml.losses.entropy import EM_TRAINING, ZHOU, ZHOU_CODE
from spml.losses.framework import Reduction
from spml.losses.metadata import Count1, Eps, Share, method, published, searched
from spml.losses.registry import create, options
from spml.losses.terms import Log
from spml.methods.parts.labels import check_fit, known_labels
from spml.methods.parts.passes import PassMethod

NONE = -1.0  # target of a label without pseudo-label


@method(
    order=150,
    table2=11,
    citation=ZHOU,
    presets=[
        # without em's patience_drop, which may end training before the first pseudo-labels
        *EM_TRAINING,
        published(ZHOU_CODE, "voc", beta=0.02, warmup=5),
        published(ZHOU_CODE, "coco", beta=0.9, warmup=5),
        published(ZHOU_CODE, "nuswide", beta=0.2, warmup=4),
        published(ZHOU_CODE, "cub", beta=0.4, warmup=3),
        published(ZHOU_CODE, theta=0.9),
    ],
    notes=r"""
    **Idea.** EM with asymmetric pseudo-labels: after a warm-up, the unknown labels with the lowest
    scores become soft negatives, with their score at that time as the target. The others are
    treated as in `em`.

    **Loss.** As `em` (or any `base`) without a pseudo-label; with the stored target $q$,
    $-\beta [q\log p+(1-q)\log(1-p)]$. After each epoch $t\ge w$, in each class with $U_c$ unknown
    labels, the $\lfloor\theta U_c/(T-w)\rfloor$ lowest scores among the labels without a
    pseudo-label get one.

    **In the framework.** It does not fit: targets are stored for each item and depend on the scores
    of a whole class.

    **State and cost.** 9 bytes per item and class: a target, a flag for unknown labels, and during
    a pass its score. A pass over the training split after each epoch from `warmup` to the last but
    one.

    **Differences.** The released code scores randomly mirrored pictures; here pictures are not
    mirrored. It makes a last pass that nothing uses, does nothing if the data fit into one batch,
    and leaves a label whose score is exactly 0 unknown. It stops at the first epoch without
    improvement, which may be before the first pseudo-labels; the preset omits that.

    Table 1 of the GR Loss paper writes it within the framework (`variant=gr`): after each epoch
    $\tau$ is the score up to which the lowest θ % of a class lie; $\hat k=0$, $v=\beta$ if
    $\bar p\le\tau$, else $\hat k=1$, $v=\alpha$; and the target of $L_3$ is the current $\bar p$.
    Its gradient is then 0: pseudo-negatives get no entropy term, and nothing else.
    """,
    examples=[
        "digits --method em_apl",
        "digits --method em_apl --set base=gr",
        "digits --method em_apl --set variant=gr",
    ],
)
@searched(
    {"beta": 0.1}, alpha=(0.01, 0.05, 0.1, 0.2), beta=(0.02, 0.1, 0.2, 0.4, 0.9), warmup=(3, 4, 5)
)
class em_apl(PassMethod):  # noqa: N801  (methods are called by their names)
    """Entropy maximisation with asymmetric pseudo-labelling (Zhou et al., 2022).

    Args:
        alpha: weight of the entropy, if the base is em.
        beta: weight of the pseudo-labels.
        theta: share of each class's unknown labels that have a pseudo-label at the end.
        warmup: first epoch, from 1, that is followed by pseudo-labelling.
        base: loss of the labels without pseudo-label: em, or another method that needs only a
            batch.
        eps: added to probabilities inside the logs, as published (1e-5); None is the exact log.
        variant: "original" stores a pseudo-label and its score for each label; "gr", as in Table 1
            of the GR Loss paper, compares the current p with a threshold for each class.
        table: initial labels (items, classes): a negative value -q is a pseudo-label with soft
            target q; for "original".
    """

    needs = frozenset({"items", "index", "pass"})
    targets: Tensor
    thresholds: Tensor
    unknown: Tensor

    def __init__(
        self,
        alpha: float = 0.2,
        beta: float = 0.02,
        theta: Share = 0.9,
        warmup: Count1 = 5,
        base: str = "em",
        eps: Eps = None,
        reduction: Reduction = "mean",
        variant: Literal["original", "gr"] = "original",
        table: Any = None,
        *,
        items: int,
        classes: int,
        observed: Any,
    ) -> None:
        super().__init__()
        self.beta, self.theta, self.reduction = beta, theta, reduction
        self.warmup, self.items = warmup, items
        self.log = Log(eps)
        names = {option.name for option in options(base)}
        passed: dict[str, Any] = {"eps": eps} if "eps" in names else {}
        if base == "em":
            passed["alpha"] = alpha
        self.base = create(base, **passed, reduction="none")
        if table is not None:
            values = torch.as_tensor(table, dtype=torch.float64)
            check_fit("table", values.shape, items, classes)
            targets = torch.where(values < 0, -values, NONE)
            unknown = values <= 0
        else:
            targets = torch.full((items, classes), NONE)
            unknown = known_labels(observed, items, classes) == 0
        self.variant = variant
        if variant == "original":
            self.register_buffer("targets", targets)
        else:
            self.register_buffer("thresholds", torch.full((classes,), NONE))
        self.register_buffer("unknown", unknown, persistent=False)

    @classmethod
    def memory(cls, items: int, classes: int, **options: Any) -> int:
        """A flag for every label, during a pass its score, and a soft target or a threshold."""
        if options.get("variant") == "gr":
            return 5 * items * classes + 4 * classes
        target = 4 if options.get("table") is None else 8  # float32, or float64 like the table
        return (target + 1 + 4) * items * classes

    def entries(self, logits: Tensor, context: Context) -> Tensor:
        observed, index = context.observed, context.index
        if self.variant == "original":
            targets = self.targets[index].to(logits.dtype)
            chosen = targets >= 0
        else:
            targets = context.logits.sigmoid()
            chosen = targets <= self.thresholds.to(targets.dtype)
        absent, present = self.log.absent(logits, context), self.log(logits, context)
        soft = torch.lerp(absent, present, targets.clamp(min=0))
        call = {"epoch": context.epoch, "epochs": context.epochs, "index": index}
        entries = self.base(logits, observed, **call)
        return torch.where(chosen & (observed == 0), self.beta * soft, entries)

    def take_scores(self, logits: Tensor, index: Tensor) -> None:
        super().take_scores(logits.sigmoid(), index)

    def use_scores(self, scores: Tensor, epoch: int, epochs: int) -> None:
        """Assign pseudo-labels to the lowest scores of each class that have none."""
        if self.variant == "gr":
            counts = (self.theta * self.unknown.sum(dim=0).double()).long()
            ranked = scores.masked_fill(~self.unknown, torch.inf).sort(dim=0).values
            ranked = torch.cat([torch.full_like(ranked[:1], NONE), ranked])
            self.thresholds = ranked.gather(0, counts[None])[0].to(self.thresholds)
            return
        open_labels = self.unknown & (self.targets < 0)
        share = self.theta * self.unknown.sum(dim=0).cpu().double()
        # A table, or linear initialisation, may have assigned some pseudo-labels before.
        left = share.floor() - (self.unknown & ~open_labels).sum(dim=0).cpu()
        wanted = torch.minimum((share / (epochs - self.warmup)).floor(), left).long()
        wanted = wanted.to(open_labels.device)
        order = scores.masked_fill(~open_labels, torch.inf).argsort(dim=0, stable=True)
        chosen = (order.argsort(dim=0) < wanted) & open_labels
        self.targets = torch.where(chosen, scores.to(self.targets.dtype), self.targets)
