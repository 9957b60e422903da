"""The rules of docs/architecture.md: layers, sizes, and how far one command has to walk."""

import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import spml

SOURCE = Path(spml.__file__).parent
ROOT = SOURCE.parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
MOST_LINES = 350
MOST_FILES = 18
MOST_FILES_OF_TRAIN = 51
LAYERS = (
    *("errors", "files", "machine", "keyed"),  # single modules
    *("losses", "data", "methods", "metrics", "model", "runs", "train"),
    *("use", "report", "bench", "analysis", "cli"),
    "__main__",
)
EXCEPTIONS = {
    # The registry finds the modules of both packages; a method's module loads when it is asked for.
    ("losses/registry.py", "methods")
}
MODULES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")
MODULE_NAME = re.compile(r"spml(\.\w+)+")


def imported_layers(text: str) -> set[str]:
    """Layers that a module imports, also inside functions, or names as a module in a string."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports have full names"
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and MODULE_NAME.fullmatch(str(node.value)):
            names.add(str(node.value))
    return {name.split(".")[1] for name in names if name.startswith("spml.")} & set(LAYERS)


def layer(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def lower_layers(path: Path) -> set[str]:
    """Layers below its own that a module imports."""
    rest = LAYERS[LAYERS.index(layer(path)) + 1 :]
    return imported_layers(path.read_text(encoding="utf-8")) & set(rest)


def test_every_package_is_a_layer():
    assert {layer(path) for path in MODULES} == set(LAYERS)


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_imports_only_the_layers_above_it(name):
    own = [path for path in MODULES if layer(path) == name]
    wrong = {
        (path.relative_to(SOURCE).as_posix(), low) for path in own for low in lower_layers(path)
    }
    assert wrong == {one for one in EXCEPTIONS if layer(SOURCE / one[0]) == name}


def test_losses_import_nothing_else_of_ours():
    for path in (SOURCE / "losses").rglob("*.py"):
        others = imported_layers(path.read_text(encoding="utf-8")) - {"losses"}
        assert others <= {other for file, other in EXCEPTIONS if path == SOURCE / file}, path


def test_imports_are_detected_everywhere():
    text = """
import spml.data.table
from spml import cli, metrics as m, __version__
from spml.use.predict import predict
import torch.use, report

def late():
    from spml.bench import plan
    return import_module("spml.train.fitting"), "spml.report is a package", "spml.json"
"""
    assert imported_layers(text) == {"data", "cli", "metrics", "use", "bench", "train"}


def test_no_module_is_too_long():
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}
    assert {path.name: length for path, length in lengths.items() if length > MOST_LINES} == {}


def test_no_package_has_too_many_files():
    counts = Counter(path.parent for path in SOURCE.rglob("*.py"))
    too_many = {
        str(folder.relative_to(SOURCE)): n for folder, n in counts.items() if n > MOST_FILES
    }
    assert too_many == {}


def test_the_page_names_every_package_in_order():
    diagram = PAGE.split("```")[1]
    packages = re.findall(r"^ *(\w+)/ ", diagram, re.MULTILINE)
    assert packages == [name for name in LAYERS if (SOURCE / name).is_dir()]


def test_every_path_on_the_page_exists():
    paths = re.findall(r"`((?:src|tests|tools|docs|benchmarks)/[\w./-]+)`", PAGE)
    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.slow
def test_the_walk_is_as_short_as_the_page_states():
    """The page promises a number of files; counts of functions change with every small edit."""
    command = [sys.executable, str(ROOT / "tools" / "walk.py")]
    table = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = re.findall(r"`spml (\w+)` \| \d+ \| (\d+) \|", table)
    on_page = re.findall(r"`spml (\w+)` \| \d+ \| (\d+) \|", PAGE)
    assert int(dict(rows)["train"]) <= MOST_FILES_OF_TRAIN
    assert rows == on_page, "run: python tools/walk.py --write"
