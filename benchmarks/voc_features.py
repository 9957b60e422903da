"""Methods on VOC2012 with a frozen backbone: a linear classifier on pooled ImageNet features.

python benchmarks/voc_features.py --root FOLDER [--only crisp --only gce]   # FOLDER holds VOCdevkit

Features are extracted once, at 160 px, and stored in --work; finished runs are kept. Training takes
eight epochs. The protocol is that of the benchmark: the official train list with the reference draw
and a fifth of it as validation rows, and the official validation list as test.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "voc2012-features.json"
METHODS = ("an", "crisp", "gce", "sce", "taylor_ce", "gr", "em", "full")
BACKBONE, SIZE, EPOCHS = "tf_efficientnet_lite0", 160, 8


def extract(root: Path, file: Path) -> None:
    """Pooled features of all pictures of both lists, with complete labels, in the lists' order."""
    import numpy as np
    import torch

    from spml.data import read
    from spml.data.images.loader import Feed
    from spml.model import Classifier

    tables = read("voc", root)
    model = Classifier.build(BACKBONE, 20, "pretrained").eval()
    parts = []
    for table in tables.values():
        for x, rows in Feed(table, SIZE).in_order(64):
            with torch.inference_mode():
                parts.append(model.pool(model.features(x)).numpy())
            print(table.items[int(rows[-1])], flush=True)
    np.savez(
        file,
        x=np.concatenate(parts).astype(np.float32),
        labels=np.concatenate([table.labels for table in tables.values()]),
        classes=np.array(tables["train"].classes),
        split=np.repeat(list(tables), [len(table) for table in tables.values()]),
    )


def run(name: str, file: Path, folder: Path) -> dict[str, Any]:
    from spml.data import load
    from spml.train import Settings, fit

    experiment = load(file, labels="complete")
    settings = Settings(method=name, epochs=EPOCHS, accelerator="cpu")
    result = fit(experiment, settings, folder / name, quiet=True, resume=True)
    config = json.loads((folder / name / "config.json").read_text())
    lines = [
        json.loads(line) for line in (folder / name / "history.jsonl").read_text().splitlines()
    ]
    keys = (
        "method",
        "options",
        "seed",
        "epochs",
        "best_epoch",
        "val_map",
        "test_map",
        "observed_sha256",
    )
    return {
        **{key: result[key] for key in keys},
        "backbone": f"{BACKBONE}, frozen, {SIZE} px",
        **{key: config[key] for key in ("lr", "head_lr", "batch_size", "versions")},
        "history": lines,
    }


def table(results: list[dict[str, Any]]) -> str:
    """Markdown: validation mAP after each epoch, and test mAP of the chosen epoch."""
    lines = [
        "| method | " + " | ".join(f"epoch {e}" for e in range(1, EPOCHS + 1)) + " | test mAP |"
    ]
    lines.append("|---" * (EPOCHS + 2) + "|")
    for record in results:
        maps = [f"{line['val_map']:.2f}" for line in record["history"][1:]]
        lines.append(
            f"| {record['method']} | " + " | ".join(maps) + f" | {record['test_map']:.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    from spml.files import write_json

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, help="folder that holds VOCdevkit")
    parser.add_argument("--work", type=Path, default=Path("build/voc-features"))
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--show", action="store_true", help="print the tables instead of training")
    options = parser.parse_args()
    done = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    if options.show:
        print(table(done))
        return
    options.work.mkdir(parents=True, exist_ok=True)
    file = options.work / "features.npz"
    if not file.exists():
        extract(options.root, file)
    for name in options.only or METHODS:
        if name not in {record["method"] for record in done}:
            done.append(run(name, file, options.work))
            write_json(RESULTS, done)
            print(name, f"{done[-1]['test_map']:.2f}", flush=True)


if __name__ == "__main__":
    main()
