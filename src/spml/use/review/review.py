"""List the labels most likely missing from a run's data: a table, and a page to answer on."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image
from torch import Tensor

from spml.data import LabelTable
from spml.data.images.decode import resize
from spml.data.images.loader import Item
from spml.data.names import text_cell
from spml.data.readers.builder import OnError
from spml.errors import UserError
from spml.files import replacing_folder
from spml.model import Classifier, ModelInfo, load_model
from spml.model.scoring import infer
from spml.runs.run import Run
from spml.use import pages
from spml.use.evaluate import compare_items, run_data
from spml.use.explain.class_maps import (
    ATTENTION,
    COVER,
    STRENGTH,
    class_maps,
    colours,
    enlarged,
    full_colour,
    is_evidence,
    plain,
    shown,
)
from spml.use.predict.inputs import Note
from spml.use.predict.predict import class_column
from spml.use.review.ranking import Suggestion, suggest
from spml.use.stored_model import own_device, score_readable

Split = Literal["train", "val", "all"]
Advance = Callable[[str, int, int], None]
SIDE = 360  # the longer side of a picture as shown, in pixels
MAP = 72  # sides of a heat map, which the browser enlarges
QUALITY = 85  # of the JPEG files
EVIDENCE = (
    "evidence in logits; a place with colour supports the class more than the whole picture does"
)
MIN_PRECISION = 0.5  # of the labels of a calibrated model
TABLE, PICTURES = "suggestions.csv", "pictures"
NO_PICTURE = {"picture": "", "map": "", "w": 0, "h": 0}
COLUMNS = ("rank", "image", "class", "probability", "score", "observed")


def review(
    run: Path,
    out: Path,
    *,
    count: int = 500,
    classes: Sequence[str] = (),
    per_class: int | None = None,
    min_precision: float | None = None,
    split: Split = "train",
    root: Path | None = None,
    overwrite: bool = False,
    unescaped: bool = False,
    batch_size: int = 64,
    accept_changed_data: bool = False,
    on_error: OnError | None = None,
    note: Note | None = None,
    advance: Advance | None = None,
) -> int:
    """Write suggestions.csv, index.html and pictures; return the number of suggestions.

    There are at most `count` suggestions, at most `per_class` of a class, and only of `classes` if
    they are named. An unreadable picture is left out if there is `on_error`; changed labels are
    used all the same, with a `note`, and changed items only if that is accepted. Cells that a
    spreadsheet would compute have an apostrophe before them unless `unescaped`. `advance` is
    called with the stage, the amount done and its total.
    """
    numbers = {"--count": count, "--per-class": per_class, "--batch-size": batch_size}
    for flag, value in numbers.items():
        if value is not None and value < 1:
            raise UserError(f"{flag} must be above 0, not {value}")
    if min_precision is not None and not 0 <= min_precision <= 1:
        raise UserError(f"--min-precision must be from 0 to 1, not {min_precision}")
    pages.refuse_others(out, overwrite, "review", lambda name: name in (TABLE, PICTURES))
    stored = Run(run)
    config = stored.config
    stored.require_result()
    model, info = load_model(run)
    model.to(own_device())
    experiment = run_data(config, info.classes, root, note)
    columns = [class_column(name, info, "--classes") for name in classes]
    rows = {"train": [experiment.train_rows], "val": [experiment.val_rows]}
    searched = rows.get(split, [experiment.train_rows, experiment.val_rows])
    table = experiment.observed.take(np.sort(np.concatenate(searched)))
    if not len(table):
        raise UserError(f"{experiment.name} has no rows of split {split}")
    compare_items(stored, experiment, split, table, accept_changed_data, note)
    scoring = None if advance is None else partial(advance, "scoring")
    logits, read = score_readable(table, model, info, batch_size, on_error, scoring)
    suggestions = suggest(logits, table.labels, read, info, count, columns or None, per_class)
    if not suggestions:
        raise UserError(f"every label of split {split} is known; there is nothing to suggest")
    suggestions = _probable(suggestions, info, min_precision, note)
    with replacing_folder(out) as folder:
        _write_table(folder / TABLE, table, suggestions, str if unescaped else text_cell)
        drawn = draw(suggestions, table, model, info, folder / PICTURES, advance)
        page = render(f"Review, {run.resolve().name}", model, table, suggestions, drawn)
        (folder / pages.PAGE).write_text(page, encoding="utf-8", errors="replace")
    return len(suggestions)


def _probable(
    suggestions: list[Suggestion], info: ModelInfo, least: float | None, note: Note | None
) -> list[Suggestion]:
    """Return the suggestions of at least this probability, of a model that is calibrated."""
    if info.calibration is None:
        if least is not None:
            raise UserError(
                "--min-precision compares calibrated probabilities, and the model has none; "
                "run spml calibrate first, or leave it out"
            )
        if note is not None:
            note(
                "the model is not calibrated, so the list has as many labels as --count; "
                "after spml calibrate it ends where labels become improbable"
            )
        return suggestions
    least = MIN_PRECISION if least is None else least
    probable = [one for one in suggestions if one.probability >= least]
    if not probable:
        best = max(one.probability for one in suggestions)
        raise UserError(
            f"no unknown label has a probability of {least:g}; the highest is {best:.2f}: "
            "give a lower --min-precision"
        )
    return probable


def _write_table(
    path: Path,
    table: LabelTable,
    suggestions: Sequence[Suggestion],
    cell: Callable[[str], str],
) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(COLUMNS)
        for rank, one in enumerate(suggestions, 1):
            known, _ = table.known(one.row)
            name, image = table.classes[one.column], table.items[one.row]
            numbers = f"{one.probability:.6f}", f"{one.score:.4f}"
            rows.writerow([rank, cell(image), cell(name), *numbers, cell("|".join(known))])


def draw(
    suggestions: Sequence[Suggestion],
    table: LabelTable,
    model: Classifier,
    info: ModelInfo,
    folder: Path,
    advance: Advance | None = None,
) -> list[dict[str, Any]]:
    """Write each item's picture once, and a heat map of each suggestion, into a new folder.

    Each suggestion has its files beside the page and its picture's size, or `NO_PICTURE`.
    """
    drawn = [NO_PICTURE] * len(suggestions)
    if info.preprocessing["kind"] != "pictures":
        return drawn
    folder.mkdir()
    by_row: dict[int, list[int]] = {}
    for i, one in enumerate(suggestions):
        by_row.setdefault(one.row, []).append(i)
    maps = True
    for done, (row, places) in enumerate(by_row.items(), 1):
        picture = Item.of(table, row).picture()
        name = f"{places[0] + 1:05d}.jpg"
        image = plain(shown(picture, SIDE))
        image.save(folder / name, quality=QUALITY)
        heat = _heat(model, picture, int(info.preprocessing["size"])) if maps else None
        maps = heat is not None
        for i in places:
            drawn[i] = {"picture": f"{folder.name}/{name}", "map": ""}
            drawn[i] |= {"w": image.width, "h": image.height}
            if heat is not None:
                file = f"{i + 1:05d}-map.png"
                values = heat[suggestions[i].column]
                _map_image(values, full_colour(model, values[None])).save(folder / file)
                drawn[i]["map"] = f"{folder.name}/{file}"
        if advance is not None:
            advance("drawing", done, len(by_row))
    return drawn


def render(
    title: str,
    model: Classifier,
    table: LabelTable,
    suggestions: Sequence[Suggestion],
    drawn: Sequence[dict[str, Any]],
) -> str:
    """Render the page; its key separates the browser's stored answers from other reviews'."""
    cards = [
        {
            "image": table.items[one.row],
            "name": table.classes[one.column],
            "p": round(one.probability, 4),
            "known": _known(table, one.row),
            **files,
        }
        for one, files in zip(suggestions, drawn, strict=True)
    ]
    entries = "\n".join(f"{card['image']}\t{card['name']}" for card in cards)
    key = hashlib.sha256(entries.encode("utf-8", "replace")).hexdigest()[:16]
    maps = ""
    if any(files["map"] for files in drawn):
        meaning = EVIDENCE if is_evidence(model) else ATTENTION
        maps = f"Heat maps are {meaning}. Full colour is the highest value of each."
    return pages.render("review.html", title=title, cards=cards, key=key, maps=maps)


def _known(table: LabelTable, row: int) -> list[str]:
    """Observed labels of an item: names of positives, then of known negatives after "not"."""
    there, absent = table.known(row)
    return there + [f"not {name}" for name in absent[:3]] + (["…"] if len(absent) > 3 else [])


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
