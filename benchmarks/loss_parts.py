"""Loss and probability of labels of each kind by epoch, for methods below AN on digits.

python benchmarks/loss_parts.py --out benchmarks/results/loss-parts.json  # keeps finished runs

Computed from the stored scores of validation rows: mean probability and loss of observed positives,
of unobserved positives, and of negatives.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

METHODS = ("an", "crisp", "gce", "sce", "taylor_ce")
KINDS = ("observed positives", "other positives", "negatives")
RESULTS = Path(__file__).parent / "results" / "loss-parts.json"


def parts(name: str, logits: Any, observed: Any, truth: Any) -> dict[str, float]:
    """Mean probability and loss of labels of each kind."""
    import torch

    from spml import losses
    from spml.methods.parts.priors import estimate_priors

    z, s = torch.from_numpy(logits).float(), torch.from_numpy(observed)
    y = torch.from_numpy(truth)
    kinds = dict(zip(KINDS, (s == 1, (s == 0) & (y == 1), y == -1), strict=True))
    means = {f"p, {kind}": float(z.sigmoid()[where].mean()) for kind, where in kinds.items()}
    if name != "crisp":
        entries = losses.create(name, reduction="none")(z, s)
        return {
            **means,
            **{f"loss, {kind}": float(entries[where].mean()) for kind, where in kinds.items()},
        }
    p, priors = z.sigmoid(), estimate_priors(z, s).float()
    positive = torch.stack([(1 - p[s[:, c] == 1, c]).mean() for c in range(p.shape[1])])
    true = (y == 1).float().mean(dim=0)
    return {
        **means,
        "estimated share": float(priors.mean()),
        "true share": float(true.mean()),
        "2 π mean(1 − p) of observed": float((2 * priors * positive).mean()),
        "distance of mean p from π": float((p.mean(dim=0) - priors).abs().mean()),
    }


def run(name: str, folder: Path) -> dict[str, Any]:
    import numpy as np
    import torch

    from spml.data import load
    from spml.train import Settings, fit

    torch.set_num_threads(1)
    experiment = load("digits")
    result = fit(
        experiment, Settings(method=name, accelerator="cpu"), folder / name, quiet=True, resume=True
    )
    observed = experiment.observed.rows(experiment.val_rows)
    truth = experiment.validation_labels("complete")
    epochs = []
    for file in sorted((folder / name / "scores").glob("val-*.npz")):
        with np.load(file) as stored:
            epochs.append(parts(name, stored["logits"].astype(np.float32), observed, truth))
    history = [
        json.loads(line) for line in (folder / name / "history.jsonl").read_text().splitlines()
    ]
    maps = [line["val_map"] for line in history]
    return {
        "method": name,
        "test_map": result["test_map"],
        "val_map": maps,
        "epochs": epochs,
        "seed": 0,
    }


def tables(results: list[dict[str, Any]]) -> str:
    """Markdown: a table for each method, a column for some of the epochs."""
    lines = []
    for record in results:
        shown = [0, 1, 2, 3, 5, 6, 8, 10]
        lines += [f"`{record['method']}`, validation rows, seed {record['seed']}:", ""]
        lines.append("| after epoch | " + " | ".join(map(str, shown)) + " |")
        lines.append("|---" * (len(shown) + 1) + "|")
        lines.append(
            "| val mAP | " + " | ".join(f"{record['val_map'][epoch]:.1f}" for epoch in shown) + " |"
        )
        for part in record["epochs"][0]:
            cells = [f"{record['epochs'][epoch][part]:.3f}" for epoch in shown]
            lines.append(f"| {part} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines).rstrip()


def main() -> None:
    from spml.files import write_json

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--show", action="store_true", help="print the tables instead of training")
    options = parser.parse_args()
    done = json.loads(options.out.read_text()) if options.out.exists() else []
    if options.show:
        print(tables(done))
        return
    with tempfile.TemporaryDirectory() as folder:
        for name in METHODS:
            if name not in {record["method"] for record in done}:
                done.append(run(name, Path(folder)))
                write_json(options.out, done)
                print(name, f"{done[-1]['test_map']:.2f}", flush=True)


if __name__ == "__main__":
    main()
