"""The rows of a bench: methods and their search spaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spml.bench.plan import Case


def paper_methods() -> list[str]:
    """Return the methods of the paper's Table 2, in its order."""
    from spml import losses

    rows = {name: losses.about(name).table2 for name in losses.names()}
    return sorted((name for name, row in rows.items() if row), key=lambda name: rows[name] or 0)


def method_cases(
    methods: Sequence[str], options: Mapping[str, Mapping[str, Any]]
) -> tuple[Case, ...]:
    """Return a row for each method; a search does not vary the fixed `options` of a method."""
    from spml import losses

    cases = []
    for name in methods:
        fixed = dict(options.get(name, {}))
        losses.check_options(name, fixed)
        cases.append(Case(name, name, fixed, space=losses.space(name).without(fixed)))
    return tuple(cases)
