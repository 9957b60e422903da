"""A cache of decoded pictures: each is decoded once, at the training size, for all tables and runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt
import torch

from spml.data.images.build import Build, missing
from spml.data.images.cached import Mode, Pictures, Teller, in_words, path_of
from spml.data.images.store import Pool, explained
from spml.data.table import LabelTable
from spml.machine import decoders


class Cache:
    """The decoded pictures of some tables, for feeds; as a context, it is closed at its end.

    Args:
        pool: that holds them.
        mode: disk, memory or device.
        device: that trains.
        upright: whether they were turned as their EXIF orientation says.
        tell: of what is done.
        build: that still decodes some of them.
    """

    def __init__(
        self,
        pool: Pool,
        mode: Mode,
        device: torch.device,
        *,
        upright: bool,
        tell: Teller,
        build: Build | None = None,
    ) -> None:
        self.pool, self.mode, self.device, self.upright, self.tell = (
            pool,
            mode,
            device,
            upright,
            tell,
        )
        self.build = build
        self._given: dict[int, Pictures] = {}

    def pictures(self, table: LabelTable) -> Pictures:
        """Batches of a table that the cache was opened with; tables of the same files share their copies."""
        files = hash((str(table.root), *table.items))
        if files in self._given:
            return self._given[files]
        given = self._given[files] = Pictures(
            self.pool,
            table,
            self.mode,
            self.device,
            upright=self.upright,
            tell=self.tell,
            build=self.build,
            promised=sum(pictures.promised for pictures in self._given.values()),
        )
        return given

    def finish(self) -> None:
        """Wait until everything is decoded; DataError where pictures cannot be, as `open_cache` raises it."""
        if self.build is not None:
            self.build.finish()

    def close(self) -> None:
        """End decoding, after the pictures that are in work; what is decoded stays, and can be read as before."""
        if self.build is not None:
            self.build.close()

    def __enter__(self) -> Cache:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Silent:
    """Tells nobody."""

    def line(self, text: str) -> None:
        """Nothing."""

    def begin(self, what: str, total: int) -> None:
        """Nothing."""

    def advance(self, count: int) -> None:
        """Nothing."""


def open_cache(
    tables: Sequence[LabelTable],
    size: int | None,
    mode: Mode | None = None,
    *,
    folder: Path | None = None,
    device: torch.device | str = "cpu",
    upright: bool = True,
    threads: int | None = None,
    tell: Teller | None = None,
    background: bool = False,
    first: Sequence[tuple[LabelTable, npt.ArrayLike]] = (),
) -> Cache | None:
    """A cache that holds every picture of the tables; those it lacks are decoded now, or from now on.

    Args:
        tables: of picture files; for arrays there is nothing to cache.
        size: height and width of the pictures.
        mode: disk maps the file, memory copies it, device puts it where training runs; none gives None.
        folder: of the cache; $SPML_CACHE or ~/.cache/spml when None.
        device: that trains.
        upright: turn pictures as their EXIF orientation says.
        threads: that decode; as many as there are cores, up to eight, when None; one is left to a caller who goes on.
        tell: shows lines and progress.
        background: decode while the caller goes on; a batch waits for the pictures it needs, which then come next. The
            cache is to be closed.
        first: rows of the tables in the order in which they will be needed; the others follow in the tables' order.

    Raises:
        DataError: pictures cannot be decoded: the first is named, the others are counted. In the background, raised
            when all decoding is over, by a batch that needs one of them and by `Cache.finish`.
    """
    places = {
        path_of(table, row): (table, row)
        for table in tables
        if table.x is None
        for row in range(len(table))
    }
    if mode == "none" or size is None or not places:
        return None
    tell = Silent() if tell is None else tell
    pool = Pool(folder or default_folder(), size, upright=upright)
    build: Build | None = None
    with explained(pool.folder):
        pool.load()
    lacking = missing(pool, places)
    total = f"{len(places):,} pictures x {in_words(pool.slot_bytes)} = {in_words(len(places) * pool.slot_bytes)}"
    to_do = (
        f", {len(lacking):,} to decode"
        if lacking and (background or len(lacking) < len(places))
        else ""
    )
    tell.line(
        f"cache: {total} in {pool.folder}{to_do}{' meanwhile' if to_do and background else ''}"
    )
    if lacking:
        wanted = [path_of(table, row) for table, rows in first for row in np.asarray(rows).tolist()]
        order = dict.fromkeys([*wanted, *lacking])
        build = Build(
            pool,
            {path: places[path] for path in lacking},
            order,
            upright=upright,
            threads=threads or decoders(spared=int(background)),
            tell=tell,
            soon=len(wanted) if background and wanted else None,
        )
        if background:
            build.start()
        else:
            build.run()
            build.check()
            build = None
            pool.load()
    return Cache(
        pool, mode or "disk", torch.device(device), upright=upright, tell=tell, build=build
    )


def default_folder() -> Path:
    """Where decoded pictures are kept: $SPML_CACHE, or ~/.cache/spml."""
    return Path(os.environ.get("SPML_CACHE") or "~/.cache/spml").expanduser()
