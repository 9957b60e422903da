"""Write the pages of the methods, and the generated parts of others, from the methods themselves.

python tools/method_pages.py docs/framework.md docs/methods.md    rewrite parts of these pages
python tools/method_pages.py docs/methods                         write one page a method there
python tools/method_pages.py                                      print the framework's table
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, get_args

from spml import losses
from spml.data.benchmarks import NAMES, paper_counts
from spml.losses import Citation, UnifiedLoss
from spml.losses.components import Constant
from spml.losses.metadata import SEARCHED
from spml.losses.registry import GR_TRAINING

PLACE = re.compile(r"<!-- generated: (\w+) -->\n.*?<!-- end -->", re.DOTALL)
PAGE_LINK = re.compile(r"\]\((\w[\w-]*\.md)?(#[\w-]+)?\)")
SIZED = {"VOC": "voc", "COCO": "coco", "NUS-WIDE": "nuswide"}  # data sets of the memory table
NOTES = (
    "p = σ(z) is the model's probability, t the epoch, B the items of a batch, C the classes; "
    "a→b changes with t.",
    "¹ For known negatives only: k̂ = 1 or v = 0 keeps it from unknown labels.",
)


def framework_table() -> str:
    """Markdown table of k_hat, v, L1, L2 and L3 of every method with default options."""
    rows, outside = [], []
    for name in losses.names():
        loss = None if losses.needs(name) else losses.create(name)
        if not isinstance(loss, UnifiedLoss):
            outside.append(f"Outside the framework, `{name}`: {losses.summary(name)}")
            continue
        head = f", head {losses.head(name)}" if losses.head(name) else ""
        rows.append([f"`{name}`{head}", *_cells(loss)])
        rows.extend(
            [f"`{name}`, variant={variant}", *_cells(losses.create(name, variant=variant))]
            for variant in _other_variants(name)
        )
    header = ["method", "k̂", "v", "L1", "L2", "L3", "reduction"]
    return _table(header, rows) + "\n" + "  \n".join([*NOTES, *outside]) + "\n"


def needs_table() -> str:
    """Markdown table of what every method needs, and what it keeps with its default options."""
    rows = []
    sizes = [counts for data in SIZED.values() if (counts := paper_counts(data)) is not None]
    for name in losses.names():
        needs = ", ".join(sorted(losses.needs(name) - {"items"})) or "–"
        memory = [_bytes(losses.memory(name, counts.train, counts.classes)) for counts in sizes]
        rows.append(
            [f"[`{name}`](methods/{name}.md)", needs, losses.head(name) or "linear", *memory]
        )
    return _table(["method", "needs", "head", *(f"keeps on {name}" for name in SIZED)], rows)


def method_page(name: str) -> str:
    """Markdown page of one method: its notes, options, published values and source."""
    about = losses.about(name)
    commands = "\n".join(f"spml train {example}" for example in about.examples)
    parts = [
        f"# `{name}`\n",
        f"{losses.summary(name)}\n",
        f"```\n{commands}\n```\n",
        f"{_from_folder(about.notes)}\n",
        f"## Options\n\n{options_table(name)}",
    ]
    if values := published_table(name):
        parts.append(f"## Published values\n\n{values}")
    if about.citation is not None:
        parts.append(f"## Source\n\n{_cited(about.citation)}\n")
    return "\n".join(parts)


def bibliography() -> str:
    """Markdown list of the publications of all methods, the oldest first."""
    methods: dict[Citation, list[str]] = {}
    for name in losses.names():
        if (citation := losses.about(name).citation) is not None:
            methods.setdefault(citation, []).append(f"[`{name}`](methods/{name}.md)")
    oldest_first = sorted(methods, key=lambda each: (each.year, each.names or each.authors))
    return "".join(f"- {', '.join(methods[each])}: {_cited(each)}\n" for each in oldest_first)


def _from_folder(notes: str) -> str:
    """Notes, whose links start in docs/, with links that start in docs/methods/."""

    def moved(link: re.Match[str]) -> str:
        page, anchor = link[1] or "methods.md", link[2] or ""
        if page == "methods.md" and anchor.removeprefix("#") in losses.names():
            return f"]({anchor.removeprefix('#')}.md)"
        return f"](../{page}{anchor})"

    return PAGE_LINK.sub(moved, notes)


def options_table(name: str) -> str:
    """Markdown table of a method's options."""
    rows = [
        [f"`{option.name}`", f"`{_plain(option.default)}`", option.help]
        for option in losses.options(name)
    ]
    return _table(["option", "default", "what it is"], rows)


