"""Options of methods as `--set NAME=VALUE`: parsed, written and listed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, get_args

from spml.errors import UserError

ARRAYS = ("table", "estimated", "x")  # method options that take whole arrays


def parse_options(method: str, pairs: Sequence[str]) -> dict[str, Any]:
    """Parse NAME=VALUE pairs: numbers, true, false, none, a,b for a pair or list, else text."""
    from spml import losses

    known = {option.name: option for option in losses.options(method)}
    values = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise UserError(
                f"--set {pair}: write NAME=VALUE, or --set help to list the options of {method}"
            )
        name, text = name.strip(), text.strip()
        if name in ARRAYS and method in losses.names():
            raise UserError(
                f"--set {name}: this option takes an array and is only available in Python code"
            )
        choices = get_args(known[name].type) if name in known else ()
        values[name] = text if text in choices else _parse(text)
    losses.check_options(method, values)
    return values


def _parse(text: str) -> Any:
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


def option_text(value: Any) -> str:
    """Format the value of a method option as --set reads it."""
    if isinstance(value, (list, tuple)):
        return ",".join(option_text(part) for part in value)
    return value if isinstance(value, str) else json.dumps(value)


def print_options(method: str) -> None:
    """Print the options of a method with defaults and help."""
    from rich.console import Console
    from rich.table import Table

    from spml import losses

    title = f"{method}: {losses.summary(method)}"
    table = Table("option", "default", "description", title=title, title_justify="left")
    for option in losses.options(method):
        table.add_row(option.name, str(option.default), option.help)
    Console().print(table)
