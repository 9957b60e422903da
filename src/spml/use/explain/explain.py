"""Class maps of pictures, and of a run's worst mistakes, as overlays on one page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from spml.data.images.loader import Item
from spml.data.readers.builder import OnError, report
from spml.errors import DataError, UserError
from spml.files import replacing_folder
from spml.model import Classifier, ModelInfo, load_model
from spml.runs.run import Run
from spml.use.evaluate import Split, compare_items, run_data, run_split
from spml.use.explain.class_maps import ScoredPicture, class_maps, meaning, plain, writable
from spml.use.pages import PAGE, refuse_others, render
from spml.use.predict.inputs import Inputs, Note
from spml.use.predict.predict import class_column
from spml.use.stored_model import own_device, score_readable

__all__ = ["class_maps", "explain", "explain_worst"]

Advance = Callable[[int], None]


def explain(
    run: Path,
    inputs: Sequence[str | Path],
    out: Path,
    *,
    classes: Sequence[str] = (),
    top: int = 3,
    overwrite: bool = False,
    on_error: OnError | None = None,
    note: Note | None = None,
    advance: Advance | None = None,
) -> int:
    """Write overlays of class maps and an index.html, and return the number of pictures.

    Args:
        run: a run folder or its `best`.
        inputs: pictures, folders, tables or arrays.
        out: a new folder.
        classes: classes to show; default: the `top` most probable of each picture.
        top: number of classes if none are named.
        overwrite: replace a folder that this command wrote.
        on_error: called for each picture that cannot be read; without it the first error is raised.
        note: called with a message on each input that is skipped without an error.
        advance: called with the number of pictures done.
    """
    if top < 1:
        raise UserError(f"--top must be above 0, not {top}")
    model, info = _pictures_model(run)
    columns = [class_column(name, info, "--classes") for name in classes]
    items = Inputs(inputs, info, on_error=on_error, note=note)
    with gallery(out, "Class maps", run, _hint(model), overwrite=overwrite) as page:
        for item in items:
            try:
                picture = item.picture()
            except DataError as error:
                report(error, on_error)
                continue
            scored = ScoredPicture(model, info, picture)
            page.add(item.name, scored, columns or scored.order[:top])
            if advance is not None:
                advance(len(page.entries))
        if not page.entries:
            raise UserError("none of the pictures could be read; nothing was written")
    return len(page.entries)


def explain_worst(
    run: Path,
    out: Path,
    *,
    count: int,
    split: str = "test",
    root: Path | None = None,
    overwrite: bool = False,
    accept_changed_data: bool = False,
    on_error: OnError | None = None,
    note: Note | None = None,
    advance: Advance | None = None,
) -> int:
    """Write overlays of the worst mistakes on a split of the run's data, and return their number.

    `note` is called with a message if the labels have changed; they are used all the same. Changed
    pictures are a UserError unless that is accepted.
    """
    if count < 1:
        raise UserError(f"--worst must be above 0, not {count}")
    refuse_other(out, overwrite)  # before the slow part
    model, info = _pictures_model(run)
    stored = Run(run)
    config = stored.config
    experiment = run_data(config, info.classes, root, note)
    part = run_split(experiment, split, str(config.get("selection")))
    compare_items(stored, experiment, split, part.table, accept_changed_data, note)
    count_done = None if advance is None else lambda done, total: advance(done)
    logits, read = score_readable(part.table, model, info, 64, on_error, count_done)
    mistakes = worst_mistakes(part, logits, read, info, count)
    if not mistakes:
        raise UserError(f"no mistakes on {split} at the model's thresholds; nothing was written")
    hint = (
        f"The worst mistakes on {split}: tags the labels say are wrong, "
        f"and labels that were missed. {_hint(model)}"
    )
    with gallery(out, "Worst mistakes", run, hint, overwrite=overwrite) as page:
        for item, column, text in mistakes:
            scored = ScoredPicture(model, info, item.picture())
            instead = [best for best in scored.order[:1] if best != column]
            page.add(item.name, scored, [column, *instead], text)
    return len(page.entries)


def _pictures_model(run: Path) -> tuple[Classifier, ModelInfo]:
    model, info = load_model(run)
    if info.preprocessing["kind"] != "pictures":
        raise UserError(
            f"{run}: a model of feature vectors, which have no positions; explain needs pictures"
        )
    return model.to(own_device()), info


def _hint(model: Classifier) -> str:
    colours = (
        "The lighter a place, the more it supports the class, "
        "on one scale for all classes of a picture"
    )
    return f"{colours}. Maps are {meaning(model)}."


def worst_mistakes(
    part: Split,
    logits: npt.NDArray[np.float32],
    read: npt.NDArray[np.bool_],
    info: ModelInfo,
    count: int,
) -> list[tuple[Item, int, str]]:
    """Items, classes and lines of text of the worst mistakes: missed and wrong tags by turns.

    The worst missed positives have the lowest probability, the worst wrong tags the highest. An
    unknown label is never a mistake, so observed positives alone give only missed ones. Only the
    items that were read are judged.
    """
    known = np.where(read[:, None], part.labels, np.int8(0))
    calibrated = info.calibrate()(torch.from_numpy(logits))
    probabilities = calibrated.sigmoid().numpy()
    tagged = info.tag_rule.tagged(logits)
    mistakes = []
    for row, column in rank_mistakes(calibrated.numpy(), tagged, known, count):
        kind = "missed" if part.labels[row, column] == 1 else "wrong"
        present, _ = part.table.known(row)
        labels = ", ".join(present) or "none"
        about = f"{info.classes[column]}, {probabilities[row, column]:.3f} (labels: {labels})"
        mistakes.append((Item.of(part.table, row), column, f"{kind}: {about}"))
    return mistakes


def rank_mistakes(
    logits: npt.NDArray[np.float32],
    tagged: npt.NDArray[np.bool_],
    labels: npt.NDArray[np.int8],
    count: int,
) -> list[tuple[int, int]]:
    """Row and class of up to `count` mistakes, half wrong tags and half missed if possible."""
    wrong = _largest(logits, tagged & (labels == -1), count)
    missed = _largest(-logits, ~tagged & (labels == 1), count)
    wrong = wrong[: max(count // 2, count - len(missed))]
    missed = missed[: count - len(wrong)]
    turns = chain.from_iterable(zip_longest(missed, wrong))
    return [place for place in turns if place is not None]


def _largest(
    values: npt.NDArray[np.float32], where: npt.NDArray[np.bool_], count: int
) -> list[tuple[int, int]]:
    rows, columns = np.nonzero(where)
    order = np.argsort(-values[rows, columns], kind="stable")[:count]
    return list(zip(rows[order].tolist(), columns[order].tolist(), strict=True))


class Gallery:
    """A folder of pictures, and the entries of its page."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.entries: list[dict[str, Any]] = []

    def add(
        self, item: str, scored: ScoredPicture, columns: Sequence[int], wrong: str = ""
    ) -> None:
        """Draw the maps of these classes of one picture."""
        start = f"{len(self.entries) + 1:04d}-{_plain(Path(item).stem)}"
        info, maps = scored.info, []
        for column in columns:
            name = info.classes[column]
            image, caption = scored.overlay(column, scored.maps)
            file = self._save(image, f"{start}-{_plain(name)}")
            # the page writes a name that the picture's font lacks
            below = "" if writable(name) else name
            maps.append({"file": file, "caption": caption, "below": below})
        present = [i for i in scored.order if scored.tagged[i]]
        listed = ", ".join(f"{info.classes[i]} {scored.probabilities[i]:.2f}" for i in present)
        tags = f"tags: {listed}" if listed else "no class reaches its threshold"
        picture = self._save(plain(scored.picture), start)
        entry = {"name": item, "picture": picture, "maps": maps, "tags": tags, "wrong": wrong}
        self.entries.append(entry)

    def _save(self, image: Image.Image, start: str) -> str:
        """Write a PNG and return its file name; a name in use gets a number."""
        name, number = f"{start}.png", 1
        while (self.folder / name).exists():
            number += 1
            name = f"{start}-{number}.png"
        image.save(self.folder / name)
        return name


@contextmanager
def gallery(out: Path, kind: str, run: Path, hint: str, *, overwrite: bool) -> Iterator[Gallery]:
    """A folder to draw into, which becomes `out` with its page, or is removed if the block raises.

    `out` is missing, empty, or with `overwrite` an earlier gallery.
    """
    refuse_other(out, overwrite)
    title = f"{kind}, {Path(run).resolve().name}"
    with replacing_folder(out) as beside:
        page = Gallery(beside)
        yield page
        (beside / PAGE).write_text(
            render("explain.html", title=title, hint=hint, entries=page.entries),
            encoding="utf-8",
            errors="replace",
        )


def refuse_other(out: Path, overwrite: bool) -> None:
    """Raise UserError if writing would destroy something."""
    refuse_others(out, overwrite, "explain", lambda name: name.endswith(".png"))


def _plain(text: str) -> str:
    """Text reduced to characters that every file system takes."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", text).strip("_")[:40] or "x"
