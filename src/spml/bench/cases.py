"""The rows of a bench: methods, with what may be searched over in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spml.bench.plan import Case


def paper_methods() -> list[str]:
    """The methods of the paper's Table 2, in its order."""
    from spml import losses

    rows = {name: losses.about(name).table2 for name in losses.names()}
    return sorted((name for name, row in rows.items() if row), key=lambda name: rows[name] or 0)


def method_cases(
    methods: Sequence[str], options: Mapping[str, Mapping[str, Any]]
) -> tuple[Case, ...]:
    """A row for each method.

    Args:
        methods: by name.
        options: of each method, where they are not the published ones; a search leaves them as they are.
    """
    from spml import losses

    for name in methods:
        losses.check_options(name, options.get(name, {}))
    given = {name: dict(options.get(name, {})) for name in methods}
    return tuple(
        Case(name, name, own, space=losses.space(name).without(own)) for name, own in given.items()
    )
