"""EN: in each class, the labels with the lowest mean prediction are expected negatives."""

from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from spml.losses.components import Context
from spml.losses.cross_entropy import EXPECTED_POSITIVES
from spml.losses.framework import Method, Reduction
from spml.losses.metadata import (
    Citation,
    Count1,
    Eps,
    Range,
    Share,
    Weight,
    method,
    published,
    searched,
)
from spml.losses.terms import Log
from spml.methods.parts.heatmaps import HeatMaps, whole
from spml.methods.parts.labels import known_labels

EXPECTED = -2  # beside the labels 1, 0 and -1: an unknown label that is expected to be negative
UNPUBLISHED = (
    "default; not published in a source that could be read: Verelst et al., WACV 2023, "
    "as described by Chen et al., IJCAI 2024"
)

Count = Literal["observed", "uniform"]
Start = Literal["observed", "first"]
Ties = Literal["all", "random"]


@method(
    order=160,
    citation=Citation(
        "Verelst et al.",
        "Spatial Consistency Loss for Training Multi-Label Classifiers from Single-Label "
        "Annotations",
        "WACV",
        2023,
        link=(
            "https://openaccess.thecvf.com/content/WACV2023/papers/Verelst_Spatial_Consistency_Loss_"
            "for_Training_Multi-Label_Classifiers_From_Single-Label_Annotations_WACV_2023_paper.pdf"
        ),
        names="Thomas Verelst, Paul K. Rubenstein, Marcin Eichner, Tinne Tuytelaars, Maxim Berman",
    ),
    presets=[
        *EXPECTED_POSITIVES,
        published(UNPUBLISHED, count="observed", momentum=0.8, start="observed", power=2.0),
    ],
    notes=r"""
    **Idea.** Predictions of each label are averaged over epochs; in each class, the labels with the
    lowest averages are expected negatives. The others, about as many as the expected positives, do
    not enter the loss.

    **Loss.** With $\bar p\leftarrow\mu\bar p+(1-\mu)p$ at each visit and $N_c=k\,n_c$ expected
    positives of a class ($k$ positives per item, $n_c$ observed in the class), each epoch begins by
    marking the $N-N_c$ lowest $\bar p$ of each class. Then

    $$-[s=1]\log p-[\text{marked or }s=-1]\log(1-p)
    \;+\;\gamma_{cl}\,\lvert p-\bar p\rvert^r
    \;+\;\gamma_{scl}\,\mathrm{mean}\,\lvert m-\bar m\rvert^r,$$

    where $m$ is the sigmoid class map of the picture and $\bar m$ a heat map kept for every label,
    read and written at the region that the crop shows, mirrored if the picture is. The consistency
    terms `cl` and `scl` are off by default.

    **In the framework.** $\hat k=0$, and $v$ is 1 for marked labels and 0 for others; but the marks
    come from a table of past predictions, so it is outside the framework.

    **State and cost.** A mean (4 bytes) and a label (1 byte) for every item and class; with `scl` a
    heat map of `grid` × `grid` half-precision cells for every label, which on COCO at 28 × 28 is
    8.2 GB, reported before it is allocated and rejected if it does not fit; it is part of every
    checkpoint. One ranking of each class at the start of an epoch.

    **Differences.** No released code was found. Marking and loss are as the GR Loss paper describes
    them; momentum, $N_c$, $r$, the weights and the first epoch are not described there and are
    options. In the first epoch all averages are tied: with `ties=all` every unknown label is then a
    negative, with `ties=random` only the expected number of them.
    """,
    examples=[
        "digits --method en --set expected_positives=1.46",
        "digits --method en --set scl=1 --set grid=8 --crop 0.5",
    ],
)
@searched(
    {"count": "uniform"}, count=("observed", "uniform"), momentum=(0.5, 0.8, 0.95), cl=(0.0, 1.0)
)
class en(Method):  # noqa: N801  (methods are called by their names)
    """Expected negatives, with consistency terms as options (Verelst et al., 2023).

    At the start of an epoch, the labels of each class with the lowest mean prediction are expected
    negatives; known positives rank highest, known negatives lowest. In the first epoch all means of
    unknown labels are 0: with ties="all", all unknown labels are then negatives, as in `an`. Known
    negatives have no consistency term, because a mean above p would raise p.

    Args:
        expected_positives: mean number of positive labels per item, from another source.
        count: expected positives of a class: expected_positives times those "observed" in the
            class, or "uniform" over classes.
        momentum: weight of the old mean at each visit.
        start: initial means: "observed", 1 for known positives and 0 otherwise, or the "first"
            prediction.
        ties: if labels tie at the threshold, take "all" of them as expected negatives, or draw the
            required number at "random".
        cl: weight of the consistency of predictions; 0 is off.
        scl: weight of the consistency of class maps; 0 is off. It stores a heat map for every
            label.
        power: exponent of the differences in both terms; at least 1.
        grid: number of cells of a heat map in each direction.
        eps: added to probabilities inside the logs; None is the exact log.
    """

    needs = frozenset({"items", "index"})
    mean: Tensor
    labels: Tensor
    seen: Tensor

    def __init__(
        self,
        expected_positives: Weight = 1.5,
        count: Count = "observed",
        momentum: Share = 0.8,
        start: Start = "observed",
        ties: Ties = "all",
        cl: Weight = 0.0,
        scl: Weight = 0.0,
        power: Annotated[float, Range(1, ends="[)")] = 2.0,
        grid: Count1 = 28,
        eps: Eps = None,
        reduction: Reduction = "mean",
        *,
        items: int,
        classes: int,
        observed: Any,
    ) -> None:
        super().__init__()
        self.momentum, self.start, self.ties = momentum, start, ties
        self.cl, self.scl, self.power = cl, scl, power
        self.log, self.reduction = Log(eps), reduction
        labels = known_labels(observed, items, classes)
        labels[labels == 0] = EXPECTED
        positives = (labels == 1).sum(dim=0).tolist()
        shares = [items / classes] * classes if count == "uniform" else positives
        self.negatives = [max(items - round(expected_positives * share), 0) for share in shares]
        self.register_buffer("labels", labels)
        self.register_buffer("mean", (labels == 1).float())
        self.register_buffer("seen", torch.zeros(items, dtype=torch.bool))
        self.heat = HeatMaps(items, classes, grid, momentum) if scl else None
        self.boxes: Tensor | None = None
        if scl:
            self.needs = self.needs | {"features"}

    @classmethod
    def memory(
        cls, items: int, classes: int, *, scl: float = 0.0, grid: int = 28, **options: Any
    ) -> int:
        """Bytes of means, labels and, if scl is on, heat maps."""
        return items * (5 * classes + 1) + (HeatMaps.memory(items, classes, grid) if scl else 0)

    def prepare(self, features: Tensor) -> None:
        """Reject features that are not class maps."""
        if features.ndim != 4 or features.shape[1] != self.labels.shape[1]:
            raise ValueError(
                "en with scl needs a class map of each picture, "
                f"not features {tuple(features.shape[1:])}; "
                "give --head linear with a picture backbone, or scl=0"
            )

    def see(self, boxes: Tensor) -> None:
        """Receive the visible part of each picture of the next batch; by default, the whole."""
        self.boxes = boxes

    def begin_epoch(self, epoch: int, epochs: int) -> None:
        """Choose the expected negatives of this epoch."""
        items = len(self.labels)
        order = torch.randperm(items).to(self.mean.device) if self.ties == "random" else None
        for labels, mean, count in zip(self.labels.T, self.mean.T, self.negatives, strict=True):
            known = labels.abs() == 1
            ranked = torch.where(known, labels * torch.inf, mean)
            marks = torch.where(_lowest(ranked, count, order), EXPECTED, 0)
            labels.copy_(torch.where(known, labels, marks))

    def entries(self, logits: Tensor, context: Context) -> Tensor:
        """Loss of each entry; in training mode it updates the means with the predictions."""
        observed, index = context.observed, context.index
        past = self.mean[index].to(logits.dtype)
        negative = (observed == -1) | (self.labels[index] == EXPECTED)
        entries = torch.where(negative, self.log.absent(logits, context), 0.0)
        entries = torch.where(observed == 1, self.log(logits, context), entries)
        p = logits.sigmoid()
        if self.start == "first":
            past = torch.where(self.seen[index][:, None], past, p.detach())
        if self.cl:
            distance = self.cl * (p - past).abs() ** self.power
            entries = entries + torch.where(observed == -1, 0.0, distance)
        if self.heat is not None:
            spatial = self._spatial(self.heat, context.features, index).to(entries.dtype)
            entries = entries + torch.where(observed == -1, 0.0, self.scl * spatial)
        if self.training:
            self.mean[index] = torch.lerp(p.detach(), past, self.momentum).to(self.mean.dtype)
            self.seen[index] = True
        return entries

    def _spatial(self, heat: HeatMaps, features: Tensor, rows: Tensor) -> Tensor:
        """Mean distance of each label's class map from its heat map, which it then updates."""
        maps = features.float().sigmoid()
        boxes = whole(len(rows), rows.device) if self.boxes is None else self.boxes
        self.boxes = None
        past, known = heat.read(rows, boxes, *maps.shape[-2:])
        distance = torch.where(known, (maps - past).abs() ** self.power, 0.0).sum(dim=(2, 3))
        if self.training:
            heat.write(rows, boxes, maps.detach())
        return distance / known.sum(dim=(2, 3)).clamp(min=1)


def _lowest(scores: Tensor, count: int, order: Tensor | None) -> Tensor:
    """Whether each score is among that many lowest; a random order breaks ties, else all count."""
    if count == 0:
        return torch.zeros_like(scores, dtype=torch.bool)
    if order is None:
        return scores <= scores.kthvalue(count).values
    chosen = order[scores[order].argsort(stable=True)[:count]]
    return torch.zeros_like(scores, dtype=torch.bool).index_fill(0, chosen, True)
