"""Read the flags of a command; a mistake in them is one line."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from contextlib import redirect_stderr
from io import StringIO
from itertools import takewhile
from typing import TypeVar

import tyro

from spml.cli.help import flags_of
from spml.errors import UserError

Kind = TypeVar("Kind")
RULE = re.compile("[─-]{3}")
REFUSED = re.compile(r"Error parsing (\S+): .*?('.*?')")


def parse(name: str, kind: type[Kind], words: Sequence[str]) -> Kind:
    """Return a command with its flags; raise UserError for an unknown flag or a wrong value."""
    flags = list(flags_of(kind))
    known = [word for flag in flags if not flag.positional for word in flag.flags]
    see = f"spml {name} --help lists the flags"
    for word in words:
        flag = word.partition("=")[0].replace("_", "-")
        if flag.startswith("--") and flag.replace("--no-", "--", 1) not in known:
            near = difflib.get_close_matches(flag, known, n=1)
            hint = f"; {near[0]}?" if near else ";"
            raise UserError(f"{name} has no flag {flag}{hint} {see}")
    shown = StringIO()
    try:
        with redirect_stderr(shown):
            return tyro.cli(kind, args=words, prog=f"spml {name}")
    except SystemExit as stop:
        needed = " ".join(flag.label for flag in flags if flag.required)
        raise UserError(f"{_problem(shown.getvalue(), needed)}; {see}") from stop


def _problem(box: str, needed: str) -> str:
    """Return the sentence in the box that tyro draws around a mistake."""
    lines = [line.strip("│ ") for line in box.splitlines()[1:]]
    if RULE.match(lines[0]):  # below the title, if the output cannot show a box
        lines = lines[1:]
    text = " ".join(takewhile(lambda line: not RULE.match(line), lines)).strip()
    if refused := REFUSED.match(text):
        return f"{refused[1]} cannot be {refused[2]}"
    if lacking := re.match(r"Missing value for argument '(--\S+)'", text):
        return f"{lacking[1]} needs a value"
    if text.startswith("Missing"):
        return f"give {needed}"
    return text.rstrip(".")
