"""Check that a built site fetches nothing from elsewhere and holds no formula as source.

python tools/site_check.py build/site
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

PROBLEMS = {
    "fetches": re.compile(
        r"<(?:script|img|iframe|source|video)[^>]*\ssrc=[\"']?(?:https?:)?//[^>]*>"
        r"|<link[^>]*rel=[\"']?(?:stylesheet|preconnect|preload|icon)[^>]*href=[\"']?(?:https?:)?//[^>]*>"
        r"|<link[^>]*href=[\"']?(?:https?:)?//[^>]*rel=[\"']?(?:stylesheet|preconnect|preload|icon)[^>]*>"
    ),
    "holds a formula as source": re.compile(r'class="arithmatex"'),
    "needs a diagram library from elsewhere": re.compile(r'class="mermaid"'),
}
STYLE = re.compile(r"(?:url\(|@import )[\"']?(?:https?:)?//[^)\"']*")


def problems(site: Path) -> Iterator[str]:
    """A line for each problem of a page or style sheet."""
    for path in sorted(site.rglob("*.html")):
        text = path.read_text(encoding="utf-8")
        for problem, pattern in PROBLEMS.items():
            for place in pattern.finditer(text):
                yield f"{path.relative_to(site)} {problem}: {place[0][:120]}"
    for path in sorted(site.rglob("*.css")):
        for place in STYLE.finditer(path.read_text(encoding="utf-8")):
            yield f"{path.relative_to(site)} fetches: {place[0][:120]}"


def main(folder: str) -> int:
    """Print the problems; 1 if there are any, or no page."""
    site = Path(folder)
    pages = len(list(site.rglob("*.html")))
    lines = list(problems(site))
    print("\n".join([*lines, f"{folder}: {pages} pages, {len(lines)} problems"]))
    return 1 if lines or not pages else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
