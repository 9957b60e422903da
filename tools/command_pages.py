"""Write the page of all commands from their help.

python tools/command_pages.py docs/commands.md
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from unittest import mock

from spml.cli import find_commands
from spml.cli.help import command_help
from spml.files import write_text

HEAD = """# Every command

Look up a flag. These are the outputs of `spml COMMAND --help-all`, written by `make docs`.
Methods have options of their own: `spml train x --method NAME --set help` lists them, and
[methods](methods.md) explains them.
"""


def page() -> str:
    """Return the page in Markdown."""
    parts = [f"## {name}\n\n```\n{help_of(name)}\n```\n" for name in find_commands()]
    return "\n".join([HEAD, *parts])


def help_of(name: str) -> str:
    """Return the help of a command on a terminal with 80 columns, which the site's pages hold."""
    with mock.patch.dict(os.environ, COLUMNS="80"):
        return command_help(name, find_commands()[name], whole=True)


if __name__ == "__main__":
    write_text(Path(sys.argv[1]), page())
