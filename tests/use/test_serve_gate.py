"""What the gate before the web page lets through, without a web server."""

import asyncio
import json

import pytest

from spml.use.serve.gate import JOIN, LOOPBACK, ROOM, Gate

PREDICT = "/api/predict"


def ask(path="/", method="GET", *, chunks=(b"",), headers=(), hosts=None, limit=9, kind="http"):
    """The status and what the application was given; 200 and None where the gate answered nothing."""
    sent, given = [], []
    waiting = [
        {"type": "http.request", "body": c, "more_body": i < len(chunks) - 1}
        for i, c in enumerate(chunks)
    ]

    async def receive():
        return waiting.pop(0) if waiting else {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    async def application(scope, receive, send):
        given.extend([await receive(), await receive()] if kind == "http" else [scope["type"]])

    scope = {"type": kind, "path": path, "method": method, "headers": list(headers)}
    asyncio.run(Gate(application, limit, hosts)(scope, receive, send))
    if sent:
        assert json.loads(sent[1]["body"])["error"] and not given
        assert dict(sent[0]["headers"])[b"content-length"] == str(len(sent[1]["body"])).encode()
    return (sent[0]["status"] if sent else 200), given


@pytest.mark.parametrize(
    "path", ["/", "/api/model", "/assets/x.js", "/theme.css", "/gradio_api/heartbeat/7"]
)
def test_what_the_page_needs_is_handed_on(path):
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
def test_all_else_is_not_there(path):
    assert ask(path)[0] == 404


def test_a_picture_comes_whole_to_the_application():
    status, given = ask(PREDICT, "POST", chunks=(b"ab", b"", b"cd"))
    assert status == 200
    assert given == [
        {"type": "http.request", "body": b"abcd", "more_body": False},
        {"type": "http.disconnect"},
    ]
    assert ask(PREDICT, "GET")[0] == ask(JOIN, "GET")[0] == 405


def test_a_request_may_be_as_long_as_the_limit_and_no_longer():
    most = 9 + ROOM
    assert ask(PREDICT, "POST", chunks=(bytes(most),))[0] == 200
    assert ask(PREDICT, "POST", chunks=(bytes(most), b"x"))[0] == 413
    for reported, status in ((str(most), 200), (str(most + 1), 413), ("-1", 413), ("x", 413)):
        assert ask(PREDICT, "POST", headers=[(b"Content-Length", reported.encode())])[0] == status
    start, end = b'{"data": ["', b'"]}'
    for more, status in ((0, 200), (1, 413)):  # as text a picture takes a third more
        assert (
            ask(JOIN, "POST", chunks=(start + b"x" * (12 + ROOM - 14 + more) + end,))[0] == status
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
def test_events_of_the_page_carry_text_and_numbers_alone(body, status):
    assert ask(JOIN, "POST", chunks=(body,))[0] == status


@pytest.mark.parametrize(
    ("host", "status"),
    [
        (b"localhost:7860", 200), (b"LOCALHOST", 200), (b"127.0.0.1:1", 200), (b"[::1]:7860", 200), (b"::1", 200),
        (b"evil.example:7860", 403), (b"localhost.evil.example", 403), (b"", 403),
    ],
)  # fmt: skip
def test_on_a_loopback_address_the_name_asked_for_is_one_of_this_machine(host, status):
    assert ask(headers=[(b"Host", host)], hosts=LOOPBACK)[0] == status
    assert ask(headers=[(b"Host", host)])[0] == 200


def test_web_sockets_are_closed_and_the_start_is_handed_on():
    assert ask(kind="websocket") == (200, []) and ask(kind="lifespan") == (200, ["lifespan"])
