"""What a user sees before and around the package: its metadata, its installation, its site."""

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest

import spml

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def tool(path):
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_version_is_the_same_everywhere():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert PROJECT["version"] == spml.__version__
    assert f"\nversion: {spml.__version__}\n" in citation


def test_the_citation_names_the_paper_as_its_method_does():
    from spml import losses

    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    paper = losses.about("gr").citation
    assert paper.title in citation and paper.link in citation and paper.repository in citation
    names = re.findall(r"given-names: (.*), family-names: (.*)}", citation)
    assert ", ".join(" ".join(name) for name in names) == paper.names


def test_nothing_installs_the_package_from_an_index():
    files = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    files += [*(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")]
    for path in files:
        assert not re.search(r"pip install ['\"]?spml", path.read_text(encoding="utf-8")), path


def test_the_picture_of_the_readme_is_small():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (picture,) = re.findall(r"!\[[^]]+\]\(([^)]+\.png)\)", readme)
    assert (ROOT / picture).stat().st_size <= 150_000
    assert readme.index(picture) < readme.index("\n## ")


def test_the_readme_of_the_index_has_no_links_into_the_repository():
    pytest.importorskip("hatchling")
    metadata = {}
    tool("hatch_build.py").Readme(str(ROOT), {}).update(metadata)
    text = metadata["readme"]["text"]
    assert "](docs/" not in text and "<!--" not in text and "every method, add one in one" in text
    assert "](https://arxiv.org/abs/2405.03501)" in text


def test_the_readme_of_the_index_links_the_repository_if_it_has_an_address():
    pytest.importorskip("hatchling")
    metadata = {"urls": {"Repository": "https://github.com/owner/spml"}}
    tool("hatch_build.py").Readme(str(ROOT), {}).update(metadata)
    text = metadata["readme"]["text"]
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert all(link.startswith("https://") for link in links)
    assert "https://github.com/owner/spml/raw/main/docs/figures/report.png" in links
    assert "https://github.com/owner/spml/blob/main/docs/quickstart.md" in links


def test_the_oldest_dependencies_are_the_lower_bounds():
    oldest = tool("tools/test_matrix.py").lower_bounds()
    assert "torch==2.11" in oldest and "onnx==1.18" in oldest
    assert all(re.fullmatch(r"[\w-]+==[\d.]+", requirement) for requirement in oldest)


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        ('<script src="https://cdn.example/x.js"></script>', "fetches"),
        ('<link rel="stylesheet" href="//fonts.example/a.css">', "fetches"),
        ('<img alt="" src=http://example/x.png>', "fetches"),
        ('<span class="arithmatex">\\(x\\)</span>', "holds a formula as source"),
        ('<a href="https://example.org">link</a> <img src="figures/x.png">', None),
    ],
)
def test_a_page_of_the_site_that_fetches_something_is_found(page, problem, tmp_path, capsys):
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    code = tool("tools/site_check.py").main(str(tmp_path))
    printed = capsys.readouterr().out
    assert code == (problem is not None)
    assert f"1 pages, {int(problem is not None)} problems" in printed
    assert problem is None or f"page.html {problem}: " in printed
