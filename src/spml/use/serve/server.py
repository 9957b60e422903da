"""The web server: uvicorn, with limits of connections and of their time."""

from __future__ import annotations

import asyncio

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from spml.errors import UserError
from spml.use.serve.app import application
from spml.use.serve.serve import LOOPBACK, Access, is_local
from spml.use.serve.tagger import Tagger

CONNECTIONS = 128  # open at once; further requests are answered with 503
END_SECONDS = 5  # for requests in flight when the server ends
IDLE_SECONDS = 10  # for the head of a request, and between requests
READ_SECONDS = 30  # for a client to read its answer


class Impatient(H11Protocol):
    """HTTP/1.1 that closes connections of clients that send or read too slowly."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Give the first request a time to arrive."""
        super().connection_made(transport)
        self.unread: asyncio.TimerHandle | None = None
        self._limit_idling()

    def on_response_complete(self) -> None:
        """Give the next request a time to arrive."""
        self._limit_idling()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Give the client a time to read what waits for it."""
        super().pause_writing()
        self.unread = self.loop.call_later(READ_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """The client has read enough."""
        if self.unread is not None:
            self.unread.cancel()
        super().resume_writing()

    def _limit_idling(self) -> None:
        last = self.cycle

        def abort_if_idle() -> None:
            if self.cycle is last:
                self.transport.abort()

        self.loop.call_later(IDLE_SECONDS, abort_if_idle)


def server(tagger: Tagger, access: Access) -> uvicorn.Server:
    """Return a server that is ready to run; raise UserError if its certificate cannot be read."""
    hosts = LOOPBACK if is_local(access.host) else None
    config = uvicorn.Config(
        application(tagger, hosts, access.token),
        http=Impatient,
        ws="none",
        lifespan="off",
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=END_SECONDS,
        ssl_certfile=access.certificate,
        ssl_keyfile=access.key,
    )
    try:
        config.load()
    except OSError as error:  # also of the module ssl
        reason = error.strerror or error
        files = f"--certificate {access.certificate}"
        if access.key is not None:
            files += f" --key {access.key}"
        raise UserError(f"{files}: cannot be read as PEM ({reason})") from None
    return uvicorn.Server(config)
