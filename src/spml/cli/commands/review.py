"""`spml review`."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from spml.cli import LeftOut, RunOptions, log


@dataclass(frozen=True, kw_only=True)
class Review(RunOptions):
    """List labels likely missing from a run's data, and merge answers.

    Example: spml review runs/photos, then
    spml review runs/photos --answers answers.csv --out labels.csv
    """

    order: ClassVar[int] = 110

    out: Path | None = None
    """Folder for suggestions.csv and index.html. Default: RUN/review. With --answers: the new file
    of labels."""
    answers: Path | None = None
    """Answers saved by the page. They and the run's labels become a new file for `spml train`."""
    count: int = 500
    """Number of labels to suggest."""
    classes: str | None = None
    """Classes to suggest. A file with one name a line, or names joined by commas. Default: all."""
    per_class: int | None = None
    """Largest number of suggestions for each class."""
    min_precision: float | None = None
    """Least calibrated probability. Default: 0.5; none without calibration."""
    split: Literal["train", "val", "all"] = "train"
    """Rows to search: training rows, validation rows, or both."""
    unescaped: bool = False
    """Put no apostrophe before CSV cells. By default before those that begin with = + - @, so that
    spreadsheets do not compute them."""
    overwrite: bool = False
    """Replace a folder of suggestions; a file of labels is never replaced."""

    def run(self) -> None:
        """Suggest labels, or merge the answers."""
        if self.answers is not None:
            self._merge(self.answers)
            return
        from spml.cli.output.progress import step_bar
        from spml.use.pages import PAGE
        from spml.use.predict.predict import named_classes
        from spml.use.review.review import review

        out = self.out or self.run_folder / "review"
        left_out = LeftOut()
        with step_bar() as advance:
            written = review(
                self.run_folder,
                out,
                count=self.count,
                classes=named_classes(self.classes, self.run_folder),
                per_class=self.per_class,
                min_precision=self.min_precision,
                split=self.split,
                root=self.root,
                overwrite=self.overwrite,
                unescaped=self.unescaped,
                batch_size=self.batch_size,
                accept_changed_data=self.accept_changed_data,
                on_error=left_out,
                note=log,
                advance=advance,
            )
        print(f"{written:,} labels to look at: open {out / PAGE}")
        words = ["spml", "review", str(self.run_folder), "--answers", "answers.csv"]
        print(f"then: {shlex.join(words)}")
        left_out.check("pictures ")

    def _merge(self, answers: Path) -> None:
        from spml.use.review.answers import merge

        done = merge(self.run_folder, answers, self.out, root=self.root, note=log)
        known = f", {done.known:,} were known" if done.known else ""
        added = f"{done.positives:,} labels and {done.negatives:,} known negatives added"
        print(f"{added}{known}: {done.path}")
        print(f"train with: {shlex.join(['spml', 'train', *done.words])}")
