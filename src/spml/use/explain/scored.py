"""Probabilities, tags and class maps of one picture."""

from __future__ import annotations

from PIL import Image
from torch import Tensor

from spml.data.images.decode import resize
from spml.model import Classifier, ModelInfo
from spml.model.scoring import infer
from spml.use.explain.class_maps import class_maps, from_threshold, full_colour
from spml.use.explain.overlay import overlay, rounded, shown
from spml.use.stored_model import calibrated


class ScoredPicture:
    """Probabilities, tags and class maps of one picture.

    Attributes:
        picture: uint8 (3, H, W) at the size of the page.
        maps: (classes, h, w), relative to the model's thresholds.
        probabilities: one per class, calibrated.
        tagged: whether each class is a tag.
        order: columns, the most probable class first.
    """

    def __init__(self, model: Classifier, info: ModelInfo, picture: Tensor) -> None:
        self.model, self.info, self.picture = model, info, shown(picture)
        x = resize(picture, int(info.preprocessing["size"]))
        device = next(model.parameters()).device
        logits, maps = infer(lambda x: class_maps(model, x), x[None], device)
        logits = logits.float().cpu()
        scores = calibrated(info, logits)[0]
        self.maps = from_threshold(model, info, maps[0].float().cpu())
        self.probabilities: list[float] = scores.sigmoid().tolist()
        self.tagged = info.tag_rule.tagged(logits)[0]
        self.order: list[int] = scores.argsort(descending=True, stable=True).tolist()

    def overlay(self, column: int, scale: Tensor) -> tuple[Image.Image, str]:
        """Draw a class's map over the picture, and describe it in one line.

        The maximum of the maps `scale` (..., h, w) has full colour.
        """
        name, probability = self.info.classes[column], f"{self.probabilities[column]:.2f}"
        values = self.maps[column]
        full = full_colour(self.model, scale.reshape(-1, *values.shape))
        span = f"{rounded(values.min())} to {rounded(values.max())}"
        note = f"threshold {self.info.thresholds[column]:.2f}, map {span}"
        image = overlay(self.picture, values, full, name, probability, note)
        return image, f"{name} {probability}, {note}"
