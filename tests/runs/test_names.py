"""The file names of a run folder are spelt in one module, those of a model folder in another."""

import ast
from pathlib import Path

import pytest

import spml
from spml.model import store
from spml.runs import names

SOURCE = Path(spml.__file__).parent
NAMES, STORE = SOURCE / "runs" / "names.py", SOURCE / "model" / "store.py"
# A word alone, such as "scores", may mean something else. As a part of a path it is a folder.
FOLDERS = {store.BEST, names.SCORES, *names.LOGGER_FOLDERS}
FILES = {*names.FILES, store.WEIGHTS, store.INFO}
PARTS = ("eval-", "val-", "test.npz")


def docstrings(tree: ast.AST) -> set[ast.AST]:
    """Strings that are statements: docstrings of modules, classes, functions and fields."""
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def spelt(tree: ast.AST) -> set[str]:
    """The names that a module spells, in strings that are not sentences for people."""
    texts = docstrings(tree)
    spelled = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in texts:
            value = node.value
            if not any(sign.isspace() for sign in value):
                spelled |= {name for name in FILES if name in value}
                spelled |= {part for part in PARTS if value.startswith(part)}
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            right = node.right
            if isinstance(right, ast.Constant) and right.value in FOLDERS:
                spelled.add(right.value)
    return spelled


MODULES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_names_are_defined_in_one_module(path):
    spelled = spelt(ast.parse(path.read_text(encoding="utf-8")))
    if path == NAMES:
        assert spelled >= set(names.FILES)
    elif path == STORE:
        assert spelled == {store.WEIGHTS, store.INFO}
    elif path == SOURCE / "runs" / "run.py":
        assert spelled == {"val-"}
    else:
        assert not spelled


def test_the_scan_finds_a_name():
    for text in (
        'path / "config.json"',
        'f"runs/{name}/result.json"',
        'folder / "scores"',
        'f"val-{epoch:02d}"',
        'NAME = "last.ckpt"',
    ):
        assert spelt(ast.parse(text))
    for text in ('"""config.json"""', '"see config.json of the run"', '{"scores": 1}'):
        assert not spelt(ast.parse(text))
