"""The model card, best/README.md: training data, method, figures and limits of a model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spml.files import write_text
from spml.losses import names, summary
from spml.model.store import ModelInfo, read_info
from spml.runs.run import Run
from spml.runs.settings import SEEDS

# known negatives, unknown labels and known positives of each class in training; validation rows
Counts = tuple[npt.NDArray[Any], int]
SHOWN = 50  # classes in the table
FEW = 10  # known positives in training below which a class is listed as rare
LISTED = 20  # rare classes
SELECTION = {
    "complete": "complete validation labels",
    "observed": "observed validation labels alone",
}
OBSERVED = "an estimate from observed positives, which ranks epochs and is not a mAP"
PROTOCOL = (
    *("size", "epochs", "batch_size", "lr", "head_lr"),
    *("optimizer", "schedule", "weight_decay", "flip", "crop"),
)
LOAD = """```python
from pathlib import Path
from spml.model import load_model
model, info = load_model(Path("."))  # this folder
```
`info.calibrate()(model(x)).sigmoid()` returns the probabilities."""
PREDICT = (
    "Or `spml predict MODEL pictures/ --out tags.csv`, with this folder, the run's folder or "
    "`hub:OWNER/NAME` as MODEL."
)


def write_card(run: Path, result: Mapping[str, Any] | None = None) -> Path:
    """Write best/README.md from the files of a run; without timings, so that it is reproducible."""
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
    """Return the Markdown of the card."""
    method, data = str(config["method"]), plain(config["data"])
    parts = [
        _front_matter(config, result, info),
        f"# {data}: {len(info.classes)} classes by {plain(method)}",
        f"A multi-label classifier trained with spml {info.versions.get('spml', '')}.",
        _section("Data", _data(config, info, counts)),
        _section("Method", _method(method, config)),
        _section("Protocol", _rows(config, PROTOCOL, SEEDS)),
        _section("Figures", _figures(config, result, info)),
        _section("Classes and thresholds", _classes(result, info, counts, calibration)),
        _section("Side information", _side(config)),
        _section("Limits", [f"- {sentence}" for sentence in limits(config, result, info, counts)]),
        _section("Use", [LOAD, "", PREDICT]),
        _section("Versions", [", ".join(f"{name} {own}" for name, own in info.versions.items())]),
    ]
    return "\n\n".join(parts) + "\n"


def _counts(run: Run) -> Counts | None:
    """Count the labels that the model was trained from; None if they were not stored."""
    if run.observed is None:
        return None  # too large to store
    counts = [(run.observed.train == value).sum(axis=0) for value in (-1, 0, 1)]
    return np.stack(counts), run.observed.num_val


def _section(title: str, lines: list[str]) -> str:
    return f"## {title}\n\n" + "\n".join(lines)


def _front_matter(config: Mapping[str, Any], result: Mapping[str, Any], info: ModelInfo) -> str:
    """Return the YAML that the hub reads; text in it is JSON, which YAML includes."""
    pictures = info.preprocessing["kind"] == "pictures"
    task = "image-classification" if pictures else "tabular-classification"
    lines = ["library_name: spml", f"pipeline_tag: {task}"]
    lines += ["tags:", "- multi-label-classification", "- single-positive"]
    if result.get("test_map") is not None:
        name = f"{config['data']} by {config['method']}"
        data = json.dumps(str(config["data"]))
        figure = {"type": "mAP", "name": "test mAP, %", "value": round(result["test_map"], 2)}
        lines += [
            "model-index:",
            f"- name: {json.dumps(name)}",
            "  results:",
            f"  - task: {{type: {task}}}",
            f"    dataset: {{type: {data}, name: {data}}}",
            f"    metrics: [{json.dumps(figure)}]",
        ]
    return "\n".join(["---", *lines, "---"])


def _data(config: Mapping[str, Any], info: ModelInfo, counts: Counts | None) -> list[str]:
    version = f", version {plain(config['data_version'])}" if config.get("data_version") else ""
    lines = [f"- {plain(config['data'])}{version}; labels taken as {config.get('labels')}."]
    if counts is not None:
        items = int(counts[0][:, 0].sum())
        positives, negatives = (counts[0][value].sum() / items for value in (2, 0))
        per_item = f"{positives:.2f} known positives and {negatives:.2f} known negatives"
        lines.append(
            f"- {items:,} training items, {counts[1]:,} validation items; {per_item} per item."
        )
    if config.get("observation") == {"model": "given"}:
        lines.append("- The observed labels are those of the data; none was hidden.")
    elif config.get("observation"):
        model = [f"{name} {_value(value)}" for name, value in config["observation"].items()]
        lines.append(f"- Observation model of the labels: {plain(', '.join(model))}.")
    lines.append(f"- SHA-256 of the observed labels: {config.get('observed_sha256')}.")
    how = info.preprocessing
    shape = f"{how['features']} features"
    if how["kind"] == "pictures":
        shape = (
            f"pictures, turned by their EXIF orientation, resized to {how['size']} × {how['size']}"
        )
    return [*lines, f"- Input: {shape}."]


def _method(method: str, config: Mapping[str, Any]) -> list[str]:
    about = "A method of the user's own."
    if method in names():
        about = f"{plain(summary(method))} Its equation: `docs/methods/{method}.md`."
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
        first = f"- Epoch {epoch}, the last of {config['epochs']}: there were no validation rows."
    else:
        figure = f"{val:.2f} %" + (f", {OBSERVED}" if selection == "observed" else " mAP")
        labels = SELECTION.get(selection, selection)
        first = f"- Epoch {epoch} of {config['epochs']}, chosen by {labels}: {figure}."
    if not result:
        return [first, "- The run is not finished; there are no test figures."]
    if result.get("test_map") is not None:
        known = result.get("test_known")
        over = "" if known is None else f", over the {known:.1%} of test labels that are known"
        figure = f"{result['test_map']:.2f} %"
        return [first, f"- Test mAP {figure}, measured once, at the chosen epoch{over}."]
    score = result.get("test_score", result.get("test_estimate"))  # its name before 0.2
    if score is not None:
        figure = f"{score:.2f} %"
        return [first, f"- Test labels are not complete: {figure} is {OBSERVED}."]
    return [first, "- The model was not tested: the data have no test split."]


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
    state = "calibrated" if calibrated else "the outputs of the network, not calibrated"
    how = [
        f"{name} {plain(calibration[name])}"
        for name in ("aim", "labels", "method")
        if name in calibration
    ]
    by = f" `spml calibrate` chose thresholds and probabilities: {', '.join(how)}." if how else ""
    meaning = "An item has a class if its probability is at least the threshold."
    return [*lines, "", f"{meaning} Probabilities are {state}.{by}"]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _side(config: Mapping[str, Any]) -> list[str]:
    side = config.get("side_information") or {}
    rows = [f"- {plain(name)}: {plain(_value(value))}" for name, value in side.items()]
    if not rows:
        return ["None: no information comes from complete labels."]
    return ["From complete labels:", "", *rows]


def _value(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 120 else f"{text[:100]}… (complete in config.json)"


def limits(
    config: Mapping[str, Any],
    result: Mapping[str, Any],
    info: ModelInfo,
    counts: Counts | None,
) -> Iterator[str]:
    """Yield one sentence per known limit of the model."""
    yield (
        f"It knows its {len(info.classes)} classes only; "
        "an item that shows none of them may still get one."
    )
    if (config.get("side_information") or {}).get("training_labels") == "complete":
        yield "It was trained on complete labels: an upper bound for single-positive training."
    elif counts is not None and counts[0][1].any():
        share = counts[0][1].sum() / counts[0].sum()
        yield (
            f"{100 * share:.1f} % of its training labels are unknown: "
            "its probabilities depend on how the method treats them."
        )
    if info.calibration is None:
        yield (
            "Its probabilities are not calibrated: 0.8 does not mean four in five. "
            "See `spml calibrate`."
        )
    if info.calibration is None and set(info.thresholds) == {0.5}:
        yield "The threshold of every class is 0.5, which was not chosen for these data."
    yield from _limits_of_figures(config, result)
    if counts is not None:
        few = [info.classes[i] for i in np.flatnonzero(counts[0][2] < FEW)]
        if few:
            yield f"Classes with fewer than {FEW} known positives in training: {_listed(few)}."
    if config.get("weights") == "pretrained":
        yield "It inherits the biases of the pretrained weights of its backbone."
    if info.preprocessing["kind"] == "pictures":
        size = info.preprocessing["size"]
        yield (
            f"Pictures are resized to {size} × {size} pixels without keeping their proportions: "
            "small objects and very wide or high pictures may be missed."
        )


def _limits_of_figures(config: Mapping[str, Any], result: Mapping[str, Any]) -> Iterator[str]:
    if config.get("selection") == "complete" and result.get("val_map") is not None:
        yield (
            "Complete validation labels chose its epoch, "
            "which is not possible with single positives alone."
        )
    if result.get("test_map") is None:
        yield "Its quality on new items has not been measured against complete labels."
    ap = result.get("per_class_ap") or {}
    absent = [name for name, value in ap.items() if value == 0]
    if absent:
        yield f"Classes with an AP of 0, probably absent from the test split: {_listed(absent)}."


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - LISTED:,} more" if len(names) > LISTED else ""
    return ", ".join(plain(name) for name in names[:LISTED]) + more


def plain(value: Any) -> str:
    """Return the text on one line, with the characters that Markdown interprets escaped."""
    text = " ".join(str(value).split())
    return "".join(f"\\{sign}" if sign in "\\`*_[]|<>#" else sign for sign in text)
