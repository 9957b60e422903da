"""Serve a model, and send requests to the server."""

import io
import json
import ssl
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest
from PIL import Image

pytest.importorskip("starlette")

from spml.use.serve.app import server
from spml.use.serve.serve import Access, listening
from spml.use.serve.tagger import Limits, Tagger

LIMITS = Limits(bytes=300_000, pixels=1_000_000)


def picture(size=(20, 16), kind="PNG", colour=(200, 30, 30)):
    buffer = io.BytesIO()
    Image.new("RGB", size, colour).save(buffer, kind)
    return buffer.getvalue()


@contextmanager
def served(run, limits=LIMITS, **access):
    """Serve a run on a loopback address and yield the address of its page."""
    with listening("127.0.0.1", 0) as at:
        running = server(Tagger(run, limits), Access(**access))
        thread = threading.Thread(target=running.run, kwargs={"sockets": [at]}, daemon=True)
        thread.start()
        while not running.started:
            time.sleep(0.01)
        kind = "https" if "certificate" in access else "http"
        yield f"{kind}://127.0.0.1:{at.getsockname()[1]}"
        running.should_exit = True
        thread.join(20)


def ask(address, data=None, **headers):
    """Send a request; return the status and the JSON, text or bytes of the answer."""
    status, body, _ = answer(address, data, **headers)
    try:
        return status, json.loads(body)
    except UnicodeDecodeError:
        return status, body
    except ValueError:
        return status, body.decode()


def answer(address, data=None, **headers):
    """Send a request; return the status, body and headers of the answer."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(address, data, named)
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    try:
        with urllib.request.urlopen(request, timeout=60, context=trusting) as got:
            return got.status, got.read(), got.headers
    except urllib.error.HTTPError as error:
        return error.code, error.read(), error.headers


def form(data, name="photo.png", field="file"):
    head = (
        f'--x\r\nContent-Disposition: form-data; name="{field}"; filename="{name}"\r\n\r\n'.encode()
    )
    return head + data + b"\r\n--x--\r\n", {"Content_Type": "multipart/form-data; boundary=x"}
