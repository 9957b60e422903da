"""The table of README.md, from the recorded runs on VOC2012."""

from __future__ import annotations

from claims import main_table
from plans import ONE_RATE
from recorded import Recorded, interval, markdown, measured
from voc_plan import BACKBONES


def readme_table(known: Recorded) -> str:
    """The complete rows of Table B, the best first."""
    rows = [
        row
        for row in known.table(known.plan(main_table(known)), "an").rows
        if row.seeds == row.wanted and row.label not in ONE_RATE
    ]
    rows.sort(key=lambda row: -(row.test.mean or 0.0))
    lines = [["method", "test mAP", "− an"], ["---"] * 3]
    lines += [
        [f"`{r.label}`", measured(r), "" if r.versus is None else interval(r.versus)] for r in rows
    ]
    bound = (
        "\n\n`full` sees every label and is the upper bound."
        if "full" in {row.label for row in rows}
        else ""
    )
    return markdown(lines) + bound + _at_one_rate(known) + _by_backbone(known)


def _at_one_rate(known: Recorded) -> str:
    """A sentence on methods with a query head: their figures at the rate of the backbone."""
    rows = {row.label: row for row in known.table(known.plan("query heads")).rows if row.seeds}
    slower = {method: rows[label] for method, label in ONE_RATE.items() if label in rows}
    if not slower:
        return ""
    figures = " and ".join(
        f"`{method}` has {measured(row)} (one run)" for method, row in slower.items()
    )
    return (
        f" Not listed: {' and '.join(f'`{method}`' for method in slower)}, whose transformers"
        " fail where all heads learn ten times as fast as the backbone, as here; at one rate"
        f" for both {figures}, with an earlier structure of the head"
        " ([more](docs/reproduction.md#query-heads))."
    )


def _by_backbone(known: Recorded) -> str:
    """A sentence on the difference of GR and AN with other backbones."""
    rows = {name: known.row(f"backbone, {name}", "an") for name in BACKBONES}
    text = "; ".join(
        f"{name} {interval(row.versus, -1)}" for name, row in rows.items() if row.versus is not None
    )
    where = "[other backbones](docs/reproduction.md#other-backbones)"
    return text and f"\n\n`gr` − `an` with {where}: {text}. Begin with pretrained weights."
