"""Write the page of all commands from their help.

python tools/command_pages.py docs/commands.md
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path

from spml.cli import find_commands, main
from spml.files import write_text

HEAD = """# Every command

The output of `spml COMMAND --help`, written by `make docs`. Methods have options of their own:
`spml train x --method NAME --set help` lists them, and [methods](methods.md) explains them.
"""


def page() -> str:
    """Return the page in Markdown."""
    parts = [f"## {name}\n\n```\n{help_of(name)}\n```\n" for name in find_commands()]
    return "\n".join([HEAD, *parts])


def help_of(name: str) -> str:
    """Return the help of a command on a terminal with 100 columns and without colours."""
    before = {key: os.environ.get(key) for key in ("COLUMNS", "NO_COLOR", "TERM")}
    printed = io.StringIO()
    try:
        os.environ |= {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
        with contextlib.redirect_stdout(printed):
            main([name, "--help"])
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key)
            else:
                os.environ[key] = value
    return "\n".join(line.rstrip() for line in printed.getvalue().strip().splitlines())


if __name__ == "__main__":
    write_text(Path(sys.argv[1]), page())
