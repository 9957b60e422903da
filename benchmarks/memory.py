"""Memory of training on a CPU: the peak of a whole run, by backbone and size of the pictures.

python benchmarks/memory.py --json benchmarks/results/memory-cpu.json

Each run is a process of its own on generated pictures: one epoch in batches of 16, validation and
test, with the decoded pictures in a file. `spml check` and `spml train` estimate with the record,
which `tools/resource_table.py` reads.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from common import environment
from made_up import fake

BACKBONES, SIZES = ("tf_efficientnet_lite0", "resnet50"), (224, 448)
BATCH = 16
PICTURES = 130  # three batches, and a full batch of the test's 66 pictures


def measure(backbone: str, size: int) -> int:
    """Peak memory of this process after a run, in bytes."""
    from spml.train import Settings, fit

    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(
            method="gr",
            backbone=backbone,
            weights="none",
            size=size,
            epochs=1,
            batch_size=BATCH,
            accelerator="cpu",
            cache_dir=Path(folder) / "cache",
        )
        experiment = fake(Path(folder) / "pictures", PICTURES)
        fit(experiment, settings, Path(folder) / "run", quiet=True)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="file of the record")
    parser.add_argument("--one", nargs=2, metavar=("BACKBONE", "SIZE"), help="measure one run")
    asked = parser.parse_args()
    if asked.one:
        print(measure(asked.one[0], int(asked.one[1])))
        return
    rows = []
    for backbone in BACKBONES:
        for size in SIZES:
            command = [sys.executable, __file__, "--one", backbone, str(size)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            rows.append({"backbone": backbone, "size": size, "peak_bytes": int(done.stdout)})
            print(rows[-1], flush=True)
    record = {"environment": environment(), "batch": BATCH, "pictures": PICTURES, "rows": rows}
    if asked.json:
        asked.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
