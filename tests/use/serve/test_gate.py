"""Who may ask, how much and how slowly; and what else every answer says."""

import base64
import http.client
import shutil
import socket
import subprocess
import time
from contextlib import ExitStack, suppress

import pytest

from spml.cli import main
from spml.use.serve.serve import listening
from spml.use.serve.tagger import Limits
from tests.use.serve.serving import answer, ask, form, picture, served

SECRETS = (
    *("/file=/etc/passwd", "/../../../etc/passwd", "/static/../../../../etc/passwd", "/api/"),
    *("/api/..%2f..%2f..%2fetc%2fpasswd", "/%2e%2e/%2e%2e/etc/passwd", "/%5c..%5cetc"),
    *("/docs", "/openapi.json", "/api/predict/", "//etc/passwd", "/serve.html"),
)


@pytest.mark.parametrize("path", SECRETS)
def test_no_file_of_the_host_and_no_other_path_is_served(site, small_model, path):
    for way in (path, path.replace("/etc/passwd", str(small_model / "model.json"))):
        connection = http.client.HTTPConnection(site.removeprefix("http://"), timeout=60)
        connection.putrequest("GET", way, skip_host=False)  # raw path: urllib would normalise it
        connection.endheaders()
        got = connection.getresponse()
        assert (got.status, got.read()) == (404, b'{"error":"there is nothing here"}'), way
        connection.close()


def test_each_path_has_its_methods(site):
    for path in ("/", "/api/model", "/health", "/metrics"):
        assert ask(f"{site}{path}")[0] == 200
        assert ask(f"{site}{path}", b"x") == (405, {"error": "this cannot be done here"})
    for path in ("/api/predict", "/api/map"):
        assert ask(f"{site}{path}")[0] == 405


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:7860", 200), ("LOCALHOST", 200), ("127.0.0.1:1", 200), ("[::1]:7860", 200),
        ("::1", 200), ("evil.example:7860", 403), ("localhost.evil.example", 403),
    ],
)  # fmt: skip
def test_on_loopback_the_host_header_must_name_this_machine(site, host, status):
    assert ask(f"{site}/api/model", Host=host)[0] == status
    assert ask(f"{site}/health", Host=host)[0] == status


def test_a_server_for_others_accepts_any_host_name(small_model):
    with served(small_model, host="0.0.0.0") as site:
        assert ask(f"{site}/api/model", Host="my-machine.local")[0] == 200


@pytest.mark.parametrize(
    ("origin", "status"),
    [(None, 200), ("", 200), ("evil.example", 403), ("evil.localhost", 403), ("null", 403)],
)
def test_pages_of_other_origins_cannot_post(site, origin, status):
    own = site.removeprefix("http://")
    sent = {} if origin is None else {"Origin": f"http://{origin or own}"}
    if origin == "null":
        sent = {"Origin": "null"}
    assert ask(f"{site}/api/predict", picture(), **sent)[0] == status
    assert ask(f"{site}/api/model", **sent)[0] == 200  # a browser hides the answer itself


def test_a_token_is_asked_for_everywhere_but_health(small_model):
    def basic(text):
        return "Basic " + base64.b64encode(text.encode()).decode()

    with served(small_model, token="gehe:im é") as site:
        right = ("Bearer gehe:im é".encode().decode("latin-1"), basic("anyone:gehe:im é"))
        wrong = ("Bearer gehe", "Bearer", "Basic gehe:im", "Basic ****", "gehe:im é", basic(":x"))
        for path in ("/", "/api/model", "/metrics", "/nothing"):
            status, body, headers = answer(f"{site}{path}")
            assert status == 401 and b"token" in body
            assert headers["WWW-Authenticate"].startswith("Basic")
            for header in wrong:
                assert ask(f"{site}{path}", Authorization=header)[0] == 401
            for header in right:
                expected = 404 if path == "/nothing" else 200
                assert ask(f"{site}{path}", Authorization=header)[0] == expected
        assert ask(f"{site}/api/predict", picture())[0] == 401
        assert ask(f"{site}/api/predict", picture(), Authorization=right[0])[0] == 200
        assert ask(f"{site}/health") == (200, {"status": "ok"})


