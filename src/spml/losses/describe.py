"""The framework's table, printed from the losses themselves.

python -m spml.losses.describe docs/framework.md    rewrites the table in that file
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from spml.losses.components import Constant
from spml.losses.registry import create, head, names, needs, summary
from spml.losses.unified import UnifiedLoss

BEGIN, END = "<!-- generated: framework_table -->", "<!-- end -->"
VARIANTS = {"hill": {"variant": "gr"}, "splc": {"variant": "gr"}, "gr": {"variant": "paper"}}
HEADER = ["method", "k̂", "v", "L1", "L2", "L3", "reduction"]


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
    lines = ["| " + " | ".join(row) + " |" for row in [HEADER, ["---"] * len(HEADER), *rows]]
    notes = [
        "p = σ(z) is the model's probability, t the epoch, B the items of a batch, C the classes; a→b moves with t.",
        "¹ For known negatives only: k̂ = 1 or v = 0 keeps it from unknown labels.",
        *(f"Beside the framework, {line}" for line in beside),
    ]
    return "\n".join(lines) + "\n\n" + "  \n".join(notes) + "\n"


def _cells(loss: UnifiedLoss) -> list[str]:
    khat, weight = _formula(loss.khat), _formula(loss.weight)
    negative_only = _constant(loss.khat) == 1 or _constant(loss.weight) == 0
    l2 = "–" if loss.l2 is None else _formula(loss.l2)
    l3 = _formula(loss.l3) + (" ¹" if negative_only else "")
    if negative_only and loss.l2 is None:
        khat = "–"
    reduction = loss.reduction
    if loss.regulariser is not None:
        return [khat, weight, _formula(loss.l1), l2, l3, f"{reduction}, plus {_formula(loss.regulariser)}"]
    return [khat, weight, _formula(loss.l1), l2, l3, reduction]


def _formula(part: Any) -> str:
    formula = getattr(part, "formula", None)
    if formula is None:
        return getattr(part, "__name__", type(part).__name__)
    return str(formula() if callable(formula) else formula)


def _constant(part: Any) -> float | None:
    return part.value if isinstance(part, Constant) else None


def rewritten(text: str) -> str:
    """The document with the table between its markers brought up to date."""
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"no place for the table: the text lacks {BEGIN} … {END}")
    return pattern.sub(lambda _: f"{BEGIN}\n{framework_table()}{END}", text)


def main(paths: list[str]) -> None:
    """Rewrite the table in each file, or print it when there is none."""
    if not paths:
        print(framework_table(), end="")
    for path in map(Path, paths):
        path.write_text(rewritten(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
