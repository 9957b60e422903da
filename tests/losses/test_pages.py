"""The generated pages describe what runs, and their examples run."""

import importlib.util
import re
from pathlib import Path

import pytest

from spml import losses

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGE = DOCS / "framework.md"


def load_tool(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


pages = load_tool("method_pages")
framework_table, needs_table = pages.framework_table, pages.needs_table
options_table = pages.options_table


def row(name):
    lines = [line for line in framework_table().splitlines() if line.startswith(f"| `{name}` |")]
    assert len(lines) == 1
    return [cell.strip() for cell in lines[0].strip("|").split("|")][1:]


@pytest.mark.parametrize("page", ["framework.md", "methods.md", "bibliography.md"])
def test_the_page_is_current(page):
    text = (DOCS / page).read_text(encoding="utf-8")
    assert pages.rewritten(text) == text, "run: make docs"


def test_every_method_is_on_the_page():
    for name in losses.names():
        assert f"`{name}`" in framework_table()
        assert f"[`{name}`](methods/{name}.md)" in needs_table()


def test_the_table_shows_the_formulas_that_run():
    assert row("an") == ["0", "1", "−log p", "–", "−log (1 − p)", "mean"]
    assert row("em")[:4] == ["1", "0.2", "−log p", "p log p + (1 − p) log (1 − p)"]
    assert row("em")[4].endswith("¹")
    assert row("gr")[0] == "1/(1 + exp(−(w p + b))), w = 0→2, b = -2"
    assert row("gr")[2:5] == ["−log p", "(1 − p^q)/q, q = 0.01", "p"]
    assert row("gce")[4] == "(1 − (1 − p)^q)/q, q = 0.7"
    assert row("splc")[0] == "1 if p > 0.6 else 0 (from epoch 2)"
    assert row("focal")[4] == "−p^2 log (1 − p)"
    assert row("asl")[2] == "−(1 − p) log p"
    assert row("hill")[2] == "−σ(1 − z)^2 log σ(z − 1)"
    assert row("epr")[5] == "mean, plus (Σp/B − 1.5)²/C²"


def test_rewriting_replaces_only_the_table(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- generated: framework_table -->\nold\n<!-- end -->\nafter\n")
    pages.main([str(page)])
    assert page.read_text() == (
        f"before\n<!-- generated: framework_table -->\n{framework_table()}<!-- end -->\nafter\n"
    )
    pages.main([])
    assert capsys.readouterr().out == framework_table()
    for text in ("nothing", "<!-- generated: another -->\nkept\n<!-- end -->"):
        with pytest.raises(ValueError, match="nothing to generate"):
            pages.rewritten(text)


def test_a_page_may_have_several_parts_and_those_of_other_generators():
    other = "<!-- generated: another -->\nkept\n<!-- end -->\n"
    text = expected = other
    for name in ("needs_table", "bibliography"):
        text += f"<!-- generated: {name} -->\n<!-- end -->\n"
        expected += f"<!-- generated: {name} -->\n{getattr(pages, name)()}<!-- end -->\n"
    assert pages.rewritten(text) == expected


@pytest.mark.parametrize("name", losses.names())
def test_every_method_has_a_current_page_with_notes_options_and_a_source(name):
    text, about = pages.method_page(name), losses.about(name)
    assert (DOCS / "methods" / f"{name}.md").read_text(encoding="utf-8") == text, "run: make docs"
    assert text.startswith(f"# `{name}`\n\n{losses.summary(name)}\n")
    assert options_table(name) in text and about.notes.split("](")[0] in text
    if about.citation is not None:
        assert about.citation.title in text and about.citation.names in text
        assert about.citation.names and about.citation.title in pages.bibliography()


def test_a_folder_loses_the_pages_of_removed_methods(tmp_path):
    (tmp_path / "removed.md").touch()
    pages.main([str(tmp_path)])
    assert {path.stem for path in tmp_path.iterdir()} == set(losses.names())


def test_links_of_notes_work_from_the_folder_of_the_methods():
    text = pages.method_page("gr")
    assert "](../reproduction.md#hyper-parameters)" in text
    assert "](../methods.md#comparing-with-the-papers-table)" in pages.method_page("splc")


def test_a_citation_has_its_links():
    assert (
        "## Source\n\nElijah Cole, Oisin Mac Aodha, Titouan Lorieul, Pietro Perona, Dan Morris, "
        "Nebojsa Jojic, *[Multi-Label Learning from Single Positive Labels]"
        "(https://arxiv.org/abs/2106.09708)*, CVPR 2021. "
        "Code: [elijahcole/single-positive-multi-label]"
        "(https://github.com/elijahcole/single-positive-multi-label) at 89152d5.\n"
    ) in pages.method_page("an")
    assert "](https://arxiv.org/abs/2309.13886)*, arXiv 2023.\n" in pages.method_page("crisp")
    assert "## Source" not in pages.method_page("full")


def test_options_are_those_of_the_signature_with_published_values_and_sources():
    lines = options_table("em_apl").splitlines()
    theta = "share of each class's unknown labels that have a pseudo-label at the end."
    assert f"| `theta` | `0.9` | {theta} |" in lines
    values = pages.published_table("em_apl").splitlines()
    assert "| `beta` | 0.02 | 0.9 | 0.2 | 0.4 | 1 |" in values
    assert "1: Correr-Zhou/SPML-AckTheUnknown, settings per data set." in values
    assert "| `gamma_pos` | 1 | 0 | 1 | 1 | 1, 2 |" in pages.published_table("asl")
    assert "| `lr` |  | 0.0001 |  |  | 2 |" in pages.published_table("asl")
    assert "| `lr`, tried | 0.01, 0.001, 0.0001, 1e-5 |" in pages.published_table("an")
    role = "| [`role`](methods/role.md) | index | linear | 1.1 MB | 63 MB | 117 MB |"
    assert role in needs_table()


def test_the_example_runs(capsys):
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(example, str(PAGE), "exec"), {})
    assert capsys.readouterr().out.startswith("tensor(")
