"""Writes the page of all commands from their own help: python -m spml.cli.describe docs/commands.md."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path

from spml.cli import command_names, main
from spml.files import write_text

HEAD = """# Every command

What `spml COMMAND --help` says, written by `make docs`. Methods have options of their own: `spml train x --method NAME
--set help` lists them, and [methods](methods.md) explains them.
"""


def page() -> str:
    """The page, in Markdown."""
    return "\n".join(
        [HEAD, *(f"## {name}\n\n```\n{help_of(name)}\n```\n" for name in command_names())]
    )


def help_of(name: str) -> str:
    """A command's help as it looks on a terminal of 100 columns without colours."""
    kept = {key: os.environ.get(key) for key in ("COLUMNS", "NO_COLOR", "TERM")}
    said = io.StringIO()
    try:
        os.environ |= {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
        with contextlib.redirect_stdout(said):
            main([name, "--help"])
    finally:
        for key, value in kept.items():
            if value is None:
                os.environ.pop(key)
            else:
                os.environ[key] = value
    return "\n".join(line.rstrip() for line in said.getvalue().strip().splitlines())


if __name__ == "__main__":
    write_text(Path(sys.argv[1]), page())
