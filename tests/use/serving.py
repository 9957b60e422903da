"""Serve a model, and send requests to the server."""

import io
import json
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

from PIL import Image

from spml.use.serve.gate import LOOPBACK
from spml.use.serve.serve import application, listening, own_folder
from spml.use.serve.tagger import Limits, Tagger

LIMITS = Limits(bytes=300_000, pixels=1_000_000)


def picture(size=(20, 16), kind="PNG", colour=(200, 30, 30)):
    buffer = io.BytesIO()
    Image.new("RGB", size, colour).save(buffer, kind)
    return buffer.getvalue()


@contextmanager
def served(run, hosts=LOOPBACK, limits=LIMITS):
    """Serve a run and yield the address of its page."""
    import uvicorn

    with listening("127.0.0.1", 0) as at, own_folder():
        server = uvicorn.Server(
            uvicorn.Config(application(Tagger(run, limits), hosts), log_level="error")
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [at]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{at.getsockname()[1]}"
        server.should_exit = True
        thread.join(20)


def ask(address, data=None, **headers):
    """Send a request; return the status and the JSON or text of the answer."""
    request = urllib.request.Request(
        address, data, {name.replace("_", "-"): value for name, value in headers.items()}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            status, body = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        status, body = error.code, error.read()
    try:
        return status, json.loads(body)
    except ValueError:
        return status, body.decode(errors="replace")


def form(data, name="photo.png", field="file"):
    head = (
        f'--x\r\nContent-Disposition: form-data; name="{field}"; filename="{name}"\r\n\r\n'.encode()
    )
    return head + data + b"\r\n--x--\r\n", {"Content_Type": "multipart/form-data; boundary=x"}
