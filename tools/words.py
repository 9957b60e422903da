"""Count words of the old dialect in src, docs and tests, and list where they stand.

    python tools/words.py             counts per word
    python tools/words.py --list      every place
    python tools/words.py --files     counts per file

Exit code 1 if any is left. Two kinds are counted: phrases in sentences (docstrings, comments,
messages, pages), and names of variables, functions, classes and modules that do not say what they
hold. A line that ends in `# quoted` quotes somebody else and does not count.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PLACES = ("src/**/*.py", "src/**/*.html", "docs/*.md", "tests/**/*.py", "README.md")
PHRASES = {
    "go on with": r"\b(?:go|goes|gone|going|went) on\b(?! to\b)",
    "tell": r"(?<!\.)\b(?:tells?|told|telling|tellers?)\b",
    "be had": r"\b(?:be|is|are|was|were) had\b",
    "in words": r"\b(?:in|into) words\b",
    "those that": r"\b(?:those|that) (?:that|which|who) (?:is|are|count|come)\b",
    "of which": r"\bof (?:which|whom|whose)\b",
    "let be": r"\blet be\b",
    "of one's own": r"\bone's own\b",
    "what is ... is": r"(?:^|[.:;] )What is [^.;:]{3,60} is\b",
}
NAMES = {
    *("told", "tell", "teller", "found", "given", "made", "taken", "kept", "said", "say", "had"),
    *("room", "rooms", "shelf", "board", "sheet", "account", "together", "ahead"),
}
QUOTED = "# quoted"


class Place(NamedTuple):
    """One occurrence."""

    path: Path
    line: int
    word: str
    text: str


def phrases(path: Path, lines: list[str]) -> Iterator[Place]:
    """Phrases of the dialect in any line of a file."""
    for number, line in enumerate(lines, 1):
        if not line.rstrip().endswith(QUOTED):
            for word, pattern in PHRASES.items():
                for _ in re.finditer(pattern, line):
                    yield Place(path, number, word, line.strip())


def names(path: Path, lines: list[str]) -> Iterator[Place]:
    """Names of the dialect that a module defines."""
    for node in ast.walk(ast.parse("\n".join(lines))):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name, number = node.id, node.lineno
        elif isinstance(node, ast.arg):
            name, number = node.arg, node.lineno
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            name, number = node.name, node.lineno
        else:
            continue
        if name.strip("_").lower() in NAMES:
            yield Place(path, number, f"name {name.strip('_').lower()}", lines[number - 1].strip())
    if path.stem in NAMES:
        yield Place(path, 1, f"module {path.stem}", "")


def places() -> list[Place]:
    """All occurrences, in the order of files and lines."""
    occurrences = []
    for pattern in PLACES:
        for path in sorted(ROOT.glob(pattern)):
            lines = path.read_text(encoding="utf-8").splitlines()
            occurrences += phrases(path, lines)
            if path.suffix == ".py":
                occurrences += names(path, lines)
    return sorted(occurrences)


def main() -> int:
    """Print the counts; 1 if there are any."""
    parser = argparse.ArgumentParser(description="Count words of the old dialect.")
    parser.add_argument("--list", action="store_true", help="print every place")
    parser.add_argument("--files", action="store_true", help="print counts per file")
    options = parser.parse_args()
    occurrences = places()
    if options.list:
        for place in occurrences:
            where = f"{place.path.relative_to(ROOT)}:{place.line}"
            print(f"{where}: {place.word}: {place.text[:90]}")
    key = (lambda p: str(p.path.relative_to(ROOT))) if options.files else (lambda p: p.word)
    for word, count in Counter(map(key, occurrences)).most_common():
        print(f"{count:6,}  {word}")
    print(f"{len(occurrences):6,}  in all")
    return 1 if occurrences else 0


if __name__ == "__main__":
    sys.exit(main())
