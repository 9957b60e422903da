"""Pages of `spml explain`, `spml review` and `spml serve`, and the folders that hold them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from spml.errors import UserError
from spml.files import contents, replaces_something

PAGE = "index.html"


def render(template: str, **values: Any) -> str:
    """Fill a template of this package; raise an error if `values` lacks a name it uses."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("spml.use"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    return environment.get_template(template).render(values)


def refuse_others(out: Path, overwrite: bool, command: str, ours: Callable[[str], bool]) -> None:
    """Raise UserError if writing would destroy something other than a page of the same command.

    `ours` decides by a file's name whether the command writes it.
    """
    if not replaces_something(out, overwrite):
        return
    page = out / PAGE
    others = [out.name]
    if out.is_dir():
        others = [path.name for path in contents(out) if path.name != PAGE and not ours(path.name)]
    mark = f'content="spml {command}"'
    if others or not page.is_file() or mark not in page.read_text("utf-8", "replace"):
        what = f" ({others[0]})" if others else ""
        raise UserError(
            f"{out} holds something else than spml {command} writes{what}; "
            "move it away, or give another --out"
        )
