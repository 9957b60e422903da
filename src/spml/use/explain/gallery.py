"""A folder of pictures with a page that shows them, written as a whole or not at all."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from spml.files import replacing_folder
from spml.use.pages import PAGE, refuse_others, render


class Shown(NamedTuple):
    """An overlay: file, caption, and the class's name if the picture's font cannot write it."""

    file: str
    caption: str
    below: str = ""


class Entry(NamedTuple):
    """A picture on the page: name, file, overlays, predicted tags and the mistake."""

    name: str
    picture: str
    maps: Sequence[Shown]
    tags: str
    wrong: str = ""


@dataclass
class Drawing:
    """The files of one picture."""

    folder: Path
    start: str

    def save(self, image: Image.Image, what: str = "") -> str:
        """Write a PNG and return its file name; a name in use gets a number."""
        start = f"{self.start}{'-' + _plain(what) if what else ''}"
        name, number = f"{start}.png", 1
        while (self.folder / name).exists():
            number += 1
            name = f"{start}-{number}.png"
        image.save(self.folder / name)
        return name


@dataclass
class Gallery:
    """The folder of pictures, and the entries of its page."""

    folder: Path
    entries: list[Entry] = field(default_factory=list)

    def begin(self, name: str) -> Drawing:
        """Files of the next picture, whose names start with its number."""
        return Drawing(self.folder, f"{len(self.entries) + 1:04d}-{_plain(Path(name).stem)}")


@contextmanager
def gallery(out: Path, title: str, hint: str, *, overwrite: bool) -> Iterator[Gallery]:
    """A folder to draw into, which becomes `out` with its page, or is removed if the block raises.

    `out` is missing, empty, or with `overwrite` an earlier gallery.
    """
    refuse_other(out, overwrite)
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
