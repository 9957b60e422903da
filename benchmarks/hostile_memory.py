"""Resident memory of `spml serve` and `spml predict` under pictures made to exhaust memory.

python benchmarks/hostile_memory.py [--requests 1000] [--json results.json]

40 clients at once send PNGs of 7000 x 7000 pixels in 140 kB to `serve`, until it has answered the
given number with tags; a client that is refused with 429 or 503 waits a second and tries again.
`predict` reads ten PNGs of 13000 x 13000 pixels. Memory is that of the process, read from Linux.
"""

import argparse
import io
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import torch
from PIL import Image

from spml.model import Classifier, ModelInfo, save_model

CLIENTS, SIDE, LARGE_SIDE, LARGE_COUNT = 40, 7000, 13000, 10
SPML = [sys.executable, "-m", "spml.cli"]


def png(side: int) -> bytes:
    """A PNG of one colour, whose file is small and whose pixels are many."""
    buffer = io.BytesIO()
    Image.new("RGB", (side, side), (200, 30, 30)).save(buffer, "PNG")
    return buffer.getvalue()


def write_model(folder: Path) -> Path:
    """Write a small model of pictures with untrained weights."""
    how = {"kind": "pictures", "size": 448, "upright": True, "features": None}
    model = Classifier.build("tiny", 3)
    save_model(folder, model, ModelInfo(list("abc"), "tiny", how, thresholds=[0.5] * 3))
    return folder


def resident(process: int) -> float:
    """Megabytes of a process in memory."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


class Watch(threading.Thread):
    """Follows the memory of a process until it ends or `stop` is set."""

    def __init__(self, process: int) -> None:
        super().__init__(daemon=True)
        self.process, self.peak, self.stop = process, 0.0, threading.Event()
        self.start()

    def run(self) -> None:
        """Keep the highest value."""
        while not self.stop.wait(0.01):
            try:
                self.peak = max(self.peak, resident(self.process))
            except (OSError, IndexError):
                return


def post(address: str, data: bytes) -> int:
    """Send a picture; return the status of the answer, 0 if the connection broke."""
    try:
        with urllib.request.urlopen(urllib.request.Request(address, data), timeout=600) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


@contextmanager
def serving(model: Path) -> Iterator[tuple[str, int]]:
    """Serve a model; give the address for pictures and the process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [*SPML, "serve", str(model), "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        server.stdout.readline()
        try:
            yield f"http://127.0.0.1:{port}/api/predict", server.pid
        finally:
            server.terminate()


def of_serve(model: Path, requests: int, minutes: float) -> dict[str, object]:
    """Memory of the server before, at most and after the requests, and counts of its answers."""
    with serving(model) as (address, process):
        post(address, png(64))
        before, watch, picture = resident(process), Watch(process), png(SIDE)
        answers: Counter[int] = Counter()
        end = time.monotonic() + 60 * minutes

        def ask() -> None:
            while answers[200] < requests and time.monotonic() < end:
                status = post(address, picture)
                answers[status] += 1
                if status != 200:
                    time.sleep(1)  # as Retry-After says

        with ThreadPoolExecutor(CLIENTS) as clients:
            for _ in range(CLIENTS):
                clients.submit(ask)
        time.sleep(2)
        watch.stop.set()
        after = resident(process)
    named = {str(status): count for status, count in sorted(answers.items())}
    return {"before_mb": before, "peak_mb": watch.peak, "after_mb": after, "answers": named}


def of_predict(model: Path, folder: Path) -> dict[str, object]:
    """Highest memory of a prediction of large pictures."""
    (folder / "large").mkdir()
    first = folder / "large" / "0.png"
    first.write_bytes(png(LARGE_SIDE))
    for number in range(1, LARGE_COUNT):
        shutil.copyfile(first, folder / "large" / f"{number}.png")
    command = [*SPML, "predict", str(model), str(folder / "large"), "--out", str(folder / "p.csv")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as predicting:
        watch = Watch(predicting.pid)
        predicting.wait()
    return {"peak_mb": watch.peak, "code": predicting.returncode}


def main() -> None:
    """Measure, print and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=30, help="end sooner than the requests")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = write_model(Path(folder) / "model")
        record = {
            "requests": options.requests,
            "clients": CLIENTS,
            "serve": of_serve(model, options.requests, options.minutes),
            "predict": of_predict(model, Path(folder)),
            "environment": {"python": platform.python_version(), "torch": torch.__version__},
        }
    print(json.dumps(record, indent=2))
    if options.json:
        options.json.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
