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
framework_table, needs_table, options_table = (
    pages.framework_table,
    pages.needs_table,
    pages.options_table,
)


def row(name):
    lines = [line for line in framework_table().splitlines() if line.startswith(f"| `{name}` |")]
    assert len(lines) == 1
    return [cell.strip() for cell in lines[0].strip("|").split("|")][1:]


@pytest.mark.parametrize("page", ["framework.md", "methods.md"])
def test_the_page_is_current(page):
    text = (DOCS / page).read_text(encoding="utf-8")
    assert pages.rewritten(text) == text, "run: make docs"


def test_every_method_is_on_the_page():
    for name in losses.names():
        assert f"`{name}`" in framework_table() and f"[`{name}`](#{name})" in needs_table()


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
    own = [
        f"<!-- generated: {name} -->\n<!-- end -->\n" for name in ("needs_table", "method_sections")
    ]
    text = other + "".join(own)
    expected = text.replace("needs_table -->\n", f"needs_table -->\n{needs_table()}")
    sections = pages.method_sections()
    assert pages.rewritten(text) == expected.replace(
        "method_sections -->\n", f"method_sections -->\n{sections}"
    )


@pytest.mark.parametrize("name", losses.names())
def test_every_section_has_notes_a_source_and_options(name):
    text, about = pages.section(name), losses.about(name)
    assert text.startswith(f"## `{name}`\n") and about.notes in text
    assert options_table(name) in text
    assert about.citation is None or f"*{about.citation.title}*" in text or about.citation.link


def test_a_citation_has_its_links():
    assert (
        "**Source.** Cole et al., *Multi-Label Learning from Single Positive Labels*, CVPR 2021. "
        "Code: [elijahcole/single-positive-multi-label]"
        "(https://github.com/elijahcole/single-positive-multi-label) at 89152d5.\n"
    ) in pages.section("an")
    assert "](https://arxiv.org/abs/2309.13886)*, arXiv 2023.\n" in pages.section("crisp")
    assert "**Source.**" not in pages.section("full")


def test_options_are_those_of_the_signature_with_published_values_and_sources():
    lines = options_table("em_apl").splitlines()
    assert (
        "| `theta` | `0.9` | share of each class's unknown labels that have a pseudo-label "
        "at the end. |"
    ) in lines
    assert "| `beta` | 0.02 | 0.9 | 0.2 | 0.4 | 1 |" in lines
    assert "1: Correr-Zhou/SPML-AckTheUnknown, settings per data set." in lines
    assert "| `gamma_pos` | 1 | 0 | 1 | 1 | 1, 2 |" in options_table("asl")
    assert "| `lr` |  | 0.0001 |  |  | 2 |" in options_table("asl")
    assert "| `lr`, tried | 0.01, 0.001, 0.0001, 1e-5 |" in options_table("an")
    assert "| [`role`](#role) | index | linear | 1.1 MB | 63 MB | 117 MB |" in needs_table()


def test_the_example_runs(capsys):
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(example, str(PAGE), "exec"), {})
    assert capsys.readouterr().out.startswith("tensor(")
