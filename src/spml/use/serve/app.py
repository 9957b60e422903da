"""The server of `spml serve`: page, endpoints, how requests are read, and limits of time."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable
from typing import TypeVar

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from spml.errors import UserError
from spml.use.pages import render
from spml.use.serve.gate import HEALTH, Gate, Metrics, Places, refusal
from spml.use.serve.serve import LOOPBACK, Access
from spml.use.serve.tagger import RefusedError, Tagger

Answer = TypeVar("Answer")

EXTRA = 65536  # bytes of a request besides the picture
BODY_SECONDS = 30  # for a whole body to arrive
CONNECTIONS = 128  # open at once; further requests are answered with 503
END_SECONDS = 5  # for requests in flight when the server ends
IDLE_SECONDS = 10  # for the head of a request, and between requests
READ_SECONDS = 30  # for a client to read its answer
POLICY = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; "
    "img-src blob: data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)


def application(tagger: Tagger, hosts: tuple[str, ...] | None, token: str | None = None) -> ASGIApp:
    """The page at /, the endpoints, and the gate before them.

    `hosts` are accepted names in the Host header, any if None; without a token everyone may ask.
    """
    places = Places()

    async def page(request: Request) -> Response:
        nonce = secrets.token_urlsafe()
        text = render("serve.html", name=tagger.name, nonce=nonce, model=tagger.for_page())
        return HTMLResponse(text, headers={"Content-Security-Policy": POLICY.format(nonce=nonce)})

    async def model(request: Request) -> Response:
        return JSONResponse(tagger.about())

    async def predict(request: Request) -> Response:
        return JSONResponse(await scored(request, tagger.answer))

    async def class_map(request: Request) -> Response:
        name = request.query_params.get("class", "")
        image = await scored(request, lambda data, file: tagger.class_map(data, file, name))
        return Response(image, media_type="image/png")

    async def health(request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def counts(request: Request) -> Response:
        return PlainTextResponse(metrics.text(places.in_flight))

    async def scored(request: Request, answer: Callable[[bytes, str], Answer]) -> Answer:
        with places.place(request.client.host if request.client else ""):
            try:
                async with asyncio.timeout(BODY_SECONDS):
                    data, name = await _sent(request, tagger.limits.bytes + EXTRA)
            except TimeoutError:
                raise RefusedError(408, "the request came too slowly; send it again") from None
            return await run_in_threadpool(answer, data, name)

    routes = [
        Route("/", page),
        Route("/api/model", model),
        Route("/api/predict", predict, methods=["POST"]),
        Route("/api/map", class_map, methods=["POST"]),
        Route(HEALTH, health),
        Route("/metrics", counts),
    ]
    handlers = dict.fromkeys((HTTPException, UserError, Exception), _failed)
    inner = Starlette(routes=routes, exception_handlers=handlers)
    inner.router.redirect_slashes = False
    metrics = Metrics(frozenset(route.path for route in routes))
    return Gate(inner, metrics, hosts, token)


async def _sent(request: Request, limit: int) -> tuple[bytes, str]:
    """Read a picture or feature values, and a picture's name: the body, or the file of a form."""
    body = await _body(request, limit)
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        return body, "picture"

    async def stream() -> AsyncGenerator[bytes, None]:
        yield body

    parser = MultiPartParser(request.headers, stream(), max_files=1, max_fields=16)
    parser.spool_max_size = limit  # no file on disk
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise RefusedError(400, f"the form cannot be read ({error.message})") from None
    for value in form.values():
        if isinstance(value, UploadFile):
            return await value.read(), value.filename or "picture"
    raise RefusedError(400, "the form holds no file; send the picture as a file")


async def _body(request: Request, limit: int) -> bytes:
    length = request.headers.get("content-length", "0")
    too_long = RefusedError(413, "the file is above the limit of this server; send a smaller one")
    if not length.isdigit() or int(length) > limit:
        raise too_long
    body = bytearray()
    try:
        async for part in request.stream():
            body += part
            if len(body) > limit:
                raise too_long
    except ClientDisconnect:
        raise RefusedError(400, "the request was cut off") from None
    return bytes(body)


async def _failed(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        reason = "this cannot be done here" if error.status_code == 405 else "there is nothing here"
        return refusal(error.status_code, reason)
    if isinstance(error, UserError):
        return refusal(getattr(error, "status", 500), str(error))
    return refusal(500, "the server failed; its log has the reason")


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
    hosts = LOOPBACK if access.host in LOOPBACK else None
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
