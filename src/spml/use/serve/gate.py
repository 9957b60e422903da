"""What stands before the web page: which requests come in at all, and how long they may be."""

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
PARTS = (
    "/assets/",
    "/static/",
    "/svelte/",
    "/gradio_api/heartbeat/",
)  # files of the gradio package, and a pulse
LOOPBACK = ("localhost", "127.0.0.1", "[::1]", "::1")
ROOM = 65536  # bytes of a request beside the picture


class Gate:
    """Lets through what the page and the endpoint need, and nothing else of what gradio offers.

    Gradio's ways to read, upload and fetch files are closed: pictures come as data within a request. A request that is
    longer than the limit is refused before it is read to its end. On a loopback address, the name that a browser asked
    for must be one of this machine, so that no web page elsewhere can speak to it under a name of its own.

    Args:
        application: behind the gate.
        limit: bytes of a picture.
        hosts: names that it may be asked for by; None admits any.
    """

    def __init__(self, application: Application, limit: int, hosts: tuple[str, ...] | None) -> None:
        self.application, self.hosts = application, hosts
        self.limits = {JOIN: limit * 4 // 3 + ROOM}  # base64
        self.limit = limit + ROOM

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or hand on."""
        if scope["type"] == "lifespan":
            return await self.application(scope, receive, send)
        if scope["type"] != "http":
            return None  # which closes a web socket
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
        if scope["method"] != "POST" if posted else scope["method"] not in ("GET", "HEAD"):
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
    """The whole body, or None where it is longer than the limit."""
    told = headers.get(b"content-length", b"0")
    if not told.isdigit() or int(told) > limit:
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
    """The body again, then what else comes."""
    waiting = [body]

    async def again() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return again


def _is_plain(body: bytes) -> bool:
    """Whether an event of the page carries text and numbers alone: an object could name a file or an address."""
    try:
        given = json.loads(body)["data"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return False
    return isinstance(given, list) and all(
        item is None or isinstance(item, (str, int, float)) for item in given
    )


async def _refuse(send: Send, status: int, reason: str) -> None:
    body = json.dumps({"error": reason}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
