"""Files to download, and limits on what an archive may unpack to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Remote:
    """A file to download.

    Attributes:
        name: file name on the disk.
        addresses: its addresses, tried in turn.
        size: in bytes.
        digest: "md5:..." or "sha256:..." of its content.
    """

    name: str
    addresses: tuple[str, ...]
    size: int
    digest: str


@dataclass(frozen=True)
class Limits:
    """Limits on what an archive unpacks to; an archive that exceeds one is refused as a bomb.

    Attributes:
        size: bytes.
        files: number of files and folders.
        ratio: unpacked bytes as a multiple of the archive's own bytes.
    """

    size: int
    files: int
    ratio: float = 100.0


@dataclass(frozen=True)
class Archive(Remote):
    """An archive to download and unpack.

    Attributes:
        unpacked: approximate number of bytes it unpacks to.
        files: approximate number of files.
    """

    unpacked: int
    files: int

    @property
    def limits(self) -> Limits:
        """Limits at twice the expected content."""
        return Limits(size=2 * self.unpacked, files=2 * self.files)
