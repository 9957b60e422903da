"""Help, and commands that are found in their folder: one file adds one."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from spml import losses
from spml.cli import find_commands, main
from tests.conftest import spml

COMMANDS = list(find_commands())


@pytest.fixture
def shown(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")

    def run(*words):
        assert main(words) == 0
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_has_an_example_and_a_line_per_flag(command, shown):
    short = shown(command, "--help")
    whole = shown(command, "--help-all")
    assert f"Example: spml {command}" in short and f"Example: spml {command}" in whole
    assert all(len(line) <= 80 for line in (short + whole).splitlines())
    # No text is cut off, and none names a default that says nothing.
    assert " ...\n" not in short and "None" not in short + whole

    flags = short.partition("arguments:")[2].partition("\n\n")[2] or short.partition("options:")[2]
    lines = [line for line in flags.splitlines() if line.startswith("  ")]
    assert all(line.startswith(("  --", "  -")) for line in lines)


def test_the_overview_has_a_line_per_command(shown):
    lines = shown("--help").splitlines()
    assert len(lines) <= 30 and max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines if line.startswith("  ")] == COMMANDS
    assert "--tyro-print-completion" in lines[-1]


def test_the_short_help_of_train_shows_common_flags_and_help_all_the_rest(shown):
    short, whole = shown("train", "--help"), shown("train", "-h", "--help-all")
    assert len(short.splitlines()) <= 60
    assert "common:" in short and "--epochs" in short and "--linear-lr" not in short
    for title in ("common:", "data:", "optimisation:", "speed:", "advanced:"):
        assert title in whole
    assert "--linear-lr X" in whole and "--frozen-norm" in whole
    assert "--frozen-norm" not in short
    assert "Choices: auto, none, graphs, compile." in " ".join(whole.split())


def test_the_methods_of_bench_are_on_the_first_screen(shown):
    assert "--methods" in "".join(shown("bench", "--help").splitlines()[:24])


def test_few_flags_are_all_shown_with_the_required_ones_and_aliases(shown):
    assert "usage: spml prepare voc|coco|nuswide|cub --root PATH" in shown("prepare", "--help")
    short = shown("predict", "--help")
    assert "usage: spml predict RUN INPUT... [FLAG ...]" in short and "more flags" not in short
    for words in ("options:", "--threads N", "-0, --null", "--[no-]probabilities"):
        assert words in short


def test_help_and_completion_load_nothing_heavy():
    code = (
        "import sys; from spml.cli import main; "
        "main(['train', '--help']); main(['bench', '--help-all']); "
        "main(['--tyro-print-completion', 'bash']); "
        "heavy = {'torch', 'numpy', 'timm', 'lightning', 'matplotlib', 'sklearn'}; "
        "heavy &= set(sys.modules); "
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "complete -F" in done.stdout and "figures" in done.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(("typed", "completed"), [("tr", "train"), ("train --ep", "--epochs")])
def test_bash_completes_commands_and_flags(typed, completed, tmp_path, capsys):
    """The second line of the description of --epochs is no completion."""
    spml("--tyro-print-completion bash")
    (tmp_path / "spml.sh").write_text(capsys.readouterr().out)
    words = ["spml", *typed.split()]
    code = f"""source {tmp_path}/spml.sh
COMP_WORDS=({" ".join(words)}) COMP_CWORD={len(words) - 1} COMP_LINE="spml {typed}"
_tyro_spml; printf '%s\\n' "${{COMPREPLY[@]}}" """
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == [completed], done.stderr


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("train digits --epoch 3", "train has no flag --epoch; --epochs?"),
        ("train --batch_sise=8 digits", "train has no flag --batch-sise; --batch-size?"),
        ("predict run a.jpg --epoch 3", "predict has no flag --epoch;"),
        ("train", "give DATA;"),
        ("train digits --lr", "--lr needs a value;"),
        ("train digits --epochs three", "give --epochs N, not 'three';"),
        ("bench digits --seeds 0,1", "give --seeds N, not '0,1';"),
        ("train digits --selection test", "invalid choice 'test' for argument '--selection'."),
        ("train digits more", "Unrecognized options: more;"),
    ],
)
def test_a_mistake_in_flags_is_one_line(line, message, capsys):
    assert spml(line) == 2
    (shown,) = capsys.readouterr().err.splitlines()
    assert shown.startswith(f"spml: {message} ") and "'None'" not in shown
    assert shown.endswith(f" spml {line.split()[0]} --help lists the flags")


def test_no_command_prints_the_overview_as_a_mistake(capsys):
    assert main([]) == 2
    assert "usage: spml COMMAND" in capsys.readouterr().err


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
    source = Path(losses.__file__).parents[1]
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