def published_table(name: str) -> str:
    """Markdown table of the values that the method's own sources state for each benchmark."""
    presets = [losses.preset(name, data) for data in NAMES]
    own = [
        {key: source for key, source in preset.sources.items() if source != GR_TRAINING}
        for preset in presets
    ]
    sources = dict.fromkeys(source for each in own for source in each.values())
    numbers = {source: str(number) for number, source in enumerate(sources, 1)}
    rows = []
    for key in dict.fromkeys(key for each in own for key in each):
        tried = key.startswith(SEARCHED)
        label = f"`{key.removeprefix(SEARCHED)}`" + (", tried" if tried else "")
        cells = [
            _plain(preset.value(key)) if key in each else ""
            for preset, each in zip(presets, own, strict=True)
        ]
        cited = dict.fromkeys(numbers[each[key]] for each in own if key in each)
        rows.append([label, *cells, ", ".join(cited)])
    if not rows:
        return ""
    footnotes = "  \n".join(f"{number}: {source}." for source, number in numbers.items())
    return _table(["value", *NAMES, "source"], rows) + f"\n{footnotes}\n"


def _cited(citation: Citation) -> str:
    title = f"[{citation.title}]({citation.link})" if citation.link else citation.title
    text = f"{citation.names or citation.authors}, *{title}*, {citation.venue} {citation.year}."
    if citation.repository:
        repository = citation.repository.removeprefix("https://github.com/")
        text += f" Code: [{repository}]({citation.repository})"
        text += f" at {citation.commit}." if citation.commit else "."
    return text


def _other_variants(name: str) -> list[str]:
    """Values of the option `variant` that are not its default."""
    for option in losses.options(name):
        if option.name == "variant":
            return [value for value in get_args(option.type) if value != option.default]
    return []


def _cells(loss: Any) -> list[str]:
    khat, weight = _formula(loss.khat), _formula(loss.weight)
    negative_only = _constant(loss.khat) == 1 or _constant(loss.weight) == 0
    l2 = "–" if loss.l2 is None else _formula(loss.l2)
    l3 = _formula(loss.l3) + (" ¹" if negative_only else "")
    if negative_only and loss.l2 is None:
        khat = "–"
    reduction = loss.reduction
    if loss.regulariser is not None:
        reduction += f", plus {_formula(loss.regulariser)}"
    return [khat, weight, _formula(loss.l1), l2, l3, reduction]


def _formula(part: Any) -> str:
    formula = getattr(part, "formula", None)
    if formula is None:
        return getattr(part, "__name__", type(part).__name__)
    return str(formula() if callable(formula) else formula)


def _constant(part: Any) -> float | None:
    return part.value if isinstance(part, Constant) else None


def _table(header: list[str], rows: Iterable[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines
    )


def _plain(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return ", ".join(map(_plain, value))
    if value is None:
        return "none"
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text.replace("e-0", "e-")


def _bytes(size: float) -> str:
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}" if size else "–"
        size /= 1000
    return f"{size:.3g} GB"


PARTS: dict[str, Callable[[], str]] = {
    "framework_table": framework_table,
    "needs_table": needs_table,
    "bibliography": bibliography,
}


def rewritten(text: str) -> str:
    """A page with its generated parts brought up to date; others stay unchanged."""
    if not any(place[1] in PARTS for place in PLACE.finditer(text)):
        raise ValueError(
            "nothing to generate: the page lacks "
            f"<!-- generated: {' or '.join(PARTS)} --> … <!-- end -->"
        )

    def fill(place: re.Match[str]) -> str:
        if place[1] not in PARTS:
            return place[0]
        return f"<!-- generated: {place[1]} -->\n{PARTS[place[1]]()}<!-- end -->"

    return PLACE.sub(fill, text)


def write_pages(folder: Path) -> None:
    """Write one page a method, and remove those of methods that no longer exist."""
    for old in set(folder.glob("*.md")) - {folder / f"{name}.md" for name in losses.names()}:
        old.unlink()
    for name in losses.names():
        (folder / f"{name}.md").write_text(method_page(name), encoding="utf-8")


def main(paths: list[str]) -> None:
    """Rewrite each page or folder, or print the framework's table if there is none."""
    if not paths:
        print(framework_table(), end="")
    for path in map(Path, paths):
        if path.is_dir():
            write_pages(path)
            continue
        path.write_text(rewritten(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
