"""A local web page and HTTP endpoint that tag pictures.

Pictures come as data within requests, and no file of the host is served.
"""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from spml.errors import UserError
from spml.use.serve.gate import LOOPBACK, Application, Gate
from spml.use.serve.tagger import Limits, RefusedError, Tagger

NETWORKLESS = {
    "GRADIO_ANALYTICS_ENABLED": "False",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}


def serve(
    run: Path, *, host: str = "127.0.0.1", port: int = 7860, limits: Limits | None = None
) -> None:
    """Serve the page until interrupted.

    Args:
        run: a run folder or its `best`.
        host: address to listen at; a loopback address is for this machine alone.
        port: port to listen at; 0 for any free one.
        limits: limits of a client's picture.
    """
    check_gradio()
    import uvicorn

    tagger = Tagger(run, limits or Limits())
    with listening(host, port) as at, own_folder():
        app = application(tagger, LOOPBACK if host in LOOPBACK else None)
        print(
            f"{tagger.name}: http://{shown(host)}:{at.getsockname()[1]}  (Ctrl-C ends it)",
            flush=True,
        )
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[at])


def check_gradio() -> None:
    """Raise UserError if gradio is not installed."""
    if find_spec("gradio") is None:
        raise UserError(
            "spml serve needs a package that is not installed: pip install -e '.[serve]'"
        )


def application(tagger: Tagger, hosts: tuple[str, ...] | None) -> Application:
    """The page at /, the endpoint under /api/, and the gate before them."""
    os.environ.update(NETWORKLESS)  # before gradio is loaded
    import gradio
    from fastapi import FastAPI

    from spml.use.serve.page import CSS, page, theme

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.add_api_route("/api/model", tagger.about, methods=["GET", "HEAD"])
    app.add_route("/api/predict", _endpoint(tagger), methods=["POST"])
    mounted: Any = gradio.mount_gradio_app(
        app,
        page(tagger),
        "/",
        theme=theme(),
        css=CSS,
        footer_links=[],
        ssr_mode=False,
        show_error=False,
        pwa=False,
    )
    return Gate(mounted, tagger.limits.bytes, hosts)


def _endpoint(tagger: Tagger) -> Any:
    """POST: a picture's bytes as the body, or the first file of a form."""
    from starlette.concurrency import run_in_threadpool
    from starlette.datastructures import UploadFile
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import JSONResponse

    async def picture(request: Request) -> tuple[bytes, str]:
        if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
            return await request.body(), "picture"
        try:
            async with request.form(max_files=1, max_fields=16) as form:
                for value in form.values():
                    if isinstance(value, UploadFile):
                        return await value.read(), value.filename or "picture"
        except HTTPException as error:
            raise RefusedError(400, f"the form cannot be read ({error.detail})") from None
        raise RefusedError(400, "the form holds no file; send the picture as a file")

    async def predict(request: Request) -> JSONResponse:
        try:
            data, name = await picture(request)
            seen = await run_in_threadpool(tagger.see, data, name)
        except RefusedError as refused:
            return JSONResponse({"error": str(refused)}, refused.status)
        except UserError as error:
            return JSONResponse({"error": str(error)}, 500)
        return JSONResponse(tagger.answer(seen))

    return predict


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
    except (OSError, OverflowError, UnicodeError) as error:
        raise UserError(f"--host {host} --port {port}: no such address ({error})") from None
    with at:
        try:
            at.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            at.bind(address)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UserError(
                f"--host {host} --port {port}: cannot listen there ({reason}); give another"
            ) from None
        yield at


@contextmanager
def own_folder() -> Iterator[None]:
    """Provide a temporary folder for gradio's files."""
    with tempfile.TemporaryDirectory(prefix="spml-serve-") as folder:
        os.environ["GRADIO_TEMP_DIR"] = folder
        try:
            yield
        finally:
            os.environ.pop("GRADIO_TEMP_DIR", None)


def shown(host: str) -> str:
    """Format an address for a link."""
    return f"[{host}]" if ":" in host else host
