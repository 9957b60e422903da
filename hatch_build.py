"""Build step: the package index shows README.md with links that work there.

If `Repository` of [project.urls] names a GitHub address, links and pictures lead there; until then
they are left out.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PICTURE = re.compile(r"^!\[([^]]*)\]\((?!https?:)([^)]*)\)\n+", re.MULTILINE)
LINK = re.compile(r"\[([^]]+)\]\((?!https?:)([^)]*)\)")
COMMENT = re.compile(r"<!--.*?-->\n", re.DOTALL)


class Readme(MetadataHookInterface):
    """Fill in the project's readme."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set `readme` to README.md, with its relative links made absolute or left out."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        text = COMMENT.sub("", text)
        address = metadata.get("urls", {}).get("Repository")
        picture = f"![\\1]({address}/raw/main/\\2)\n\n" if address else ""
        link = f"[\\1]({address}/blob/main/\\2)" if address else r"\1"
        text = LINK.sub(link, PICTURE.sub(picture, text))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
