"""State of each method and data sent per step, at benchmark sizes and far beyond.

python benchmarks/scaling.py [--docs docs/scaling.md]    # computed; nothing is trained

State is the memory of a method in every process, by `losses.memory`. In a step, every process
receives the scores of the others, and features if the method needs them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from common import put_table

from spml import losses

SIZES = {"VOC": (4574, 20), "COCO": (65665, 80), "10⁷ × 10⁴": (10_000_000, 10_000)}
BATCH, WIDTH = 256, 2048  # global batch; channels of ResNet-50
BACKBONE = 23_508_032  # parameters of ResNet-50 without its classifier
FP32 = 4  # bytes: in any precision, Fabric gives the loop float32


def sent(name: str, classes: int) -> int:
    """Most bytes that a process receives from the others in a step."""
    method_needs, head = losses.needs(name), losses.head(name) or ""
    rows = BATCH * (2 if "views" in method_needs else 1)
    numbers = rows * classes  # logits
    if "features" in method_needs:
        size = int(head.partition(":")[2] or 256)
        numbers += rows * classes * (2 * size + 1 if head.startswith("query-normal") else WIDTH)
    return numbers * FP32


def format_size(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(size) < 999.5 or unit == "TB":
            return f"{size:.3g} {unit}" if size else "–"
        size /= 1000
    return ""


def table() -> str:
    """Markdown."""
    titles = [f"state, {size}" for size in SIZES] + [
        f"scores sent per step, {size}" for size in ("COCO", "10⁷ × 10⁴")
    ]
    lines = ["| method | " + " | ".join(titles) + " |", "|---" * (len(titles) + 1) + "|"]
    rows: dict[tuple[str, ...], list[str]] = {}  # methods with the same figures share a row
    for name in losses.names():
        state = [format_size(losses.memory(name, *size)) for size in SIZES.values()]
        moved = [format_size(sent(name, SIZES[size][1])) for size in ("COCO", "10⁷ × 10⁴")]
        rows.setdefault((*state, *moved), []).append(name)
    for figures, names in rows.items():
        lines.append("| " + " | ".join([", ".join(names), *figures]) + " |")
    gradients = [
        format_size(FP32 * (BACKBONE + (WIDTH + 1) * classes)) for _, classes in SIZES.values()
    ]
    lines += [
        "",
        f"Global batch {BATCH}, float32. Gradients of ResNet-50 with a linear head:",
    ]
    lines.append(
        ", ".join(f"{size} for {name}" for name, size in zip(SIZES, gradients, strict=True)) + "."
    )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--docs", type=Path, help="write the table there")
    options = parser.parse_args()
    if options.docs is None:
        print(table())
    else:
        put_table(options.docs, "scaling", table())


if __name__ == "__main__":
    main()
