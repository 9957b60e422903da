"""Build step: the package index shows README.md without its links into the repository."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PICTURE = re.compile(r"^!\[[^]]*\]\((?!https?:)[^)]*\)\n+", re.MULTILINE)
LINK = re.compile(r"\[([^]]+)\]\((?!https?:)[^)]*\)")
COMMENT = re.compile(r"<!--.*?-->\n", re.DOTALL)


class Readme(MetadataHookInterface):
    """Fill in the project's readme."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set `readme` to the text of README.md, with relative links replaced by their text."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        text = LINK.sub(r"\1", PICTURE.sub("", COMMENT.sub("", text)))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
