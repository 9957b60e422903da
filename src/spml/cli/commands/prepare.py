"""`spml prepare`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import tyro

from spml.data.benchmarks import (
    BENCHMARKS,
    NAMES,
    differences,
    mean_positives,
    missing_pictures,
    observed_sha256,
)
from spml.errors import DataError

if TYPE_CHECKING:
    from rich.console import Console

    from spml.data import Experiment

    Name = str
else:
    Name = Literal[NAMES]


@dataclass(frozen=True)
class Prepare:
    """Check a benchmark's files, after downloading them if asked.

    Example: spml prepare voc --root data/voc --download
    """

    order: ClassVar[int] = 20

    data: Annotated[Name, tyro.conf.Positional]
    """The benchmark."""
    root: Path
    """Folder of its files; nothing is written to it without --download."""
    download: bool = False
    """Download missing files and unpack them; an interrupted download is resumed."""

    def run(self) -> None:
        """Download if asked, read, compare, and print the next step."""
        from rich.console import Console

        console = Console(highlight=False, soft_wrap=True, markup=False)
        archives = BENCHMARKS[self.data].archives
        try:
            experiment = self._complete() if self.download and archives else self._read()
            if experiment is None:
                self._download(console)
                experiment = self._read()
        except DataError as error:
            if archives and self.download:
                raise
            if archives:
                command = f"spml prepare {self.data} --root {self.root} --download"
                raise DataError(f"{error}; or get the files with: {command}") from None
            console.print(BENCHMARKS[self.data].steps.format(root=self.root))
            raise DataError(f"{error}; the steps are above") from None
        self._report(console, experiment)

    def _read(self) -> Experiment:
        from spml.data import load

        if not self.root.is_dir():
            raise DataError(f"{self.root}: no such folder; check --root")
        return load(self.data, self.root)

    def _complete(self) -> Experiment | None:
        """Return the data if they are already there with every picture."""
        try:
            experiment = self._read()
        except DataError:
            return None
        tables = [experiment.observed, *([] if experiment.test is None else [experiment.test])]
        return None if missing_pictures(tables) else experiment

    def _download(self, console: Console) -> None:
        """Download and unpack each archive that has not been unpacked before."""
        from rich.progress import DownloadColumn, TimeRemainingColumn, TransferSpeedColumn

        from spml.cli.output.progress import step_bar
        from spml.data.download import download, left, marker, require_space, unpack

        marks = {marker(each.name, self.root): each for each in BENCHMARKS[self.data].archives}
        archives = [each for mark, each in marks.items() if not mark.exists()]
        if not archives:
            raise DataError(
                f"{self.root}: unpacked before, but files are missing now; "
                f"remove {', '.join(map(str, marks))} and run again"
            )
        require_space(self.root, sum(left(each, self.root) + each.unpacked for each in archives))
        try:
            with step_bar(
                DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()
            ) as advance:
                for each in archives:
                    path = download(each, self.root, advance=advance)
                    unpack(path, self.root, each.unpacked, advance=advance)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("run it again to resume") from None
        for each in archives:
            size = f"{each.size / 1e9:.1f} GB"
            console.print(f"{self.root / each.name} is unpacked ({size}); you can delete it")

    def _report(self, console: Console, experiment: Experiment) -> None:
        """Print counts and hashes; raise DataError if pictures are missing."""
        assert experiment.test is not None
        train, val = len(experiment.train_rows), len(experiment.val_rows)
        test = len(experiment.test)
        version = f" ({experiment.version})" if experiment.version else ""
        classes = f"{len(experiment.classes)} classes"
        console.print(f"{self.data}{version}: {classes}, {train:,} / {val:,} / {test:,} images")
        console.print(f"{mean_positives(experiment):.2f} positives per training image")
        benchmark = BENCHMARKS[self.data]
        warnings = differences(benchmark, experiment)
        warnings += self._print_hashes(console, experiment)
        for text in warnings:
            console.print(f"warning: {text}")
        if not warnings and (paper := benchmark.paper) is not None:
            sizes = f"{paper.train:,} / {paper.val:,} / {paper.test:,}"
            console.print(f"as in the paper: {sizes}, {paper.positives}")
        listed = len(experiment.observed) + test
        if missing := missing_pictures([experiment.observed, experiment.test]):
            number = f"{len(missing):,} of {listed:,} pictures are missing"
            raise DataError(f"{number}, first {missing[0]}; unpack them")
        console.print(f"all {listed:,} pictures are there")
        console.print(f"next: spml train {self.data} --root {self.root}")

    def _print_hashes(self, console: Console, experiment: Experiment) -> list[str]:
        """Print the hash of the single positives of each list; return warnings."""
        expected = BENCHMARKS[self.data].observed_sha256
        hashes = observed_sha256(experiment)
        for split, value in hashes.items():
            same = ", as the reference protocol's" if expected.get(split) == value else ""
            console.print(f"observed single positives of the {split} list: sha256 {value}{same}")
        if not expected or hashes == expected:
            return []
        return ["the observed labels are not those of the reference protocol: other label files"]
