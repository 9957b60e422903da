"""Gate before the web page: which requests are accepted, and how long they may be."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

OURS = ("/api/predict", "/api/model")
JOIN = "/gradio_api/queue/join"
PAGE = (
    "/",
    "/config",
    "/theme.css",
    "/favicon.ico",
    "/gradio_api/startup-events",
    "/gradio_api/queue/data",
    JOIN,
)
# files of the gradio package, and its heartbeat
PARTS = ("/assets/", "/static/", "/svelte/", "/gradio_api/heartbeat/")
LOOPBACK = ("localhost", "127.0.0.1", "[::1]", "::1")
EXTRA = 65536  # bytes of a request besides the picture


class Gate:
    """ASGI application that accepts only the requests of the page and the endpoint.

    Gradio's routes that read, upload and fetch files are closed: pictures come as data within a
    request. A request above the limit is refused before it is read to its end. On a loopback
    address, the Host header must name this machine, so that no other web page can reach the server
    under a name of its own (DNS rebinding).

    Args:
        application: the application behind the gate.
        limit: bytes of a picture.
        hosts: accepted names in the Host header; None accepts any.
    """

    def __init__(self, application: Application, limit: int, hosts: tuple[str, ...] | None) -> None:
        self.application, self.hosts = application, hosts
        self.limits = {JOIN: limit * 4 // 3 + EXTRA}  # base64
        self.limit = limit + EXTRA

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or pass it to the application."""
        if scope["type"] == "lifespan":
            return await self.application(scope, receive, send)
        if scope["type"] != "http":
            return None  # closes a web socket
        path, headers = scope["path"], {name.lower(): value for name, value in scope["headers"]}
        if self.hosts is not None and _host(headers.get(b"host", b"")) not in self.hosts:
            return await _refuse(
                send, 403, "this page is for this machine alone; see spml serve --host"
            )
        if (
            (path not in (*OURS, *PAGE) and not path.startswith(PARTS))
            or ".." in path
            or "\\" in path
        ):
            return await _refuse(send, 404, "there is nothing here")
        posted = path in (OURS[0], JOIN)
        if scope["method"] not in (("POST",) if posted else ("GET", "HEAD")):
            return await _refuse(send, 405, "this cannot be done here")
        body = await _read(receive, headers, self.limits.get(path, self.limit))
        if body is None:
            return await _refuse(
                send, 413, "the file is above the limit of this server; send a smaller one"
            )
        if path == JOIN and not _is_plain(body):
            return await _refuse(send, 400, "pictures are sent as data, not as files")
        return await self.application(scope, _replay(body, receive), send)


def _host(value: bytes) -> str:
    """The name in a Host header, without its port."""
    text = value.decode("latin-1").strip().lower()
    if text.startswith("["):
        return text.partition("]")[0] + "]"
    return text.rpartition(":")[0] if text.count(":") == 1 else text


async def _read(receive: Receive, headers: dict[bytes, bytes], limit: int) -> bytes | None:
    """Read the whole body; None if it is longer than the limit."""
    length = headers.get(b"content-length", b"0")
    if not length.isdigit() or int(length) > limit:
        return None
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > limit:
            return None
        if message["type"] != "http.request" or not message.get("more_body"):
            return bytes(body)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the body first, then further messages."""
    waiting = [body]

    async def again() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return again


def _is_plain(body: bytes) -> bool:
    """Whether an event holds only text and numbers: an object could name a file or an address."""
    try:
        values = json.loads(body)["data"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return False
    return isinstance(values, list) and all(
        item is None or isinstance(item, (str, int, float)) for item in values
    )


async def _refuse(send: Send, status: int, reason: str) -> None:
    body = json.dumps({"error": reason}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
