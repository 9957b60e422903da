"""A web page and HTTP endpoints that tag pictures or feature vectors.

Items come as data within requests, and no file of the host is served.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from spml.errors import EXTRA, UserError
from spml.use.serve.tagger import Limits, Tagger

LOOPBACK = ("localhost", "127.0.0.1", "[::1]", "::1")  # only this machine reaches these
NEEDED = ("starlette", "uvicorn", "python_multipart")


@dataclass(frozen=True)
class Access:
    """Who reaches the server, and how."""

    host: str = "127.0.0.1"  # a loopback address is for this machine alone
    port: int = 7860  # 0 for any free one
    token: str | None = None  # what clients must send; None admits everyone
    certificate: Path | None = None  # of TLS, for HTTPS
    key: Path | None = None  # None if the certificate's file holds it


def serve(run: Path, access: Access, limits: Limits) -> None:
    """Serve the page of a run folder, or of its `best`, until interrupted."""
    from spml.use.serve.app import server

    tagger = Tagger(run, limits)
    with listening(access.host, access.port) as at:
        running = server(tagger, access)
        kind = "http" if access.certificate is None else "https"
        host = f"[{access.host}]" if ":" in access.host else access.host
        address = f"{kind}://{host}:{at.getsockname()[1]}"
        print(f"{tagger.name}: {address}  (Ctrl-C ends it)", flush=True)
        running.run(sockets=[at])


def check_packages() -> None:
    """Raise UserError if a package that only this command needs is not installed."""
    if any(find_spec(name) is None for name in NEEDED):
        needs = "spml serve needs a package that is not installed"
        raise UserError(f"{needs}; {EXTRA.format('serve')}")


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """Yield a socket bound to the address; raise UserError if that fails."""
    if not 0 <= port < 65536:  # the system would silently use another port
        raise UserError(f"--port {port} must be from 0 to 65535")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )[0]
        at = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise UserError(f"--host {host} --port {port}: no such address ({error})") from None
    with at:
        try:
            at.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            at.bind(address)
        except OSError as error:
            reason = error.strerror or error
            raise UserError(
                f"--host {host} --port {port}: cannot listen there ({reason}); give another"
            ) from None
        yield at
