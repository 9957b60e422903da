"""`spml check`."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import tyro

from spml.cli import TableOptions
from spml.errors import DataError, UserError
from spml.files import refuse_existing

if TYPE_CHECKING:
    from rich.console import Console

    from spml.data import LabelTable
    from spml.data.check.problems import Findings
    from spml.data.readers.builder import Kind


@dataclass(frozen=True, kw_only=True)
class Check(TableOptions):
    """Report problems in data: files, copies, leaks, labels; or in a run.

    Example: spml check photos.csv --root pictures --fix photos-clean.csv
    """

    order: ClassVar[int] = 30

    data: Annotated[str, tyro.conf.Positional]
    """Name of a data set, or a path: a table, a folder, arrays, or a run folder."""
    size: int | None = None
    """Resize the decoded pictures to N x N, as training would."""
    min_positives: int = 5
    """Warn of a class with fewer positives in train."""
    pictures: bool = True
    """Decode every picture; if off, files are only located and compared."""
    fix: Path | None = None
    """Write a new CSV file without the broken rows; the original is never changed."""
    merge: bool = False
    """With --fix, unite the copies of a picture into one row.
    The row has the labels of all copies."""

    def run(self) -> None:
        """Print the problems and a summary; raise DataError if errors remain."""
        from spml.runs.names import CONFIG

        if (Path(self.data) / CONFIG).exists():
            _verify(Path(self.data))
            return
        from rich.console import Console

        from spml.cli.output.check import print_problems, print_summary, print_warnings
        from spml.cli.output.progress import step_bar
        from spml.cli.output.resources import resource_lines, work_on
        from spml.data.check.check import check
        from spml.data.readers.read import default_labels

        self._refuse_early()
        kind = self.labels or default_labels(self.data)
        console = Console(highlight=False)
        unread: list[DataError] = []
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            tables = self._read(console, kind, unread)
        arrays = any(table.x is not None for table in tables.values())
        if work := work_on(tables, self.data, self.size):
            for text in resource_lines(work):
                console.print(text, markup=False, soft_wrap=True)
            console.print()
        if self.fix is not None and arrays:
            raise DataError(
                f"{self.data}: --fix does not apply to arrays, it writes tables of files; "
                "leave it out"
            )
        with step_bar() as advance:
            findings = check(
                tables,
                unread=unread,
                labels=kind,
                pictures=self.pictures,
                size=self.size,
                min_positives=self.min_positives,
                advance=advance,
            )
        print_warnings(console, [str(one.message) for one in caught])
        print_problems(console, findings)
        print_summary(console, tables, complete=kind == "complete")
        if self.fix is not None:
            self._fix(console, self.fix, tables, findings)
        else:
            self._conclude(console, findings, arrays=arrays)

    def _read(self, console: Console, kind: Kind, unread: list[DataError]) -> dict[str, LabelTable]:
        """Read the tables and collect invalid records; print those if reading fails."""
        from spml.cli.output.check import print_problems
        from spml.data import read
        from spml.data.check.check import unread_problems
        from spml.data.check.problems import Findings

        try:
            return read(
                *(self.data, self.root),
                labels=kind,
                classes=self.classes,
                val=self.val,
                test=self.test,
                on_error=unread.append,
                columns=self.columns(),
            )
        except DataError:
            print_problems(console, Findings(unread_problems(unread)))
            raise

    def _conclude(self, console: Console, findings: Findings, *, arrays: bool) -> None:
        """Print that there are no errors; raise DataError if there are."""
        from spml.data.check.problems import KINDS, count_kinds, counted

        if not findings.errors:
            warned = counted(count_kinds(findings.warnings))
            console.print(f"No errors{f'; warnings: {warned}' if warned else ''}.", soft_wrap=True)
            return
        kinds = count_kinds(findings.errors)
        noun = "problem" if len(findings.errors) == 1 else "problems"
        remedy = "fix them" if arrays else "fix them, or write a cleaned table with --fix OUT"
        if set(kinds) == {"untrainable"}:  # a cleaned table would not help
            remedy = KINDS["untrainable"].remedy
        raise DataError(f"{self.data}: {len(findings.errors):,} {noun}: {counted(kinds)}; {remedy}")

    def _refuse_early(self) -> None:
        """Raise UserError for options that cannot be carried out, before any work."""
        from spml.data.check.fix import NEW_FILE

        if self.size is not None and self.size < 1:
            raise UserError(f"--size {self.size} must be at least 1")
        if self.merge and self.fix is None:
            raise UserError("--merge applies to --fix only; give --fix OUT too")
        if self.fix is not None:
            refuse_existing(self.fix, NEW_FILE)
            if self.fix.suffix.lower() != ".csv":
                raise UserError(f"--fix {self.fix}: give a name that ends in .csv")

    def _fix(
        self, console: Console, out: Path, tables: dict[str, LabelTable], findings: Findings
    ) -> None:
        """Write the cleaned table and print the changes; raise DataError if errors remain in it."""
        from spml.data.check.check import joined, untrainable
        from spml.data.check.fix import clean, write_table
        from spml.data.check.problems import counted
        from spml.data.names import class_list

        cleaned = clean(tables, findings, merge=self.merge)
        listed = class_list(self.classes)
        write_table(cleaned.tables, out, None if listed is None else list(listed.display))
        whole = joined(cleaned.tables)
        changes = [f"{out}: {len(whole):,} rows written"]
        if cleaned.removed:
            changes.append(f"left out: {counted(cleaned.removed)}")
        if cleaned.united:
            changes.append(f"copies united with the first: {cleaned.united:,}")
        if cleaned.unknown:
            changes.append(f"contradictory labels made unknown: {cleaned.unknown:,}")
        known = whole.sparse.counts(1) + whole.sparse.counts(-1)
        empty = [whole.classes[i] for i in (known == 0).nonzero()[0]]
        if empty and listed is None:
            changes.append(f"classes without a label: {', '.join(map(repr, empty))}")
        if whole.sparse.fill == -1:
            changes.append("give --labels complete when you read it")
        for line in changes:
            console.print(line, markup=False, soft_wrap=True)
        remaining = [
            problem.message
            for problem in untrainable(cleaned.tables, complete=whole.sparse.fill == -1)
        ]
        if cleaned.unsettled:
            contradictions = counted({"contradiction": cleaned.unsettled})
            remaining.append(f"{contradictions} left in it; give --merge to unite them")
        if remaining:
            raise DataError(f"{out}: {'; '.join(remaining)}")


def _verify(folder: Path) -> None:
    """Print what is wrong with a run folder; end with exit code 1 if anything is."""
    from spml.runs.run import Run
    from spml.runs.verify import verify

    problems = verify(folder)
    for problem in problems:
        print(problem)
    if problems:
        print(f"{folder}: {len(problems)} problem{'s' if len(problems) > 1 else ''}")
        raise SystemExit(1)
    run = Run(folder)
    state = "finished" if run.finished else f"not finished, {max(len(run.history) - 1, 0)} epochs"
    print(f"{folder}: every file is whole; the run is {state}")
