"""The model card, best/README.md: training data, method, figures and limits of a model."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from spml.files import write_text
from spml.losses import names, summary
from spml.model.store import read_info
from spml.runs.run import Run
from spml.runs.settings import SEEDS

SHOWN = 50  # classes in the table
FEW = 10  # known positives in training below which a class is listed as rare
LISTED = 20  # rare classes
SELECTION = {
    "complete": "complete validation labels",
    "observed": "observed validation labels alone",
}
ESTIMATE = "an estimate from observed positives, which ranks epochs and is not a mAP"
PROTOCOL = (
    *("size", "epochs", "batch_size", "lr", "head_lr"),
    *("optimizer", "schedule", "weight_decay", "flip", "crop"),
)


def write_card(run: Path, result: Mapping[str, Any] | None = None) -> Path:
    """Write best/README.md from the files of a run; without timings, so that it is reproducible."""
    from jinja2 import Environment, PackageLoader

    filters = {"plain": plain, "value": _value, "pairs": _pairs, "listed": _listed}
    pages = Environment(
        loader=PackageLoader("spml.train"),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # Markdown; `plain` escapes it
    )
    pages.filters |= filters
    stored = Run(run)
    text = pages.get_template("card.md.jinja").render(_facts(stored, result or stored.result or {}))
    write_text(stored.card, text)
    return stored.card


def _facts(run: Run, result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that the template of the card shows."""
    config, info, counts = run.config, read_info(run.folder), _counts(run)
    method, selection = str(config["method"]), str(config.get("selection"))
    weights = Path(str(config.get("weights"))).name
    chosen, ap = result or info.training, result.get("per_class_ap") or {}
    calibration = run.calibration() or {}
    aims = [name for name in ("aim", "labels", "method") if name in calibration]
    rare: Any = np.flatnonzero(counts["known"] < FEW) if counts else []
    return {
        "config": config,
        "info": info,
        "result": result,
        "counts": counts,
        "pictures": info.preprocessing["kind"] == "pictures",
        "size": info.preprocessing["size"],
        "method": method,
        "about": summary(method) if method in names() else None,
        "network": f"backbone {config.get('backbone')}, weights {weights}, "
        f"head {config.get('head')}",
        "protocol": (PROTOCOL, SEEDS),
        "epoch": chosen.get("best_epoch", chosen.get("epoch")),
        "val": chosen.get("val_map"),
        "selected": SELECTION.get(selection, selection),
        "estimate": ESTIMATE,
        "score": result.get("test_score", result.get("test_estimate")),  # its name before 0.2
        "ap": ap,
        "shown": SHOWN,
        "calibrated": info.calibration is not None,
        "how": ", ".join(f"{name} {plain(calibration[name])}" for name in aims),
        "side": config.get("side_information") or {},
        "absent": [name for name, value in ap.items() if value == 0],
        "few": [info.classes[i] for i in rare],
        "least": FEW,
    }


def _counts(run: Run) -> dict[str, Any] | None:
    """Count the labels that the model was trained from; None if they were too many to store."""
    if run.observed is None:
        return None
    train = run.observed.train
    negative, unknown, positive = ((train == value).sum() for value in (-1, 0, 1))
    return {
        "num_items": len(train),
        "num_val": run.observed.num_val,
        "known": (train == 1).sum(axis=0),  # positives of each class
        "positive": positive / len(train),
        "negative": negative / len(train),
        "unknown": unknown / train.size,
    }


def _pairs(values: Mapping[str, Any] | None, sign: str) -> str:
    return ", ".join(f"{name}{sign}{_value(value)}" for name, value in (values or {}).items())


def _value(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 120 else f"{text[:100]}… (complete in config.json)"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - LISTED:,} more" if len(names) > LISTED else ""
    return ", ".join(plain(name) for name in names[:LISTED]) + more


def plain(value: Any) -> str:
    """Return the text on one line, with the characters that Markdown interprets escaped."""
    text = " ".join(str(value).split())
    return "".join(f"\\{sign}" if sign in "\\`*_[]|<>#" else sign for sign in text)
