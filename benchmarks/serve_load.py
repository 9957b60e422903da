"""200 clients at once against `spml serve`: counts of answers, latency and resident memory.

python benchmarks/serve_load.py [--clients 200] [--minutes 5] [--json results.json]

Every client sends a picture, waits for the answer and sends the next; after a refusal it waits half
a second. Refusals are answers with 429 or 503; status 0 is a connection that broke.
"""

import argparse
import io
import json
import statistics
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from hostile_memory import Watch, post, resident, serving, write_model
from PIL import Image


def measure(model: Path, clients: int, minutes: float) -> dict[str, object]:
    """Serve the model to the clients."""
    buffer = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (300, 400, 3), np.uint8)
    Image.fromarray(pixels).save(buffer, "JPEG")
    picture = buffer.getvalue()
    with serving(model) as (address, process):
        post(address, picture)
        before, watch = resident(process), Watch(process)
        answers: Counter[int] = Counter()
        seconds: list[float] = []
        end = time.monotonic() + 60 * minutes

        def ask() -> None:
            while (began := time.monotonic()) < end:
                status = post(address, picture)
                answers[status] += 1
                if status == 200:
                    seconds.append(time.monotonic() - began)
                else:
                    time.sleep(0.5)

        with ThreadPoolExecutor(clients) as pool:
            for _ in range(clients):
                pool.submit(ask)
        time.sleep(2)
        watch.stop.set()
        after = resident(process)
    return {
        "clients": clients,
        "minutes": minutes,
        "answers": {str(status): count for status, count in sorted(answers.items())},
        "median_seconds": statistics.median(seconds),
        "before_mb": before,
        "peak_mb": watch.peak,
        "after_mb": after,
    }


def main() -> None:
    """Measure, print and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        record = measure(write_model(Path(folder) / "model"), options.clients, options.minutes)
    print(json.dumps(record, indent=2))
    if options.json:
        options.json.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
