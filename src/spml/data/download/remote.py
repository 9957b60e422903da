"""Archives to download. Imports nothing heavy: the command line lists the benchmarks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Archive:
    """An archive to download and unpack."""

    name: str  # on the disk
    addresses: tuple[str, ...]  # tried in turn
    size: int  # in bytes
    digest: str  # "md5:..." or "sha256:..." of its content
    unpacked: int  # approximate number of bytes it unpacks to
