"""Scripts in benchmarks/ are run by hand: the names they import from the package must exist."""

import ast
from importlib import import_module
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parents[1] / "benchmarks").glob("*.py"))


def missing(module: str, name: str) -> bool:
    if hasattr(import_module(module), name):
        return False
    try:
        import_module(f"{module}.{name}")
    except ModuleNotFoundError:
        return True
    return False


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_every_imported_name_exists(script: Path) -> None:
    imports = [
        node
        for node in ast.walk(ast.parse(script.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
    ]
    ours = [
        (node.module, alias.name)
        for node in imports
        for alias in node.names
        if (node.module or "").startswith("spml")
    ]
    assert [f"{module}.{name}" for module, name in ours if missing(module, name)] == []
