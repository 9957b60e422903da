"""Check figures quoted in sentences of README.md and docs/ against recorded results.

python tools/figures_check.py              # exit code 1 if a page and a record differ
python tools/figures_check.py --untied     # also list numbers that look measured and have no entry

`tools/figures.py` lists the sentences. Generated tables, code and formulas are not sentences.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from figures import FIGURES, Figure

ROOT = Path(__file__).resolve().parents[1]
NUMBER = r"([+−-]?\d[\d,]*(?:\.\d+)?)"
FORMAT = re.compile(r"\{[^{}]*\}")
NOT_SENTENCES = re.compile(
    r"^<!-- (generated: [\w-]+|walks: begin).*?^<!-- (end|walks: end) -->"
    r"|^```.*?^```|`[^`\n]*`|\]\([^)]*\)|\$[^$\n]*\$",
    re.DOTALL | re.MULTILINE,
)
MEASURED = re.compile(
    r"(?<![\w.,/-])[+−-]?\d[\d,]*\.\d+(?![\w.])|\d+ %|± \d[\d.]*|\d{1,3}(?:,\d{3})+"
)
REFERENCE = {"commands.md", "bibliography.md"}  # generated from the package


def places(figure: Figure, text: str) -> list[re.Match[str]]:
    """Where a page has the words of a figure, with any numbers."""
    words = [re.escape(part) for part in FORMAT.split(figure.text)]
    pattern = NUMBER.join(r"\s+".join(re.split(r"(?:\\?\s)+", part)) for part in words)
    return list(re.finditer(pattern, text))


def expected(figure: Figure) -> list[str]:
    """The figures as the record has them, in the formats of the sentence."""
    formats = FORMAT.findall(figure.text)
    return [form.format(value) for form, value in zip(formats, figure.values(), strict=True)]


def problems(figures: Iterable[Figure], pages: Mapping[str, str]) -> Iterator[str]:
    """A line for each figure that differs from its record, or whose sentence is gone."""
    for figure in figures:
        text = pages[figure.page]
        recorded = expected(figure)
        occurrences = places(figure, text)
        if not occurrences:
            sentence = figure.text.format(*figure.values())
            yield f"{figure.page}: no sentence {sentence!r}; change its entry in tools/figures.py"
        for place in occurrences:
            line = text.count("\n", 0, place.start()) + 1
            quoted = [number.replace("−", "-") for number in place.groups()]
            for one, other in zip(quoted, recorded, strict=True):
                if one != other:
                    yield f"{figure.page}:{line}: quoted {one}, recorded {other} ({figure.record})"


def untied(figures: Iterable[Figure], pages: Mapping[str, str]) -> Iterator[str]:
    """A line for each number in a sentence that looks measured and that no entry covers."""
    for page, text in pages.items():
        own = [figure for figure in figures if figure.page == page]
        covered = [place.span() for figure in own for place in places(figure, text)]
        sentences = NOT_SENTENCES.sub(lambda part: re.sub(r"[^\n]", " ", part[0]), text)
        for number in MEASURED.finditer(sentences):
            if not any(start <= number.start() < end for start, end in covered):
                line = text.count("\n", 0, number.start())
                yield f"{page}:{line + 1}: {number[0]}: {text.splitlines()[line].strip()[:80]}"


def read_pages(root: Path) -> dict[str, str]:
    """The text of README.md and docs/*.md by path."""
    paths = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    return {
        path.relative_to(root).as_posix(): path.read_text(encoding="utf-8")
        for path in paths
        if path.name not in REFERENCE
    }


def main() -> int:
    """Print the problems; 1 if there are any."""
    parser = argparse.ArgumentParser(description="Check quoted figures against records.")
    parser.add_argument("--untied", action="store_true", help="list numbers without an entry")
    options = parser.parse_args()
    pages = read_pages(ROOT)
    lines = list(problems(FIGURES, pages))
    if options.untied:
        print("\n".join(untied(FIGURES, pages)))
    print("\n".join([*lines, f"{len(FIGURES)} quoted figures, {len(lines)} problems"]))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
