"""Commands are found in their folder: one file adds one."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import spml
from spml import losses
from spml.cli import find_commands, main

NEW = '''"""`spml hello`."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Hello:
    """Greet someone.

    Example: spml hello --name Ada
    """

    order: ClassVar[int] = 45
    name: str = "you"
    """Whom to greet."""

    def run(self) -> None:
        """Print the greeting."""
        print(f"hello {self.name}")
'''


def test_a_new_command_is_one_file(tmp_path):
    source = Path(spml.__file__).parent
    shutil.copytree(source, tmp_path / "spml", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "spml" / "cli" / "commands" / "hello.py").write_text(NEW)

    def run(*words):
        return subprocess.run(
            [sys.executable, "-m", "spml.cli", *words],
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )

    done = run("hello", "--name", "Ada")
    assert (done.returncode, done.stdout) == (0, "hello Ada\n"), done.stderr
    assert "Example: spml hello" in run("hello", "--help").stdout
    names = run("nothing").stderr.partition("Commands: ")[2].strip().split(", ")
    assert names[names.index("stats") + 1] == "hello"


def test_commands_are_listed_in_the_order_of_use():
    names = list(find_commands())
    assert names[:6] == ["demo", "prepare", "check", "stats", "methods", "train"]
    assert names[-3:] == ["bench", "ablate", "figures"] and "eval" in names


def test_methods_are_listed_with_their_papers_and_costs(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["methods"]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = {line.split()[0]: i for i, line in enumerate(lines) if line.strip()}
    assert set(losses.names()) <= set(rows)

    def row(name):
        return [line.strip() for line in lines[rows[name] : rows[name] + 2]]

    assert row("an")[0].endswith(
        "Assume negative: binary cross-entropy, unknown labels taken as absent"
    )
    assert row("an")[1] == "Cole et al., CVPR 2021; cost: none"
    assert row("role")[1] == "Cole et al., CVPR 2021; cost: 96 MB of memory"
    assert "a pass over the data after each epoch" in row("crisp")[1]
    assert "two views of each picture" in row("lagc")[1]
