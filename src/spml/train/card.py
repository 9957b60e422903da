"""The model card: best/README.md, which says what a model was trained on, how good it is and what it is not fit for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from spml.files import write_text
from spml.losses import names, summary
from spml.model.store import ModelInfo, read_info
from spml.runs.run import Run
from spml.train.card_limits import Counts, limits, plain

SHOWN = 50  # classes in the table
SELECTION = {
    "complete": "complete validation labels",
    "observed": "observed validation labels alone",
}
OBSERVED = "an estimate from observed positives, which ranks epochs and is not a mAP"
PROTOCOL = (
    "size",
    "epochs",
    "batch_size",
    "lr",
    "head_lr",
    "optimizer",
    "schedule",
    "weight_decay",
    "flip",
    "crop",
)
SEEDS = ("seed", "observe_seed", "split_seed")
LOAD = """```python
from pathlib import Path
from spml.model import load_model
model, info = load_model(Path("."))  # this folder; info.calibrate()(model(x)).sigmoid() are the probabilities
```"""


def write_card(run: Path, result: Mapping[str, Any] | None = None) -> Path:
    """Write best/README.md from what the run folder holds: no timings, so that the same run gives the same card.

    Args:
        run: a run folder.
        result: what result.json will hold, where it is not written yet.

    Returns:
        Where the card is.
    """
    info = read_info(run)
    stored = Run(run)
    shown = json.loads(json.dumps((stored.result or {}) if result is None else result))
    text = card(stored.config, shown, info, _counts(stored), stored.calibration() or {})
    write_text(stored.card, text)
    return stored.card


def card(
    config: Mapping[str, Any],
    result: Mapping[str, Any],
    info: ModelInfo,
    counts: Counts | None,
    calibration: Mapping[str, Any],
) -> str:
    """The card's Markdown.

    Args:
        config: of the run.
        result: of the run; empty where it is not finished.
        info: of the model.
        counts: negatives, unknown labels and positives of each class in training, and number of validation rows.
        calibration: what calibration.json holds; empty where there is none.
    """
    method, data = str(config["method"]), plain(config["data"])
    parts = [
        _front_matter(info),
        f"# {data}: {len(info.classes)} classes by {plain(method)}",
        f"A multi-label classifier trained with spml {info.versions.get('spml', '')}.",
        _section("Data", _data(config, info, counts)),
        _section("Method", _method(method, config)),
        _section("Protocol", _rows(config, PROTOCOL, SEEDS)),
        _section("Figures", _figures(config, result, info)),
        _section("Classes and thresholds", _classes(result, info, counts, calibration)),
        _section("Side information", _side(config)),
        _section("Limits", [f"- {sentence}" for sentence in limits(config, result, info, counts)]),
        _section(
            "Use",
            [
                LOAD,
                "",
                "Or `spml predict RUN pictures/ --out tags.csv`, RUN being the folder of the run.",
            ],
        ),
        _section(
            "Versions", [", ".join(f"{name} {version}" for name, version in info.versions.items())]
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _counts(run: Run) -> Counts | None:
    """Of each class the known negatives, unknown labels and known positives in training; rows of validation."""
    if run.observed is None:
        return None  # not kept where it would be too large
    counts = [(run.observed.train == value).sum(axis=0) for value in (-1, 0, 1)]
    return np.stack(counts), run.observed.num_val


def _section(title: str, lines: list[str]) -> str:
    return f"## {title}\n\n" + "\n".join(lines)


def _front_matter(info: ModelInfo) -> str:
    pictures = info.preprocessing["kind"] == "pictures"
    lines = (
        ["library_name: spml", "pipeline_tag: image-classification"]
        if pictures
        else ["library_name: spml"]
    )
    return "\n".join(["---", *lines, "tags:", "- multi-label", "- single-positive", "---"])


def _data(config: Mapping[str, Any], info: ModelInfo, counts: Counts | None) -> list[str]:
    version = f", version {plain(config['data_version'])}" if config.get("data_version") else ""
    lines = [f"- {plain(config['data'])}{version}; labels taken as {config.get('labels')}."]
    if counts is not None:
        items = int(counts[0][:, 0].sum())
        positives, negatives = (counts[0][value].sum() / items for value in (2, 0))
        per_item = f"{positives:.2f} known positives and {negatives:.2f} known negatives"
        lines.append(
            f"- {items:,} items to train on, {counts[1]:,} to choose the epoch with; {per_item} an item."
        )
    if config.get("observation") == {"model": "given"}:
        lines.append("- Labels are observed as they were given; none was hidden.")
    elif config.get("observation"):
        about = ", ".join(
            f"{name} {_value(value)}" for name, value in config["observation"].items()
        )
        lines.append(f"- How labels came to be observed: {plain(about)}.")
    lines.append(f"- SHA-256 of the observed labels: {config.get('observed_sha256')}.")
    how = info.preprocessing
    size = (
        f"pictures, resized to {how['size']} × {how['size']}, turned as their EXIF orientation says"
    )
    lines.append(
        f"- Input: {size if how['kind'] == 'pictures' else str(how['features']) + ' features'}."
    )
    return lines


def _method(method: str, config: Mapping[str, Any]) -> list[str]:
    known = method in names()
    about = (
        f"{plain(summary(method))} Its equation: `docs/methods.md`, section `{method}`."
        if known
        else "One's own."
    )
    options = ", ".join(
        f"{name} = {_value(value)}" for name, value in config.get("options", {}).items()
    )
    weights = Path(str(config.get("weights"))).name
    head = f"backbone {config.get('backbone')}, weights {weights}, head {config.get('head')}"
    return [
        f"- {plain(method)}: {about}",
        f"- Options: {plain(options) or 'none'}.",
        f"- Network: {plain(head)}.",
    ]


def _rows(config: Mapping[str, Any], *groups: tuple[str, ...]) -> list[str]:
    return [
        "- " + ", ".join(f"{plain(n)} {plain(_value(config[n]))}" for n in g if n in config) + "."
        for g in groups
    ]


def _figures(config: Mapping[str, Any], result: Mapping[str, Any], info: ModelInfo) -> list[str]:
    chosen, selection = result or info.training, str(config.get("selection"))
    epoch, val = chosen.get("best_epoch", chosen.get("epoch")), chosen.get("val_map")
    if val is None:
        lines = [
            f"- Epoch {epoch}, the last of {config['epochs']}: there were no validation rows to choose it with."
        ]
    else:
        figure = f"{val:.2f} %" + (f", {OBSERVED}" if selection == "observed" else " mAP")
        lines = [
            f"- Epoch {epoch} of {config['epochs']}, chosen by {SELECTION.get(selection, selection)}: {figure}."
        ]
    if not result:
        return [*lines, "- The run was not finished; there are no test figures."]
    if result.get("test_map") is not None:
        known = result.get("test_known")
        over = (
            "" if known is None else f", over the {known:.1%} of test labels that are known alone"
        )
        return [
            *lines,
            f"- Test mAP {result['test_map']:.2f} %, measured once, at the chosen epoch{over}.",
        ]
    if result.get("test_estimate") is not None:
        return [
            *lines,
            f"- Test labels are not complete: {result['test_estimate']:.2f} % is {OBSERVED}.",
        ]
    return [*lines, "- It was not tested: the data have no test split."]


def _classes(
    result: Mapping[str, Any],
    info: ModelInfo,
    counts: Counts | None,
    calibration: Mapping[str, Any],
) -> list[str]:
    ap, calibrated = result.get("per_class_ap") or {}, info.calibration is not None
    heads = ["class", "known positives in training", *(["test AP, %"] if ap else []), "threshold"]
    lines = [_line(heads), _line(["---"] * len(heads)).replace(" ", "")]
    for i, name in enumerate(info.classes[:SHOWN]):
        known = "" if counts is None else f"{int(counts[0][2, i]):,}"
        figure = [f"{ap[name]:.2f}" if name in ap else ""] if ap else []
        lines.append(_line([plain(name), known, *figure, f"{info.thresholds[i]:.4g}"]))
    if len(info.classes) > SHOWN:
        lines.append(f"\nAnd {len(info.classes) - SHOWN:,} more, in `model.json`.")
    state = "calibrated" if calibrated else "as the network gives them, not calibrated"
    how = [
        f"{name} {plain(calibration[name])}"
        for name in ("aim", "labels", "method")
        if name in calibration
    ]
    by = f" `spml calibrate` has set thresholds and probabilities: {', '.join(how)}." if how else ""
    return [
        *lines,
        "",
        f"A class counts as present from its threshold on. Probabilities are {state}.{by}",
    ]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _side(config: Mapping[str, Any]) -> list[str]:
    side = config.get("side_information") or {}
    rows = [f"- {plain(name)}: {plain(_value(value))}" for name, value in side.items()]
    return (
        ["Taken from complete labels:", "", *rows]
        if rows
        else ["None: nothing was taken from complete labels."]
    )


def _value(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 120 else f"{text[:100]}… (whole in config.json)"
