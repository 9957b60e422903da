"""Class maps of pictures, and of a run's worst mistakes, as overlays on one page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from spml.data.images.decode import decode, resize
from spml.data.readers.builder import OnError, tell
from spml.errors import DataError, UserError
from spml.model import Classifier, ModelInfo, load_model
from spml.use.explain.class_maps import class_maps, from_threshold, full_colour, meaning
from spml.use.explain.gallery import Entry, Sheet, Shown, refuse_other, sheet
from spml.use.explain.mistakes import Mistake, worst_mistakes
from spml.use.explain.overlay import overlay, plain, rounded, shown, writable
from spml.use.predict.inputs import Inputs, Item, Note
from spml.use.predict.tagging import class_column
from spml.use.stored_model import NOT_NUMBERS, own_device

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
    """Write overlays of class maps and an index.html; gives how many pictures were written.

    Args:
        run: a run folder or its `best`.
        inputs: pictures, folders, tables or arrays.
        out: a folder that is not there yet.
        classes: whose maps to show; the `top` most probable of each picture when empty.
        top: how many classes, where none are named.
        overwrite: replace a folder that this command has written.
        on_error: told of each picture that cannot be read; without it the first one ends the work.
        note: told of what is passed over without being an error.
        advance: told how many pictures are done.
    """
    if top < 1:
        raise UserError(f"--top must be above 0, not {top}")
    model, info = _pictures_model(run)
    columns = [class_column(name, info, "--classes") for name in classes]
    items = Inputs(inputs, info, on_error=on_error, note=note)
    with sheet(out, f"Class maps, {_name(run)}", _hint(model), overwrite=overwrite) as page:
        for done, (item, picture) in enumerate(_pictures(items, info, on_error), 1):
            _Explained(model, info, picture).add(page, item.name, columns, top)
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
    """Overlays of the worst mistakes on a split of the run's own data; gives how many were written.

    Args:
        run: a run folder.
        out: a folder that is not there yet.
        count: of mistakes; half of them wrong tags, half missed ones, as far as there are so many.
        split: val or test.
        root: folder of the data's files; where they were at training when None.
        overwrite: replace a folder that this command has written.
        batch_size: items at a time.
        on_error: told of each picture that cannot be read; without it the first one ends the work.
        note: told where the data are no longer those of the run, which are looked at all the same.
        advance: told how many items were scored.
    """
    if count < 1:
        raise UserError(f"--worst must be above 0, not {count}")
    refuse_other(out, overwrite)  # before the work, not after it
    model, info = _pictures_model(run)
    found = worst_mistakes(
        run, model, info, count, split, root, batch_size, on_error, note, advance
    )
    if not found:
        raise UserError(f"no mistakes on {split} at the model's thresholds; nothing was written")
    hint = f"The worst mistakes on {split}: tags the labels say are wrong, and labels that were missed. {_hint(model)}"
    with sheet(out, f"Worst mistakes, {_name(run)}", hint, overwrite=overwrite) as page:
        for mistake in found:
            for item, picture in _pictures([mistake.item], info, on_error):
                explained = _Explained(model, info, picture)
                instead = [column for column in explained.order[:1] if column != mistake.column]
                explained.add(page, item.name, [mistake.column, *instead], 1, mistake)
    return len(page.entries)


@dataclass(frozen=True)
class _Picture:
    """A picture as it is, and as the model takes it."""

    shown: torch.Tensor
    x: torch.Tensor


class _Explained:
    """What a model says of one picture, and where."""

    def __init__(self, model: Classifier, info: ModelInfo, picture: _Picture) -> None:
        self.model, self.info, self.picture = model, info, picture.shown
        device = next(model.parameters()).device
        with torch.inference_mode():
            logits, maps = class_maps(model, picture.x[None].to(device))
            logits = logits.float().cpu()
            calibrated = info.calibrate()(logits)[0]
        if not torch.isfinite(calibrated).all():
            raise UserError(NOT_NUMBERS)
        self.maps = from_threshold(model, info, maps[0].float().cpu())
        self.probabilities = calibrated.sigmoid().tolist()
        self.tagged = info.tag_rule.tagged(logits)[0]
        self.order = calibrated.argsort(descending=True, stable=True).tolist()

    def add(
        self,
        page: Sheet,
        item: str,
        columns: Sequence[int],
        top: int,
        mistake: Mistake | None = None,
    ) -> None:
        """Draw the maps of these classes, or of the most probable ones."""
        info, maps, full = self.info, [], full_colour(self.model, self.maps)
        drawing = page.begin(item)
        for column in columns or self.order[:top]:
            values = self.maps[column]
            name, said = info.classes[column], f"{self.probabilities[column]:.2f}"
            note = f"threshold {info.thresholds[column]:.2f}, map {rounded(values.min())} to {rounded(values.max())}"
            image = overlay(self.picture, values, full, name, said, note)
            maps.append(
                Shown(
                    drawing.save(image, name),
                    f"{name} {said}, {note}",
                    "" if writable(name) else name,
                )
            )
        present = [i for i in self.order if self.tagged[i]]
        said = ", ".join(f"{info.classes[i]} {self.probabilities[i]:.2f}" for i in present)
        tags = f"tags: {said}" if said else "no class reaches its threshold"
        wrong = "" if mistake is None else mistake.text(info)
        page.entries.append(Entry(item, drawing.save(plain(self.picture)), maps, tags, wrong))


def _pictures_model(run: Path) -> tuple[Classifier, ModelInfo]:
    model, info = load_model(run)
    if info.preprocessing["kind"] != "pictures":
        raise UserError(
            f"{run}: a model of feature vectors, which have no places to show; explain needs pictures"
        )
    return model.to(own_device()), info


def _pictures(
    items: Iterable[Item], info: ModelInfo, on_error: OnError | None
) -> Iterator[tuple[Item, _Picture]]:
    size, upright = int(info.preprocessing["size"]), bool(info.preprocessing["upright"])
    for item in items:
        try:
            if item.path is not None:
                picture = decode(item.path, upright=upright)
            else:
                picture = torch.from_numpy(np.ascontiguousarray(item.x))
        except DataError as error:
            tell(DataError(f"{item.where}{error}"), on_error)
            continue
        yield item, _Picture(shown(picture), resize(picture, size))


def _hint(model: Classifier) -> str:
    colours = "The lighter a place, the more it speaks for the class, on one scale for all classes of a picture"
    return f"{colours}. Maps are {meaning(model)}."


def _name(run: Path) -> str:
    return Path(run).resolve().name
