"""Pages of `spml explain`, `spml review` and `spml serve`."""

from __future__ import annotations

from typing import Any


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
