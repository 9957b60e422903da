"""The examples of README and docs run as pasted."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def blocks(name, language):
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / name).read_text(encoding="utf-8"), re.DOTALL)


def test_the_library_example_of_the_readme_runs_as_pasted(tmp_path):
    (example,) = blocks("README.md", "python")
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"\d\.\d{3}\n", done.stdout)
    assert len(example.strip().splitlines()) <= 11


def test_the_readme_names_commands_and_files_that_exist():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "make demo" in text and "make test" in text
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", text):
        assert (ROOT / target).exists(), target


@pytest.mark.parametrize("page", sorted(path.name for path in (ROOT / "docs").glob("*.md")))
def test_links_between_pages_lead_somewhere(page):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", text):
        assert (ROOT / "docs" / target).exists(), target


def test_the_examples_of_add_a_method_work(tmp_path, monkeypatch):
    own, framework, test = blocks("docs/add-a-method.md", "python")
    (tmp_path / "mine.py").write_text(own)
    (tmp_path / "framework_example.py").write_text(framework)
    (tmp_path / "their_test.py").write_text(test)
    monkeypatch.syspath_prepend(tmp_path)
    import torch

    from spml import losses
    from spml.losses.registry import METHODS

    loss = losses.create("mine:soft_negative", strength=0.3)
    z = torch.randn(4, 3, requires_grad=True)
    loss(z, torch.eye(4, 3), epoch=1, epochs=2, index=None).backward()
    assert z.grad is not None and [o.name for o in losses.options("mine:soft_negative")] == ["strength"]
    monkeypatch.setitem(METHODS, "my_hill", "framework_example")
    import their_test

    their_test.test_my_hill_is_the_papers_formula()


def test_the_tables_of_the_performance_page_are_those_of_the_recorded_results(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    from render import TABLES, render

    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert render(page) == page
    assert all(f"<!-- generated: {name} -->" in page for name in TABLES)


def test_the_tables_of_the_digits_page_are_those_of_the_recorded_runs(monkeypatch):
    import json

    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    from digits_grid import tables

    results = json.loads((ROOT / "benchmarks" / "results" / "digits-grid.json").read_text())
    assert tables(results) in (ROOT / "docs" / "digits.md").read_text(encoding="utf-8")