def test_every_answer_has_the_headers_of_security(site):
    for path in ("/", "/api/model", "/nothing"):
        headers = answer(f"{site}{path}")[2]
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cache-Control"] == "no-store" and headers["Server"] is None
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy


def test_metrics_count_answers_and_their_time(small_model):
    with served(small_model) as site:
        for _ in range(2):
            ask(f"{site}/api/predict", picture())
        ask(f"{site}/api/predict", b"text")
        for path in ("/a", "/b"):
            ask(f"{site}{path}")
        text = ask(f"{site}/metrics")[1]
    assert 'spml_requests_total{path="/api/predict",status="200"} 2' in text
    assert 'spml_requests_total{path="/api/predict",status="415"} 1' in text
    assert 'spml_requests_total{path="other",status="404"} 2' in text and "/a" not in text.split()
    assert 'spml_request_seconds_bucket{path="/api/predict",le="+Inf"} 3' in text
    assert 'spml_request_seconds_count{path="/api/predict"} 3' in text
    assert text.endswith("spml_bodies_in_flight 0\n")
    seconds = float(text.partition('seconds_sum{path="/api/predict"} ')[2].splitlines()[0])
    assert 0 < seconds < 60


def test_a_body_without_a_length_is_cut_off_at_the_limit(site):
    head = b"POST /api/predict HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    with connect(site) as endless:
        endless.sendall(head + 8 * (b"c350\r\n" + bytes(50_000) + b"\r\n"))
        assert b" 413 " in endless.recv(1000).splitlines()[0]


def test_a_form_may_hold_the_largest_picture(small_model):
    with served(small_model, limits=Limits(bytes=len(picture()))) as site:
        body, headers = form(picture())
        assert ask(f"{site}/api/predict", body, **headers)[0] == 200


def connect(site):
    return socket.create_connection(site.removeprefix("http://").split(":"), timeout=20)


HEAD = b"POST /api/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"


def test_slow_bodies_are_given_up(site, monkeypatch):
    monkeypatch.setattr("spml.use.serve.app.BODY_SECONDS", 0.1)
    with connect(site) as slow:
        slow.sendall(HEAD + b"1")
        assert b" 408 " in slow.recv(1000).splitlines()[0]


@pytest.mark.parametrize("sent", [b"", b"GET / HTT", b"GET /health HTTP/1.1\r\nHost: ::1\r\n\r\nG"])
def test_connections_without_a_request_are_closed(site, monkeypatch, sent):
    monkeypatch.setattr("spml.use.serve.app.IDLE_SECONDS", 0.3)
    with connect(site) as slow:
        slow.sendall(sent)
        with suppress(ConnectionResetError):
            while slow.recv(1 << 16):  # until the server closes the connection
                pass


def test_a_request_may_take_longer_than_a_connection_may_idle(site, monkeypatch):
    monkeypatch.setattr("spml.use.serve.app.IDLE_SECONDS", 0.3)
    with connect(site) as slow:
        for byte in (HEAD, *[b"1"] * 9):
            slow.sendall(byte)
            time.sleep(0.05)
        assert b" 415 " in slow.recv(1000).splitlines()[0]


