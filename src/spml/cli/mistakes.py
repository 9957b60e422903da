"""Mistakes in the flags of a command, as one line each."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from spml.cli.help import Flag, flags_of
from spml.errors import UserError

RULE = re.compile("[─-]{3}")
REFUSED = re.compile(r"Error parsing (\S+): .*?('.*?')")


def mistake(name: str, kind: type[Any], arguments: Sequence[str], box: str) -> UserError:
    """Return the error for flags that tyro refused; `box` is what it printed."""
    flags = list(flags_of(kind))
    known = [word for flag in flags if not flag.positional for word in flag.flags]
    see = f"spml {name} --help lists the flags"
    for argument in arguments:
        flag = argument.partition("=")[0].replace("_", "-")
        if flag.startswith("--") and flag.replace("--no-", "--", 1) not in known:
            near = difflib.get_close_matches(flag, known, n=1)
            hint = f"; {near[0]}?" if near else ";"
            return UserError(f"{name} has no flag {flag}{hint} {see}")
    return UserError(f"{_problem(box, flags)}; {see}")


def _problem(box: str, flags: Sequence[Flag]) -> str:
    """Return the sentence in the box that tyro draws around a mistake."""
    lines = [line.strip("│ ") for line in box.splitlines()[1:]]
    if RULE.match(lines[0]):  # below the title, if the output cannot show a box
        lines = lines[1:]
    text = " ".join(takewhile(lambda line: not RULE.match(line), lines)).strip()
    if refused := REFUSED.match(text):
        labels = [flag.label for flag in flags if refused[1] in flag.flags]
        return f"give {' '.join(labels)}, not {refused[2]}"
    if lacking := re.match(r"Missing value for argument '(--\S+)'", text):
        return f"{lacking[1]} needs a value"
    if text.startswith("Missing"):
        return f"give {' '.join(flag.label for flag in flags if flag.required)}"
    return re.sub(r"'None', |, 'None'", "", text.rstrip("."))  # the default is no choice
