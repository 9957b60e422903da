"""The framework's page: its table is what runs, its example runs."""

import re
from pathlib import Path

import pytest

from spml import losses
from spml.losses.describe import framework_table, main, rewritten

PAGE = Path(__file__).parents[2] / "docs" / "framework.md"


def row(name: str) -> list[str]:
    lines = [line for line in framework_table().splitlines() if line.startswith(f"| `{name}` |")]
    assert len(lines) == 1
    return [cell.strip() for cell in lines[0].strip("|").split("|")][1:]


def test_the_page_is_current() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert rewritten(text) == text, "run: python -m spml.losses.describe docs/framework.md"


def test_every_method_is_on_the_page() -> None:
    for name in losses.names():
        assert f"`{name}`" in framework_table()


def test_the_table_says_what_runs() -> None:
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


def test_rewriting_replaces_only_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- generated: framework_table -->\nold\n<!-- end -->\nafter\n")
    main([str(page)])
    assert page.read_text() == (
        f"before\n<!-- generated: framework_table -->\n{framework_table()}<!-- end -->\nafter\n"
    )
    main([])
    assert capsys.readouterr().out == framework_table()
    with pytest.raises(ValueError, match="no place for the table"):
        rewritten("nothing")


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(example, str(PAGE), "exec"), {})
    assert capsys.readouterr().out.startswith("tensor(")
