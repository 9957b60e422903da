"""Class maps of pictures, and of a run's worst mistakes, as overlays on one page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from spml.data.images.decode import decode
from spml.data.images.loader import Item
from spml.data.readers.builder import OnError, report
from spml.errors import DataError, UserError
from spml.model import Classifier, ModelInfo, load_model
from spml.runs.run import Run
from spml.use.evaluate import run_data, run_split
from spml.use.explain.class_maps import class_maps, meaning
from spml.use.explain.gallery import Entry, Gallery, Shown, gallery, refuse_other
from spml.use.explain.mistakes import Mistake, worst_mistakes
from spml.use.explain.overlay import plain, writable
from spml.use.explain.scored import ScoredPicture
from spml.use.predict.inputs import Inputs, Note
from spml.use.predict.tagging import class_column
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
    with gallery(out, f"Class maps, {_name(run)}", _hint(model), overwrite=overwrite) as page:
        for done, (item, picture) in enumerate(_pictures(items, info, on_error), 1):
            scored = ScoredPicture(model, info, picture)
            _add(page, item.name, scored, columns or scored.order[:top])
            if advance is not None:
                advance(done)
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
    batch_size: int = 64,
    on_error: OnError | None = None,
    note: Note | None = None,
    advance: Advance | None = None,
) -> int:
    """Write overlays of the worst mistakes on a split of the run's data, and return their number.

    Args:
        run: a run folder.
        out: a new folder.
        count: number of mistakes; half wrong tags and half missed labels if there are enough of
            both.
        split: val or test.
        root: folder of the data's files; default: the folder used in training.
        overwrite: replace a folder that this command wrote.
        batch_size: items per batch.
        on_error: called for each picture that cannot be read; without it the first error is raised.
        note: called with a message if the run's data have changed; they are used all the same.
        advance: called with the number of items scored so far.
    """
    if count < 1:
        raise UserError(f"--worst must be above 0, not {count}")
    refuse_other(out, overwrite)  # before the slow part
    model, info = _pictures_model(run)
    config = Run(run).config
    experiment = run_data(config, info.classes, root, note)
    part = run_split(experiment, split, str(config.get("selection")))
    count_done = None if advance is None else lambda done, total: advance(done)
    logits, read = score_readable(part.table, model, info, batch_size, on_error, count_done)
    mistakes = worst_mistakes(part, logits, read, info, count)
    if not mistakes:
        raise UserError(f"no mistakes on {split} at the model's thresholds; nothing was written")
    hint = (
        f"The worst mistakes on {split}: tags the labels say are wrong, "
        f"and labels that were missed. {_hint(model)}"
    )
    with gallery(out, f"Worst mistakes, {_name(run)}", hint, overwrite=overwrite) as page:
        for mistake in mistakes:
            for item, picture in _pictures([mistake.item], info, on_error):
                scored = ScoredPicture(model, info, picture)
                instead = [column for column in scored.order[:1] if column != mistake.column]
                _add(page, item.name, scored, [mistake.column, *instead], mistake)
    return len(page.entries)


def _add(
    page: Gallery,
    item: str,
    scored: ScoredPicture,
    columns: Sequence[int],
    mistake: Mistake | None = None,
) -> None:
    """Draw the maps of these classes of one picture."""
    info, maps = scored.info, []
    drawing = page.begin(item)
    for column in columns:
        name = info.classes[column]
        image, caption = scored.overlay(column, scored.maps)
        below = "" if writable(name) else name
        maps.append(Shown(drawing.save(image, name), caption, below))
    present = [i for i in scored.order if scored.tagged[i]]
    listed = ", ".join(f"{info.classes[i]} {scored.probabilities[i]:.2f}" for i in present)
    tags = f"tags: {listed}" if listed else "no class reaches its threshold"
    wrong = "" if mistake is None else mistake.text(info)
    page.entries.append(Entry(item, drawing.save(plain(scored.picture)), maps, tags, wrong))


def _pictures_model(run: Path) -> tuple[Classifier, ModelInfo]:
    model, info = load_model(run)
    if info.preprocessing["kind"] != "pictures":
        raise UserError(
            f"{run}: a model of feature vectors, which have no places to show; "
            "explain needs pictures"
        )
    return model.to(own_device()), info


def _pictures(
    items: Iterable[Item], info: ModelInfo, on_error: OnError | None
) -> Iterator[tuple[Item, torch.Tensor]]:
    for item in items:
        try:
            if item.path is not None:
                picture = decode(item.path)
            else:
                picture = torch.from_numpy(np.ascontiguousarray(item.x))
        except DataError as error:
            report(DataError(f"{item.where}{error}"), on_error)
            continue
        yield item, picture


def _hint(model: Classifier) -> str:
    colours = (
        "The lighter a place, the more it supports the class, "
        "on one scale for all classes of a picture"
    )
    return f"{colours}. Maps are {meaning(model)}."


def _name(run: Path) -> str:
    return Path(run).resolve().name
