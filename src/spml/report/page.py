"""The page itself: read the runs, fill the template, put the file in its place."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spml.atomic import replacing
from spml.errors import UserError

if TYPE_CHECKING:
    from spml.data import Experiment
    from spml.report.model import Model

EXAMPLES = 8  # pictures


def write_report(
    runs: Sequence[Path],
    out: Path,
    title: str | None = None,
    *,
    data: Experiment | None = None,
    root: Path | None = None,
    pictures: int = EXAMPLES,
    against: str | None = None,
    advance: Callable[[int, int], None] | None = None,
) -> Path:
    """The HTML page written for one run folder, or for a comparison of several.

    Args:
        runs: run folders.
        out: the page; what stands there is replaced, once the new page is complete.
        title: heading in place of one made from method and data set.
        data: what one run was trained on, where that is at hand; otherwise its pictures are looked for.
        root: folder of the data's files; default: where they were at training.
        pictures: of one run's items to show; 0 for none, suspected labels included.
        against: the method that others are compared with, of several runs; default: `an`, or else the first run's.
        advance: told how many of several runs were resampled, and of how many.
    """
    from spml.runs.run import Run

    folders = [Path(run) for run in runs]
    if not folders:
        raise UserError("give at least one run folder to report on")
    places = [os.path.realpath(folder) for folder in folders]  # which stands a loop of links
    twice = next(
        (folder for folder, place in zip(folders, places, strict=True) if places.count(place) > 1),
        None,
    )
    if twice is not None:
        raise UserError(f"{twice} is given twice")
    read = [Run.read(folder) for folder in folders]
    if len(read) == 1:
        from spml.report.pictures import NOT_ASKED, Pictures, find_pictures
        from spml.report.single import run_page

        def found(model: Model) -> Pictures:
            return find_pictures(read[0], model, data, root) if pictures else Pictures(NOT_ASKED)

        page = render("run.html", run_page(read[0], title, found, pictures))
    else:
        from spml.report.compare import compare_page

        page = render("compare.html", compare_page(read, title, against, advance))
    return _replace(Path(out), page)


def render(template: str, values: dict[str, Any]) -> str:
    """A template of the report, filled; what it names and is not given is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    from spml.report.text import file_name

    environment = Environment(
        loader=PackageLoader("spml.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["file_name"] = file_name
    return environment.get_template(template).render(values)


def _replace(out: Path, page: str) -> Path:
    """Put the page in its place, all or nothing."""
    if out.is_dir():
        from spml.runs.names import REPORT

        raise UserError(f"{out} is a folder; name a file such as {out / REPORT}")
    try:
        with replacing(out) as beside:
            beside.write_bytes(page.encode("utf-8", "replace"))
    except OSError as error:
        raise UserError(f"{out} cannot be written: {error.strerror}") from error
    return out
