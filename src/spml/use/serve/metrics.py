"""Counts and latencies of requests, in Prometheus's text form."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator

BUCKETS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)  # upper ends, in seconds
OTHER = "other"  # stands for every path that the server does not have


class Metrics:
    """Requests answered so far.

    Args:
        paths: paths counted separately; clients cannot add others.
    """

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
        """Format the counts; `in_flight` is the number of bodies being read or answered."""
        return "\n".join([*self._counts(), *self._latencies(), *_gauge(in_flight), ""])

    def _counts(self) -> Iterator[str]:
        yield "# HELP spml_requests_total Answered requests."
        yield "# TYPE spml_requests_total counter"
        for (path, status), count in sorted(self._answers.items()):
            yield f'spml_requests_total{{path="{path}",status="{status}"}} {count}'

    def _latencies(self) -> Iterator[str]:
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


def _gauge(value: int) -> Iterator[str]:
    yield "# HELP spml_bodies_in_flight Requests whose body is being read or answered."
    yield "# TYPE spml_bodies_in_flight gauge"
    yield f"spml_bodies_in_flight {value}"
