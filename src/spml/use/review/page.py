"""The page of a review: a card for each suggestion, with its picture and a heat map."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image
from torch import Tensor

from spml.data import LabelTable
from spml.data.images.decode import resize
from spml.errors import UserError
from spml.model import Classifier, ModelInfo
from spml.model.scoring import infer
from spml.use import pages
from spml.use.explain.class_maps import ATTENTION, class_maps, enlarged, full_colour, is_evidence
from spml.use.explain.overlay import COVER, STRENGTH, colours, plain
from spml.use.review.ranking import Suggestion
from spml.use.stored_model import item_of, picture_of

SIDE = 360  # the longer side of a picture as shown, in pixels
MAP = 72  # sides of a heat map, which the browser enlarges
QUALITY = 85  # of the JPEG files
EVIDENCE = (
    "evidence in logits; a place with colour supports the class more than the whole picture does"
)

Advance = Callable[[str, int, int], None]


class Drawn(NamedTuple):
    """Files of a suggestion beside the page, and the picture's size; empty if there is no file."""

    picture: str = ""
    map: str = ""
    size: tuple[int, int] = (0, 0)


def draw(
    suggestions: Sequence[Suggestion],
    table: LabelTable,
    model: Classifier,
    info: ModelInfo,
    folder: Path,
    advance: Advance | None = None,
) -> list[Drawn]:
    """Write each item's picture once, and a heat map of each suggestion, into a new folder."""
    drawn = [Drawn()] * len(suggestions)
    if info.preprocessing["kind"] != "pictures":
        return drawn
    folder.mkdir()
    by_row: dict[int, list[int]] = {}
    for i, one in enumerate(suggestions):
        by_row.setdefault(one.row, []).append(i)
    maps = True
    for done, (row, places) in enumerate(by_row.items(), 1):
        picture = picture_of(item_of(table, row))
        name = f"{places[0] + 1:05d}.jpg"
        image = _fitted(plain(picture), SIDE)
        image.save(folder / name, quality=QUALITY)
        heat = _heat(model, picture, int(info.preprocessing["size"])) if maps else None
        maps = heat is not None
        for i in places:
            shown = Drawn(f"{folder.name}/{name}", size=image.size)
            if heat is not None:
                file = f"{i + 1:05d}-map.png"
                values = heat[suggestions[i].column]
                _map_image(values, full_colour(model, values[None])).save(folder / file)
                shown = shown._replace(map=f"{folder.name}/{file}")
            drawn[i] = shown
        if advance is not None:
            advance("drawing", done, len(by_row))
    return drawn


def render(
    title: str,
    model: Classifier,
    table: LabelTable,
    suggestions: Sequence[Suggestion],
    drawn: Sequence[Drawn],
) -> str:
    """Render the page; its key separates the browser's stored answers from other reviews'."""
    cards = [
        {
            "image": table.items[one.row],
            "name": table.classes[one.column],
            "p": round(one.probability, 4),
            "known": _known(table, one.row),
            "picture": files.picture,
            "map": files.map,
            "w": files.size[0],
            "h": files.size[1],
        }
        for one, files in zip(suggestions, drawn, strict=True)
    ]
    entries = "\n".join(f"{card['image']}\t{card['name']}" for card in cards)
    key = hashlib.sha256(entries.encode("utf-8", "replace")).hexdigest()[:16]
    maps = ""
    if any(files.map for files in drawn):
        shown = EVIDENCE if is_evidence(model) else ATTENTION
        maps = f"Heat maps are {shown}. Full colour is the highest value of each."
    return pages.render("review.html", title=title, cards=cards, key=key, maps=maps)


def _known(table: LabelTable, row: int) -> list[str]:
    """Observed labels of an item: names of positives, then of known negatives after "not"."""
    there, absent = table.known(row)
    return there + [f"not {name}" for name in absent[:3]] + (["…"] if len(absent) > 3 else [])


def _fitted(image: Image.Image, side: int) -> Image.Image:
    """A picture resized so that its longer side has `side` pixels."""
    scale = side / max(image.size)
    return image.resize((max(1, round(image.width * scale)), max(1, round(image.height * scale))))


def _heat(model: Classifier, picture: Tensor, size: int) -> Tensor | None:
    """The class maps of a picture; None if the backbone has no feature map.

    Evidence is relative to its mean, because labels learned as absent have hardly any above 0.
    """
    device = next(model.parameters()).device
    try:
        _, maps = infer(lambda x: class_maps(model, x), resize(picture, size)[None], device)
    except UserError:
        return None
    heat = maps[0].float().cpu()
    return heat - heat.mean(dim=(1, 2), keepdim=True) if is_evidence(model) else heat


def _map_image(values: Tensor, full: float) -> Image.Image:
    """A class map as colours whose opacity rises with the value."""
    level = (enlarged(values, MAP, MAP) / full).clamp(0, 1).numpy()
    cover = 255 * STRENGTH * level**COVER
    return Image.fromarray(np.rint(np.dstack([colours(level), cover])).astype(np.uint8), "RGBA")
