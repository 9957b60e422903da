"""Gate before the application: who may ask, how many at once, headers and counts of answers."""

from __future__ import annotations

import base64
import binascii
import hmac
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from spml.use.serve.tagger import RefusedError

HEALTH = "/health"  # the one path without a token
PLACES = 16  # bodies in flight: one is answered, the others wait
PLACES_OF_CLIENT = 8
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
OF_REFUSALS = {
    401: {"WWW-Authenticate": 'Basic realm="spml", charset="UTF-8"'},
    429: {"Retry-After": "1"},
    503: {"Retry-After": "1"},
}
BUCKETS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)  # upper ends, in seconds
OTHER = "other"  # stands for every path that the server does not have


def refusal(status: int, reason: str) -> JSONResponse:
    """Answer with an error in one line."""
    return JSONResponse({"error": reason}, status, OF_REFUSALS.get(status))


class Gate:
    """ASGI application that passes on the requests of those who may ask.

    On a loopback address, the Host header must name this machine, so that no other web page can
    reach the server under a name of its own (DNS rebinding). A POST from a page of another origin
    is refused, because a browser would send it with the user's password.

    The token comes as a bearer token or as the password of HTTP's basic authentication. None as
    `hosts` accepts any name, None as token admits everyone.
    """

    def __init__(
        self,
        application: ASGIApp,
        metrics: Metrics,
        hosts: tuple[str, ...] | None,
        token: str | None,
    ) -> None:
        self.application, self.metrics, self.hosts = application, metrics, hosts
        self.token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or pass it to the application."""
        start, status = time.perf_counter(), 500

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            application = self._refusal(scope) or self.application
            await application(scope, receive, answer)
        finally:
            self.metrics.record(scope["path"], status, time.perf_counter() - start)

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self.hosts is not None and _name(host) not in self.hosts:
            return refusal(403, "this page is for this machine alone; see spml serve --host")
        if scope["path"] != HEALTH and not self._authorised(headers.get("authorization", "")):
            return refusal(401, "this server asks for a token; send it as a bearer token")
        origin = headers.get("origin", f"//{host}")
        if scope["method"] == "POST" and origin.partition("//")[2].lower() != host.lower():
            return refusal(403, "pages of other origins cannot use this server")
        return None

    def _authorised(self, header: str) -> bool:
        if self.token is None:
            return True
        kind, _, text = header.partition(" ")
        value = text.encode("latin-1")
        if kind.lower() == "basic":
            try:
                value = base64.b64decode(value, validate=True).partition(b":")[2]
            except binascii.Error:
                return False
        elif kind.lower() != "bearer":
            return False
        return hmac.compare_digest(value, self.token)


def _name(host: str) -> str:
    """The name in a Host header, without its port."""
    text = host.strip().lower()
    if text.startswith("["):
        return text.partition("]")[0] + "]"
    return text.rpartition(":")[0] if text.count(":") == 1 else text


class Places:
    """Bounds the bodies in flight, and with them the memory; a client has a share of the places."""

    def __init__(self) -> None:
        self._held: Counter[str] = Counter()

    @property
    def in_flight(self) -> int:
        """Number of bodies in flight."""
        return self._held.total()

    @contextmanager
    def place(self, client: str) -> Iterator[None]:
        """Hold a place of a client's address; raise RefusedError if there is none."""
        if self._held[client] >= PLACES_OF_CLIENT:
            raise RefusedError(429, "too many requests at once from your address; try again")
        if self.in_flight >= PLACES:
            raise RefusedError(503, "the server is busy; try again")
        self._held[client] += 1
        try:
            yield
        finally:
            self._held[client] -= 1
            self._held += Counter()  # forgets addresses without a place


class Metrics:
    """Counts and latencies of the requests answered so far, by path; clients cannot add paths."""

    def __init__(self, paths: frozenset[str]) -> None:
        self._paths = paths
        self._answers: Counter[tuple[str, int]] = Counter()
        self._slots: defaultdict[str, list[int]] = defaultdict(lambda: [0] * (len(BUCKETS) + 1))
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def record(self, path: str, status: int, seconds: float) -> None:
        """Count one answer."""
        known = path if path in self._paths else OTHER
        self._answers[known, status] += 1
        self._slots[known][bisect_left(BUCKETS, seconds)] += 1
        self._seconds[known] += seconds

    def text(self, in_flight: int) -> str:
        """Format the counts for Prometheus; `in_flight` bodies are being read or answered."""
        return "\n".join([*self._lines(in_flight), ""])

    def _lines(self, in_flight: int) -> Iterator[str]:
        yield "# HELP spml_requests_total Answered requests."
        yield "# TYPE spml_requests_total counter"
        for (path, status), count in sorted(self._answers.items()):
            yield f'spml_requests_total{{path="{path}",status="{status}"}} {count}'
        name = "spml_request_seconds"
        yield f"# HELP {name} Seconds from the request's head to the end of its answer."
        yield f"# TYPE {name} histogram"
        for path, slots in sorted(self._slots.items()):
            below = 0
            for end, count in zip((*BUCKETS, "+Inf"), slots, strict=True):
                below += count
                yield f'{name}_bucket{{path="{path}",le="{end}"}} {below}'
            yield f'{name}_sum{{path="{path}"}} {self._seconds[path]:.6f}'
            yield f'{name}_count{{path="{path}"}} {below}'
        yield "# HELP spml_bodies_in_flight Requests whose body is being read or answered."
        yield "# TYPE spml_bodies_in_flight gauge"
        yield f"spml_bodies_in_flight {in_flight}"
