"""Tables of the docs, printed from the losses themselves.

python -m spml.losses.describe docs/framework.md docs/methods.md    rewrites the tables in these files
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from spml.losses.components import Constant
from spml.losses.presets import DATASETS, GR_TRAINING, SEARCHED, preset
from spml.losses.registry import METHODS, create, head, memory, names, needs, options, summary
from spml.losses.unified import UnifiedLoss

PLACE = re.compile(r"<!-- generated: (\w+)(?: (\w+))? -->\n.*?<!-- end -->", re.DOTALL)
VARIANTS = {"hill": {"variant": "gr"}, "splc": {"variant": "gr"}, "gr": {"variant": "paper"}}
HEADER = ["method", "k̂", "v", "L1", "L2", "L3", "reduction"]
SIZES = {
    "VOC": (4574, 20),
    "COCO": (65665, 80),
    "NUS-WIDE": (120000, 81),
}  # items to train on, and classes


def framework_table() -> str:
    """Markdown: k_hat, v, L1, L2, L3 of every method with its default options, as it runs."""
    rows, beside = [], []
    for name in names():
        loss = None if needs(name) else create(name)
        if not isinstance(loss, UnifiedLoss):
            beside.append(f"`{name}`: {summary(name)}")
            continue
        under = f", head {head(name)}" if head(name) else ""
        rows.append([f"`{name}`{under}", *_cells(loss)])
        if name in VARIANTS:
            variant: dict[str, Any] = VARIANTS[name]
            label = ", ".join(f"{key}={value}" for key, value in variant.items())
            varied = create(name, **variant)
            assert isinstance(varied, UnifiedLoss)
            rows.append([f"`{name}`, {label}", *_cells(varied)])
    notes = [
        "p = σ(z) is the model's probability, t the epoch, B the items of a batch, C the classes; a→b moves with t.",
        "¹ For known negatives only: k̂ = 1 or v = 0 keeps it from unknown labels.",
        *(f"Beside the framework, {line}" for line in beside),
    ]
    return _table(HEADER, rows) + "\n" + "  \n".join(notes) + "\n"


def needs_table() -> str:
    """Markdown: what every method needs, and what it keeps with its default options."""
    rows = []
    for name in names():
        wanted = ", ".join(sorted(needs(name) - {"items"})) or "–"
        kept = [_bytes(memory(name, *size)) for size in SIZES.values()]
        rows.append([f"[`{name}`](#{name})", wanted, head(name) or "linear", *kept])
    return _table(["method", "needs", "head", *(f"keeps on {name}" for name in SIZES)], rows)


def options_table(name: str) -> str:
    """Markdown: a method's options with defaults and help, and the values that were published; nothing if unknown."""
    if name not in METHODS:
        return ""
    rows = [
        [f"`{option.name}`", f"`{_plain(option.default)}`", option.help] for option in options(name)
    ]
    return _table(["option", "default", "what it is"], rows) + _published(name)


def _published(name: str) -> str:
    """Markdown: values that the method's own sources give, for each benchmark."""
    presets = [preset(name, dataset) for dataset in DATASETS]
    own = [
        {key: source for key, source in each.sources.items() if source != GR_TRAINING}
        for each in presets
    ]
    numbers = {
        source: str(n)
        for n, source in enumerate(dict.fromkeys(s for each in own for s in each.values()), 1)
    }
    rows = []
    for key in dict.fromkeys(key for each in own for key in each):
        what = (
            f"`{key}`" if not key.startswith(SEARCHED) else f"`{key.removeprefix(SEARCHED)}`, tried"
        )
        cells = [
            _plain(each.value(key)) if key in mine else ""
            for each, mine in zip(presets, own, strict=True)
        ]
        cited = dict.fromkeys(numbers[mine[key]] for mine in own if key in mine)
        rows.append([what, *cells, ", ".join(cited)])
    if not rows:
        return ""
    sources = "  \n".join(f"{number}: {source}." for source, number in numbers.items())
    return "\n" + _table(["published", *DATASETS, "source"], rows) + f"\n{sources}\n"


TABLES: dict[str, Callable[..., str]] = {
    "framework_table": framework_table,
    "needs_table": needs_table,
    "options": options_table,
}


def _table(header: list[str], rows: Iterable[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines
    )


def _plain(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return ", ".join(map(_plain, value))
    text = f"{value:g}" if isinstance(value, float) else "none" if value is None else str(value)
    return text.replace("e-0", "e-")


def _bytes(size: int) -> str:
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}" if size else "–"
        size /= 1000  # type: ignore[assignment]
    return f"{size:.3g} GB"


def _cells(loss: UnifiedLoss) -> list[str]:
    khat, weight = _formula(loss.khat), _formula(loss.weight)
    negative_only = _constant(loss.khat) == 1 or _constant(loss.weight) == 0
    l2 = "–" if loss.l2 is None else _formula(loss.l2)
    l3 = _formula(loss.l3) + (" ¹" if negative_only else "")
    if negative_only and loss.l2 is None:
        khat = "–"
    reduction = loss.reduction
    if loss.regulariser is not None:
        return [
            khat,
            weight,
            _formula(loss.l1),
            l2,
            l3,
            f"{reduction}, plus {_formula(loss.regulariser)}",
        ]
    return [khat, weight, _formula(loss.l1), l2, l3, reduction]


def _formula(part: Any) -> str:
    formula = getattr(part, "formula", None)
    if formula is None:
        return getattr(part, "__name__", type(part).__name__)
    return str(formula() if callable(formula) else formula)


def _constant(part: Any) -> float | None:
    return part.value if isinstance(part, Constant) else None


def rewritten(text: str) -> str:
    """The document with the tables between their markers brought up to date; others' tables stay as they are."""
    if not any(place[1] in TABLES for place in PLACE.finditer(text)):
        raise ValueError(
            f"no place for a table: the text lacks <!-- generated: {' or '.join(TABLES)} --> … <!-- end -->"
        )

    def fill(place: re.Match[str]) -> str:
        if place[1] not in TABLES:
            return place[0]
        body = TABLES[place[1]](*([place[2]] if place[2] else []))
        return f"{place[0].partition(chr(10))[0]}\n{body}<!-- end -->"

    return PLACE.sub(fill, text)


def main(paths: list[str]) -> None:
    """Rewrite the tables in each file, or print the framework's when there is none."""
    if not paths:
        print(framework_table(), end="")
    for path in map(Path, paths):
        path.write_text(rewritten(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
