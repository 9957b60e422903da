"""`spml check`."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import tyro

if TYPE_CHECKING:
    from rich.console import Console

    from spml.data import LabelTable
    from spml.data.check.problems import Findings


@dataclass(frozen=True)
class Check:
    """Read data as training would and report every problem: files, pictures, copies, leaks, labels.

    Example: spml check photos.csv --root pictures --fix photos-clean.csv
    """

    order: ClassVar[int] = 30

    data: Annotated[str, tyro.conf.Positional]
    """A data set's name, or a path: a table, a folder or arrays."""
    root: Path | None = None
    """Folder of the data set's files, or of the images that a table names. Default: that of the table."""
    labels: Literal["observed", "complete"] | None = None
    """What an absent label means: unknown, or negative. Default: complete for benchmarks and digits, else observed."""
    classes: str | None = None
    """File with one class name a line, or names joined by commas: fixes the classes and their order."""
    val: Path | None = None
    """File of the validation rows, in the same classes."""
    test: Path | None = None
    """File of the test rows, in the same classes."""
    size: int | None = None
    """Resize the decoded pictures to N x N, as training would."""
    min_positives: int = 5
    """A class with fewer positives in train is warned of."""
    pictures: bool = True
    """Decode every picture; without, files are only looked for and compared."""
    fix: Path | None = None
    """New CSV file to write without the broken rows; the original is never touched."""
    merge: bool = False
    """With --fix: make one row of the copies of a picture, with the labels of all."""

    def run(self) -> None:
        """Print the problems and a summary; raise DataError where there are errors that --fix has not mended."""
        from rich.console import Console

        from spml.cli.output.check import bar, print_problems, print_summary, print_warnings
        from spml.data import read
        from spml.data.check.check import check, unread_problems
        from spml.data.check.problems import KINDS, Findings, count_kinds, counted
        from spml.data.readers.read import default_labels
        from spml.errors import DataError

        self._refuse_early()
        kind = self.labels or default_labels(self.data)
        console = Console(highlight=False)
        unread: list[DataError] = []
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                tables = read(
                    *(self.data, self.root),
                    labels=kind,
                    classes=self.classes,
                    val=self.val,
                    test=self.test,
                    on_error=unread.append,
                )
            except DataError:
                print_problems(console, Findings(unread_problems(unread)))
                raise
        arrays = any(table.x is not None for table in tables.values())
        if self.fix is not None and arrays:
            raise DataError(
                f"{self.data}: --fix does not apply to arrays, it writes tables of files; leave it out"
            )
        with bar() as advance:
            found = check(
                tables,
                unread=unread,
                labels=kind,
                pictures=self.pictures,
                size=self.size,
                min_positives=self.min_positives,
                advance=advance,
            )
        print_warnings(console, [str(one.message) for one in said])
        print_problems(console, found)
        print_summary(console, tables, complete=kind == "complete")
        kinds = count_kinds(found.errors)
        if self.fix is not None:
            self._fix(console, self.fix, tables, found)
        elif found.errors:
            noun = "problem" if len(found.errors) == 1 else "problems"
            lacking = set(kinds) == {"untrainable"}  # of which no table can be cleaned
            mend = "mend them" if arrays else "mend them, or write a cleaned table with --fix OUT"
            remedy = KINDS["untrainable"].remedy if lacking else mend
            raise DataError(
                f"{self.data}: {len(found.errors):,} {noun}: {counted(kinds)}; {remedy}"
            )
        else:
            warned = counted(count_kinds(found.warnings))
            console.print(f"No errors{f'; warnings: {warned}' if warned else ''}.", soft_wrap=True)

    def _refuse_early(self) -> None:
        """Raise UserError for options that cannot be carried out, before any work."""
        from spml.data.check.fix import refuse_existing
        from spml.errors import UserError

        if self.size is not None and self.size < 1:
            raise UserError(f"--size {self.size} must be at least 1")
        if self.merge and self.fix is None:
            raise UserError("--merge says what --fix writes; give --fix OUT too")
        if self.fix is not None:
            refuse_existing(self.fix)
            if self.fix.suffix.lower() != ".csv":
                raise UserError(f"--fix {self.fix}: give a name that ends in .csv")

    def _fix(
        self, console: Console, out: Path, tables: dict[str, LabelTable], found: Findings
    ) -> None:
        """Write the cleaned table and say what was done; raise DataError where errors are left in it."""
        from spml.data.check.fix import clean, write_table
        from spml.data.check.labels import joined, untrainable
        from spml.data.check.problems import counted
        from spml.data.names import class_list
        from spml.errors import DataError

        cleaned = clean(tables, found, merge=self.merge)
        given = class_list(self.classes)
        write_table(cleaned.tables, out, None if given is None else list(given.display))
        whole = joined(cleaned.tables)
        said = [f"{out}: {len(whole):,} rows written"]
        said += [f"left out: {counted(cleaned.removed)}"] if cleaned.removed else []
        said += [f"copies united with the first: {cleaned.united:,}"] if cleaned.united else []
        said += (
            [f"contradictory labels made unknown: {cleaned.unknown:,}"] if cleaned.unknown else []
        )
        gone = [
            whole.classes[i]
            for i in (whole.sparse.counts(1) + whole.sparse.counts(-1) == 0).nonzero()[0]
        ]
        if gone and given is None:
            said.append(f"classes of which no label is left: {', '.join(map(repr, gone))}")
        if whole.sparse.fill == -1:
            said.append("give --labels complete when you read it")
        for line in said:
            console.print(line, markup=False, soft_wrap=True)
        left = [
            problem.message
            for problem in untrainable(cleaned.tables, complete=whole.sparse.fill == -1)
        ]
        if cleaned.unsettled:
            left.append(
                f"{counted({'contradiction': cleaned.unsettled})} left in it; give --merge to unite them"
            )
        if left:
            raise DataError(f"{out}: {'; '.join(left)}")
