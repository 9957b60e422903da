"""One HTTP request for the missing part of a file."""

from __future__ import annotations

import http.client
import os
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from spml.data.download.remote import Remote

TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})  # HTTP codes worth another try
CHUNK = 2**20
TIMEOUT = 60.0  # seconds without a byte

Advance = Callable[[str, int, int], None]  # current step, bytes done, bytes in all


class BrokenError(Exception):
    """A transient fault: try again."""


class RefusedError(Exception):
    """A permanent refusal: try another address."""


def size_of(file: BinaryIO) -> int:
    """Return the bytes of an open file."""
    return file.seek(0, os.SEEK_END)


def transfer(address: str, remote: Remote, file: BinaryIO, tag: Path, advance: Advance) -> None:
    """Request the missing bytes and append them, or all bytes if the server sends no ranges."""
    have = size_of(file)
    if have == remote.size:
        return
    headers = {"User-Agent": "spml", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
        if tag.exists():
            headers["If-Range"] = tag.read_text()
    with _answer(urllib.request.Request(address, headers=headers), file) as response:
        if _start(response, remote, have) == 0:
            file.truncate(0)
            _remember(response, tag)
        for chunk in _chunks(response):
            file.write(chunk)
            advance(remote.name, size_of(file), remote.size)
            if size_of(file) > remote.size:
                file.truncate(0)
                raise RefusedError(f"sends more than the {remote.size:,} bytes expected")
    file.flush()
    if size_of(file) < remote.size:
        raise BrokenError(f"broke off after {size_of(file):,} bytes")


@contextmanager
def _answer(request: urllib.request.Request, file: BinaryIO) -> Iterator[Any]:
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:  # the part is longer than the file, so it belongs to another one
            file.truncate(0)
        kind = BrokenError if error.code in TRANSIENT or error.code == 416 else RefusedError
        raise kind(f"HTTP {error.code} {error.reason}") from None
    except (OSError, http.client.HTTPException) as error:  # URLError is an OSError
        raise BrokenError(str(getattr(error, "reason", error)) or type(error).__name__) from None
    with response:
        yield response


def _start(response: Any, remote: Remote, have: int) -> int:
    """Return the offset in the file at which the body of the response begins."""
    start, total = 0, response.headers.get("Content-Length")
    if response.status == 206:
        match = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
        if match is None or int(match[1]) != have:
            raise RefusedError("answers with another part than was asked for")
        start, total = have, match[2].strip("*")
    if total and int(total) != remote.size:
        raise RefusedError(
            f"offers {int(total):,} bytes, {remote.size:,} expected: "
            "another version, or another page"
        )
    return start


def _remember(response: Any, tag: Path) -> None:
    etag, date = response.headers.get("ETag", ""), response.headers.get("Last-Modified", "")
    weak = etag.startswith("W/") or not etag  # a weak tag does not guarantee equal bytes
    version = date if weak else etag
    if version:
        tag.write_text(version)
    else:
        tag.unlink(missing_ok=True)


def _chunks(response: Any) -> Iterator[bytes]:
    while True:
        try:
            chunk = response.read(CHUNK)
        except (OSError, http.client.HTTPException) as error:
            raise BrokenError(str(error) or type(error).__name__) from None
        if not chunk:
            return
        yield chunk
