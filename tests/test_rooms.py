"""A room knows only the rooms above it: who may import whom, also inside functions and by name."""

import ast
import re
from pathlib import Path

import pytest

import spml

SOURCE = Path(spml.__file__).parent
ROOMS = (
    *("errors", "stored", "atomic", "cores", "keyed", "launch"),  # single files
    *(
        "losses",
        "data",
        "methods",
        "metrics",
        "model",
        "runs",
        "train",
        "use",
        "report",
        "bench",
        "analysis",
        "cli",
    ),
    "__main__",
)
EXCEPTIONS = {
    (
        "losses/registry.py",
        "methods",
    ),  # one dict holds the names of both; a method's module loads when asked for
}
FILES = sorted(
    path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py"
)  # which is the door to them all
MODULE = re.compile(r"spml(\.\w+)+")


def named(text: str) -> set[str]:
    """The rooms that a module imports or names as a module in a string."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports have full names"
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and MODULE.fullmatch(node.value)
        ):
            found.add(node.value)
    return {name.split(".")[1] for name in found if name.startswith("spml.")} & set(ROOMS)


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def below(path: Path) -> set[str]:
    """The rooms that a module may not know and does."""
    rest = ROOMS[ROOMS.index(room(path)) + 1 :]
    return named(path.read_text(encoding="utf-8")) & set(rest)


def test_every_room_has_its_place():
    assert {room(path) for path in FILES} == set(ROOMS)


@pytest.mark.parametrize("name", ROOMS)
def test_a_room_knows_only_the_rooms_above_it(name):
    own = [path for path in FILES if room(path) == name]
    against = {
        (path.relative_to(SOURCE).as_posix(), other) for path in own for other in below(path)
    }
    assert against == {one for one in EXCEPTIONS if room(SOURCE / one[0]) == name}


def test_losses_know_nothing_else_of_ours():
    for path in (SOURCE / "losses").rglob("*.py"):
        others = named(path.read_text(encoding="utf-8")) - {"losses"}
        assert others <= {other for file, other in EXCEPTIONS if path == SOURCE / file}, path


def test_imports_are_seen_wherever_they_stand():
    text = """
import spml.data.table
from spml import cli, metrics as m, __version__
from spml.use.predict.predict import predict
import torch.use, report

def late():
    from spml.bench import plan
    return import_module("spml.train.fitting"), "spml.report is a room", "spml.json"
"""
    assert named(text) == {"data", "cli", "metrics", "use", "bench", "train"}
