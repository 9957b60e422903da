"""Requests that the gate accepts and refuses, without a web server."""

import asyncio
import json

import pytest

from spml.use.serve.gate import EXTRA, JOIN, LOOPBACK, Gate

PREDICT = "/api/predict"


def ask(path="/", method="GET", *, chunks=(b"",), headers=(), hosts=None, limit=9, kind="http"):
    """Return the status, 200 if the gate did not answer, and the application's messages."""
    sent, received = [], []
    waiting = [
        {"type": "http.request", "body": c, "more_body": i < len(chunks) - 1}
        for i, c in enumerate(chunks)
    ]

    async def receive():
        return waiting.pop(0) if waiting else {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    async def application(scope, receive, send):
        received.extend([await receive(), await receive()] if kind == "http" else [scope["type"]])

    scope = {"type": kind, "path": path, "method": method, "headers": list(headers)}
    asyncio.run(Gate(application, limit, hosts)(scope, receive, send))
    if sent:
        assert json.loads(sent[1]["body"])["error"] and not received
        assert dict(sent[0]["headers"])[b"content-length"] == str(len(sent[1]["body"])).encode()
    return (sent[0]["status"] if sent else 200), received


@pytest.mark.parametrize(
    "path", ["/", "/api/model", "/assets/x.js", "/theme.css", "/gradio_api/heartbeat/7"]
)
def test_requests_of_the_page_are_passed_on(path):
    for method in ("GET", "HEAD"):
        assert ask(path, method)[0] == 200
    assert ask(path, "POST")[0] == 405


@pytest.mark.parametrize(
    "path",
    [
        "/gradio_api/upload",
        "/gradio_api/file=/etc/passwd",
        "/assets/../x",
        "/static/a\\b",
        "/api",
        "/assets",
    ],
)
def test_other_paths_are_not_found(path):
    assert ask(path)[0] == 404


def test_the_application_receives_the_whole_picture():
    status, body = ask(PREDICT, "POST", chunks=(b"ab", b"", b"cd"))
    assert status == 200
    assert body == [
        {"type": "http.request", "body": b"abcd", "more_body": False},
        {"type": "http.disconnect"},
    ]
    assert ask(PREDICT, "GET")[0] == ask(JOIN, "GET")[0] == 405


def test_a_request_may_be_as_long_as_the_limit_and_no_longer():
    most = 9 + EXTRA
    assert ask(PREDICT, "POST", chunks=(bytes(most),))[0] == 200
    assert ask(PREDICT, "POST", chunks=(bytes(most), b"x"))[0] == 413
    for reported, status in ((str(most), 200), (str(most + 1), 413), ("-1", 413), ("x", 413)):
        assert ask(PREDICT, "POST", headers=[(b"Content-Length", reported.encode())])[0] == status
    start, end = b'{"data": ["', b'"]}'
    for more, status in ((0, 200), (1, 413)):  # base64 needs a third more
        assert (
            ask(JOIN, "POST", chunks=(start + b"x" * (12 + EXTRA - 14 + more) + end,))[0] == status
        )


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"data": ["text", 1, 0.5, null]}', 200),
        (b'{"data": [{"path": "/etc/passwd"}]}', 400),
        (b'{"data": [["/etc/passwd"]]}', 400),
        (b'{"data": "text"}', 400),
        (b'{"other": []}', 400),
        (b"[]", 400),
        (b"{", 400),
        (b'{"data": ' + b"[" * 50_000, 400),
    ],
)
def test_events_may_hold_only_text_and_numbers(body, status):
    assert ask(JOIN, "POST", chunks=(body,))[0] == status


@pytest.mark.parametrize(
    ("host", "status"),
    [
        (b"localhost:7860", 200), (b"LOCALHOST", 200), (b"127.0.0.1:1", 200), (b"[::1]:7860", 200),
        (b"::1", 200), (b"evil.example:7860", 403), (b"localhost.evil.example", 403), (b"", 403),
    ],
)  # fmt: skip
def test_on_loopback_the_host_header_must_name_this_machine(host, status):
    assert ask(headers=[(b"Host", host)], hosts=LOOPBACK)[0] == status
    assert ask(headers=[(b"Host", host)])[0] == 200


def test_web_sockets_are_closed_and_lifespan_is_passed_on():
    assert ask(kind="websocket") == (200, []) and ask(kind="lifespan") == (200, ["lifespan"])
