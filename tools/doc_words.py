"""Count the words of the pages: written ones and generated ones.

python tools/doc_words.py

Written are README.md, CONTRIBUTING.md, docs/ and the notes of the methods. Generated are the parts
between `<!-- generated: ... -->` and `<!-- end -->`, docs/commands.md, and what docs/methods/ adds
to the notes.
"""

from __future__ import annotations

import re
from pathlib import Path

from spml import losses

ROOT = Path(__file__).resolve().parents[1]
PART = re.compile(r"<!-- generated: [\w-]+ -->\n.*?<!-- end -->", re.DOTALL)


def counts() -> dict[str, tuple[int, int]]:
    """Written and generated words by page."""
    words = {}
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")):
        text = path.read_text(encoding="utf-8")
        every = len(text.split())
        written = 0 if path.name == "commands.md" else len(PART.sub("", text).split())
        if path.name != "CHANGELOG.md":
            words[str(path.relative_to(ROOT))] = written, every - written
    every = sum(
        len(path.read_text(encoding="utf-8").split())
        for path in (ROOT / "docs" / "methods").glob("*.md")
    )
    notes = sum(len(losses.about(name).notes.split()) for name in losses.names())
    words["docs/methods/"] = notes, every - notes
    return words


def main() -> None:
    """Print the counts."""
    words = counts()
    for page, (written, generated) in sorted(words.items()):
        print(f"{written:7,} {generated:7,}  {page}")
    print(f"{sum(w for w, _ in words.values()):7,} {sum(g for _, g in words.values()):7,}  in all")


if __name__ == "__main__":
    main()