def test_clients_that_do_not_read_are_disconnected(site, monkeypatch):
    monkeypatch.setattr("spml.use.serve.app.READ_SECONDS", 0.3)
    with connect(site) as slow, pytest.raises((ConnectionResetError, BrokenPipeError)):
        for _ in range(1000):
            slow.sendall(1000 * b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")


@pytest.mark.parametrize(("name", "status"), [("PLACES", 503), ("PLACES_OF_CLIENT", 429)])
def test_bodies_in_flight_are_bounded(site, monkeypatch, name, status):
    monkeypatch.setattr(f"spml.use.serve.gate.{name}", 2)
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(connect(site)).sendall(HEAD)
        while not ask(f"{site}/metrics")[1].endswith("in_flight 2\n"):
            time.sleep(0.01)
        code, _, headers = answer(f"{site}/api/predict", picture())
        assert (code, headers["Retry-After"]) == (status, "1")
        assert ask(f"{site}/api/model")[0] == 200
    end = time.monotonic() + 20
    while not ask(f"{site}/metrics")[1].endswith("in_flight 0\n"):  # the clients have left
        assert time.monotonic() < end
        time.sleep(0.01)
    assert ask(f"{site}/api/predict", picture())[0] == 200


def test_connections_are_bounded(small_model, monkeypatch):
    monkeypatch.setattr("spml.use.serve.app.CONNECTIONS", 3)
    with served(small_model) as site, ExitStack() as stack:
        assert ask(f"{site}/health")[0] == 200
        for _ in range(2):
            stack.enter_context(connect(site)).sendall(b"G")
        time.sleep(0.1)
        assert answer(f"{site}/health")[0] == 503


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl on this machine")
def test_a_certificate_makes_it_https(small_model, tmp_path, capsys):
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command, *files], check=True, capture_output=True)
    with served(small_model, certificate=certificate, key=key) as site:
        assert ask(f"{site}/api/predict", picture())[0] == 200
    both = tmp_path / "both.pem"
    both.write_bytes(key.read_bytes() + certificate.read_bytes())
    with served(small_model, certificate=both) as site:
        assert ask(f"{site}/health")[0] == 200
    for wrong in (key, tmp_path / "none.pem", small_model):
        options = ["--port", "0", "--certificate", str(wrong)]
        assert main(["serve", str(small_model), *options]) == 2
        assert f"--certificate {wrong}: cannot be read as PEM" in capsys.readouterr().err


def test_the_command_reports_errors_in_one_line(small_model, tmp_path, capsys, monkeypatch):
    def refused(message, *options, run=small_model):
        assert main(["serve", str(run), *options]) == 2
        assert message in capsys.readouterr().err.splitlines()[-1]

    refused("no model here", run=tmp_path / "nothing")
    refused("--max-pixels must be above 0", "--max-pixels", "0")
    refused("pictures above 178,956,970 pixels are not read", "--max-pixels", "3e8")
    refused("must be from 0 to 65535", "--port", "99999")  # the system would use 34463
    refused("no such address", "--host", "127.0.0.1 x")
    refused("--key needs --certificate", "--key", "key.pem")
    refused("is empty", "--token", "")
    with listening("127.0.0.1", 0) as listener:
        listener.listen()
        refused("cannot listen there", "--port", str(listener.getsockname()[1]))
    monkeypatch.setenv("SPML_TOKEN", "")
    refused("SPML_TOKEN is empty")
    monkeypatch.delenv("SPML_TOKEN")
    monkeypatch.setattr("spml.use.serve.serve.NEEDED", ("no_such_package",))
    refused("pip install -e '.[serve]'")


@pytest.mark.parametrize(
    ("options", "variable", "token"),
    [([], None, None), ([], "a", "a"), (["--token", "b"], "a", "b")],
    ids=["none", "environment", "option"],
)
def test_the_token_comes_from_the_option_or_the_environment(
    small_model, monkeypatch, capsys, options, variable, token
):
    calls = []
    monkeypatch.setattr("spml.use.serve.serve.serve", lambda *values: calls.append(values))
    if variable is not None:
        monkeypatch.setenv("SPML_TOKEN", variable)
    assert main(["serve", str(small_model), "--host", "0.0.0.0", *options]) == 0
    assert calls[0][1].token == token
    assert ("everyone who reaches this address" in capsys.readouterr().err) == (token is None)
