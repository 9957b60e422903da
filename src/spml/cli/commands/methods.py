"""`spml methods`."""

from __future__ import annotations

import re
import shutil
import textwrap
from dataclasses import dataclass
from typing import ClassVar

CITED = re.compile(r" \([^()]*\d{4}[^()]*\)\.?$")  # a source that ends a summary
# what a step or an epoch does besides a plain loss, by the input that a method needs
COSTS = {
    "views": "two views of each picture",
    "features": "reads the backbone's features",
    "pass": "a pass over the data after each epoch",
}
ITEMS, CLASSES = 100_000, 80  # of the split that memory is computed for


@dataclass(frozen=True)
class Methods:
    """List every method with a summary, its paper and its cost.

    Example: spml methods
    """

    order: ClassVar[int] = 45

    def run(self) -> None:
        """Print a line on each method, and one on its paper and cost."""
        from spml import losses

        names = losses.names()
        indent = " " * (max(map(len, names)) + 2)
        width = shutil.get_terminal_size().columns
        for name in names:
            source = paper(name)
            words = CITED.sub("", losses.summary(name)) if source else losses.summary(name)
            facts = [*([source] if source else []), f"cost: {cost(name)}"]
            for head, text in ((name, words), ("", "; ".join(facts))):
                first = head.ljust(len(indent))
                print(textwrap.fill(text, width, initial_indent=first, subsequent_indent=indent))
        print()
        print("Cost: what a method adds to a loss of the batch alone;")
        print(f"its memory is that of {ITEMS:,} items with {CLASSES} classes.")
        print("Options of a method: spml train DATA --method NAME --set help")
        print("Compare all of them: spml bench DATA --methods all")


def paper(name: str) -> str:
    """Return authors, venue and year of the publication of a method."""
    from spml import losses

    source = losses.about(name).citation
    if source is None:
        return ""
    venue = source.venue if str(source.year) in source.venue else f"{source.venue} {source.year}"
    return f"{source.authors}, {venue}"


def cost(name: str) -> str:
    """Return what a method needs beyond the logits and labels of a batch; "none" if nothing."""
    from spml import losses
    from spml.data.images.store import format_bytes

    needs = losses.needs(name)
    parts = [text for need, text in COSTS.items() if need in needs]
    if size := losses.memory(name, ITEMS, CLASSES):
        parts.append(f"{format_bytes(size)} of memory")
    return ", ".join(parts) or "none"
