"""A method's options on the command line, read off its signature."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, get_args

from spml.errors import UserError

NOT_HERE = ("table", "estimated", "x")  # options of our methods that are whole arrays


def parse_options(method: str, given: Sequence[str]) -> dict[str, Any]:
    """NAME=VALUE pairs as values: numbers, true, false, none, a,b for a pair or list, else text."""
    from spml import losses

    known = {option.name: option for option in losses.options(method)}
    values = {}
    for pair in given:
        name, equals, text = pair.partition("=")
        if not equals:
            raise UserError(
                f"--set {pair}: write NAME=VALUE, or --set help to see what {method} takes"
            )
        name, text = name.strip(), text.strip()
        if name in NOT_HERE and method in losses.names():
            raise UserError(f"--set {name}: it is for one's own code, not for the command line")
        choices = get_args(known[name].type) if name in known else ()
        values[name] = text if text in choices else _value(text)
    losses.check_options(method, values)
    return values


def _value(text: str) -> Any:
    if text.lower() in ("none", "true", "false"):
        return {"none": None, "true": True, "false": False}[text.lower()]
    for candidate in (text, f"[{text.strip('()')}]"):
        try:
            return json.loads(candidate)
        except json.JSONDecodeError:
            try:
                return float(candidate)  # forms that JSON lacks, such as .5
            except ValueError:
                continue
    parts = text.strip("()[]").split(",")
    try:
        return [float(part) for part in parts] if len(parts) > 1 else text
    except ValueError:
        return text


def print_options(method: str) -> None:
    """The method's options with defaults and help."""
    from rich.console import Console
    from rich.table import Table

    from spml import losses
    from spml.losses import summary

    table = Table(
        "option",
        "default",
        "what it does",
        title=f"{method}: {summary(method)}",
        title_justify="left",
    )
    for option in losses.options(method):
        table.add_row(option.name, str(option.default), option.help)
    Console().print(table)
