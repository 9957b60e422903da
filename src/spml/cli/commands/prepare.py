"""`spml prepare`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import tyro

if TYPE_CHECKING:
    from rich.console import Console

    from spml.data import Experiment
    from spml.data.download.request import Advance


@dataclass(frozen=True)
class Prepare:
    """Check a benchmark's files against the paper's table, or download them first.

    Example: spml prepare voc --root data/voc --download
    """

    order: ClassVar[int] = 20

    data: Annotated[Literal["voc", "coco", "nuswide", "cub"], tyro.conf.Positional]
    """The benchmark."""
    root: Path
    """Folder of its files; nothing is written to it without --download."""
    download: bool = False
    """Get what is not there from the official addresses, and unpack it. A broken download goes on where it stopped."""

    def run(self) -> None:
        """Download where asked, read, compare, and say what to do next."""
        from rich.console import Console

        from spml.data.benchmarks import ARCHIVES, NUSWIDE_STEPS
        from spml.errors import DataError

        console = Console(highlight=False, soft_wrap=True, markup=False)
        try:
            experiment = self._whole() if self.download and self.data in ARCHIVES else self._read()
            if experiment is None:
                self._fetch(console)
                experiment = self._read()
        except DataError as error:
            if self.data in ARCHIVES:
                remedy = (
                    f"get the files with: spml prepare {self.data} --root {self.root} --download"
                )
                raise error if self.download else DataError(f"{error}; or {remedy}") from None
            console.print(NUSWIDE_STEPS.format(root=self.root))
            raise DataError(f"{error}; the steps are above") from None
        self._report(console, experiment)

    def _read(self) -> Experiment:
        from spml.data import load
        from spml.errors import DataError

        if not self.root.is_dir():
            raise DataError(f"{self.root}: no such folder; check --root")
        return load(self.data, self.root)

    def _whole(self) -> Experiment | None:
        """The data where they are there already, with every picture."""
        from spml.data.benchmarks import missing_pictures
        from spml.errors import DataError

        try:
            experiment = self._read()
        except DataError:
            return None
        tables = [experiment.observed, *([] if experiment.test is None else [experiment.test])]
        return None if missing_pictures(tables) else experiment

    def _fetch(self, console: Console) -> None:
        """Download and unpack each archive that has not been unpacked before."""
        from spml.data.benchmarks import ARCHIVES
        from spml.data.download.archive import marker, unpack
        from spml.data.download.resumable import download, left, require_space
        from spml.errors import DataError

        archives = [
            each for each in ARCHIVES[self.data] if not marker(each.name, self.root).exists()
        ]
        if not archives:
            marks = ", ".join(str(marker(each.name, self.root)) for each in ARCHIVES[self.data])
            raise DataError(
                f"{self.root}: unpacked before, but files have gone since; remove {marks} and run again"
            )
        require_space(self.root, sum(left(each, self.root) + each.unpacked for each in archives))
        try:
            with _bar() as advance:
                for each in archives:
                    path = download(each, self.root, advance=advance)
                    unpack(path, self.root, each.limits, advance=advance)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("run it again to go on") from None
        for each in archives:
            console.print(
                f"{self.root / each.name} is unpacked ({each.size / 1e9:.1f} GB); it is not needed any more"
            )

    def _report(self, console: Console, experiment: Experiment) -> None:
        """Counts, pictures and hashes; DataError where pictures are missing."""
        from spml.data.benchmarks import (
            PAPER,
            VOC_SHA256,
            differences,
            missing_pictures,
            observed_sha256,
        )
        from spml.errors import DataError

        assert experiment.complete is not None and experiment.test is not None
        train, val, test = (
            len(experiment.train_rows),
            len(experiment.val_rows),
            len(experiment.test),
        )
        mean = experiment.complete.sparse.take(experiment.train_rows).counts(1).sum() / train
        known = f" ({experiment.version})" if experiment.version else ""
        console.print(
            f"{self.data}{known}: {len(experiment.classes)} classes, {train:,} / {val:,} / {test:,} images"
        )
        console.print(f"{mean:.2f} positives per training image")
        warnings = differences(self.data, experiment)
        hashes = observed_sha256(experiment)
        for split, value in hashes.items():
            same = (
                ", as the reference protocol's"
                if VOC_SHA256.get(split) == value and self.data == "voc"
                else ""
            )
            console.print(f"observed single positives of the {split} list: sha256 {value}{same}")
        if self.data == "voc" and hashes != VOC_SHA256:
            warnings.append(
                "the observed labels are not those of the reference protocol: other label files"
            )
        for text in warnings:
            console.print(f"warning: {text}")
        if not warnings:
            paper = PAPER[self.data]
            console.print(
                f"as in the paper: {paper.train:,} / {paper.val:,} / {paper.test:,}, {paper.positives}"
            )
        if missing := missing_pictures([experiment.observed, experiment.test]):
            listed = len(experiment.observed) + test
            raise DataError(
                f"{len(missing):,} of {listed:,} pictures are missing, first {missing[0]}; unpack them"
            )
        console.print(f"all {len(experiment.observed) + test:,} pictures are there")
        console.print(f"next: spml train {self.data} --root {self.root}")


@contextmanager
def _bar() -> Iterator[Advance]:
    """A progress bar on a terminal, one line for each thing that is done."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()
    tasks: dict[str, int] = {}
    with Progress(
        *columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal
    ) as progress:

        def advance(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what)
            progress.update(tasks[what], completed=done, total=total)  # type: ignore[arg-type]

        yield advance
