"""A new method is one file: whatever covers all methods works without another edit."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import spml

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "add-a-method.md").read_text(encoding="utf-8")
_, FILE, CASE, _ = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)

LIBRARY = """
from spml import losses
from spml.data.benchmarks import NAMES

assert "my_hill" in losses.names()
assert losses.summary("my_hill") == "Hill loss with -log p positives (Author, 2026)."
assert [option.name for option in losses.options("my_hill")] == ["lam", "reduction"]
assert losses.options("my_hill")[0].help == "height of the hill."
assert losses.needs("my_hill") == frozenset() and losses.head("my_hill") is None
assert losses.memory("my_hill", 10, 3) == 0 and losses.code("my_hill") is None
assert losses.space("my_hill").dimensions["lam"] == ({"lam": 1.3}, {"lam": 1.5}, {"lam": 1.7})
assert losses.about("my_hill").citation.title == "A Title"
for name in NAMES:
    preset = losses.preset("my_hill", name)
    assert preset.options == {"lam": 1.3 if name == "coco" else 1.5}
    assert set(preset.training) == {"lr", "batch_size", "epochs", "head_lr"}
    assert (preset.training["lr"] == 1e-4) == (name == "coco")
"""

BENCH = """
from spml.bench.rows import method_cases, paper_methods
from spml.bench.plan import Plan

cases = method_cases(["an", "my_hill"], {"my_hill": {"lam": 1.2}})
runs = Plan("b", "digits", cases, (1, 2), {}).runs(lambda name: None)
assert [case.label for case in cases] == ["an", "my_hill"] and len(runs) == 4
assert "my_hill" not in paper_methods()
"""

PAGES = """
import sys

sys.path.insert(0, "tools")
import method_pages

page = method_pages.method_page("my_hill")
for text in (
    "**Idea.** Unknown labels", "*A Title*, A Venue 2026", "height of the hill.",
    "| `lam` | 1.5 | 1.3 | 1.5 | 1.5 |",
):
    assert text in page, text
assert "| `my_hill` | 0 | 1 |" in method_pages.framework_table()
assert "| [`my_hill`](methods/my_hill.md) |" in method_pages.needs_table()
assert "[`my_hill`](methods/my_hill.md): " in method_pages.bibliography()
"""

FORMULA = f"""
from tests.losses import test_oracles

case = eval({CASE!r}, vars(test_oracles))
test_oracles.test_loss_is_its_formula(*case, 0)
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A copy of the package with one new file."""
    source = tmp_path_factory.mktemp("one_file") / "src"
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(spml.__file__).parent, source / "spml", ignore=ignore)
    (source / "spml" / "losses" / "my_hill.py").write_text(FILE, encoding="utf-8")
    return source


def run(package, *arguments):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(package), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("script", [LIBRARY, BENCH, PAGES, FORMULA])
def test_the_library_the_bench_and_the_pages_know_the_method(package, script):
    run(package, "-c", script)


@pytest.mark.slow
def test_the_tests_of_all_methods_cover_it(package):
    files = [f"tests/losses/test_{name}.py" for name in ("robustness", "registry", "presets")]
    printed = run(
        package, "-m", "pytest", *files, "-k", "my_hill", "-p", "no:cacheprovider", "-p", "no:xdist"
    )
    assert re.match(r"\.{20,}", printed), printed  # a dot for each test that passed


@pytest.mark.slow
def test_the_command_line_trains_it(package, tmp_path):
    words = "train digits --method my_hill --epochs 1 --set lam=1.2 --quiet --out"
    run(package, "-m", "spml", *words.split(), str(tmp_path / "run"))
    config = (tmp_path / "run" / "config.json").read_text(encoding="utf-8")
    assert re.search(r'"lam": 1\.2\b', config)
    words = "train digits --method my_hill --set help"
    assert "height of the hill" in run(package, "-m", "spml", *words.split())
