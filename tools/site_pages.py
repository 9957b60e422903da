"""Hooks of `mkdocs build`: the pages that docs/ does not hold, links into the repository, formulas.

The first page is README.md, and every public name gets a place in the API reference. Formulas
become MathML, so that a page needs nothing from elsewhere.
"""

from __future__ import annotations

import html
import posixpath
import re
from importlib import import_module
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from spml import losses

ROOT = Path(__file__).resolve().parents[1]
MOVED = {  # file of the repository -> page of the site
    "README.md": "index.md",
    "docs/README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
PACKAGES = ("losses", "train", "data", "metrics", "model", "report")
USES = (
    "spml.use.estimator.classifier.SinglePositiveClassifier",
    "spml.use.calibrate.calibrate.calibrate",
    "spml.use.explain.explain.explain",
    "spml.use.explain.class_maps.class_maps",
    "spml.use.export.export.export",
    "spml.use.hub.push",
    "spml.use.hub.local_folder",
)
PARTS = {
    "Losses of one logit": "spml.losses.terms",
    "Pseudo-labels and weights": "spml.losses.components",
}
LINK = re.compile(r"(?<=\]\()(?!https?:|#)([^)#\s]+)(?=[)#])")
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add one page a method and the API reference to the navigation."""
    sections = {next(iter(entry)): next(iter(entry.values())) for entry in config.nav or []}
    sections["Methods"] += [{name: f"methods/{name}.md"} for name in losses.names()]
    sections["Reference"] += [{_title(page): page} for page in _api_pages()]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that docs/ does not hold, and the recorded results that pages link."""
    pages = {page: (ROOT / file).read_text(encoding="utf-8") for file, page in MOVED.items()}
    pages["index.md"] = (ROOT / "README.md").read_text(encoding="utf-8")
    for path, text in (pages | _api_pages()).items():
        files.append(File.generated(config, path, content=text))
    for path in sorted(_linked_files()):
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Turn links to files of the repository into links of the site."""
    source = {at: file for file, at in MOVED.items()}.get(page.file.src_uri)
    if page.file.src_uri == "index.md":
        source = "README.md"
    folder = posixpath.dirname(source or f"docs/{page.file.src_uri}")

    def moved(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, link[1]))
        target = MOVED.get(target, target).removeprefix("docs/")
        return posixpath.relpath(target, posixpath.dirname(page.file.src_uri) or ".")

    return LINK.sub(moved, markdown)


def on_page_content(content: str, **_: Any) -> str:
    """Render formulas as MathML."""

    def rendered(formula: re.Match[str]) -> str:
        display = "block" if formula[1] == "div" else "inline"
        return str(convert(html.unescape(formula[2]), display=display))

    return FORMULA.sub(rendered, content)


def _title(page: str) -> str:
    return "spml." + Path(page).stem if "/use" not in page else "spml"


def _api_pages() -> dict[str, str]:
    pages = {}
    for package in PACKAGES:
        module = import_module(f"spml.{package}")
        functions_first = sorted(module.__all__, key=lambda name: (name[0].isupper(), name))
        names = [f"spml.{package}.{name}" for name in functions_first]
        pages[f"api/{package}.md"] = _api_page(f"spml.{package}", module.__doc__ or "", names)
    below = "    options: {show_root_heading: false, heading_level: 3}"
    for title, module in PARTS.items():
        pages["api/losses.md"] += f"\n## {title}\n\n::: {module}\n{below}\n"
    pages["api/use.md"] = _api_page(
        "spml", "The estimator, and functions for a trained model.", USES
    )
    return pages


def _api_page(title: str, about: str, names: Any) -> str:
    return "\n".join([f"# `{title}`\n", f"{about.strip()}\n", *(f"::: {name}\n" for name in names)])


def _linked_files() -> set[str]:
    """Files of the repository outside docs/ that pages link, but for pages."""
    linked = {"CITATION.cff"}
    for path in (ROOT / "docs").rglob("*.md"):
        folder = path.parent.relative_to(ROOT).as_posix()
        for link in LINK.findall(path.read_text(encoding="utf-8")):
            target = posixpath.normpath(posixpath.join(folder, link))
            if not target.startswith("docs/") and target not in MOVED:
                linked.add(target)
    return {path for path in linked if (ROOT / path).is_file()}
