"""Archives to download. Imports nothing heavy: the command line lists the benchmarks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Archive:
    """An archive to download and unpack.

    Attributes:
        name: file name on the disk.
        addresses: its addresses, tried in turn.
        size: in bytes.
        digest: "md5:..." or "sha256:..." of its content.
        unpacked: approximate number of bytes it unpacks to.
    """

    name: str
    addresses: tuple[str, ...]
    size: int
    digest: str
    unpacked: int
