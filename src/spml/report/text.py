"""Numbers and settings as the page prints them."""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from typing import Any

NONE = "–"


def percent(value: float | None, digits: int = 2) -> str:
    """71.23; a dash where there is none."""
    if value is None:
        return NONE
    return f"{value:.{digits}f}" if math.isfinite(value) else "not finite"


def signed(value: float | None, digits: int = 2) -> str:
    """+1.30 or −0.42, zero without a sign."""
    if value is None or not math.isfinite(value):
        return percent(value)
    text = f"{abs(value):.{digits}f}"
    return text if float(text) == 0 else ("+" if value > 0 else "−") + text


def count(value: float | None) -> str:
    """12,345; a small number keeps one decimal unless it is whole."""
    if value is None:
        return NONE
    if not math.isfinite(value):
        return "not finite"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:,.1f}"


def duration(seconds: float | None) -> str:
    """8.4 s, 3 min 20 s, 2 h 05 min."""
    if seconds is None or not math.isfinite(seconds):
        return percent(seconds)
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def setting(value: Any) -> str:
    """A value of config.json on one line; text stands without quotes."""
    if value in (None, ""):
        return "none"
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    return json.dumps(value, ensure_ascii=False)


def brief(options: Any) -> str:
    """Options on one line: q3 = 1.5, w = [0, 10]."""
    if not isinstance(options, dict):
        return setting(options)
    return ", ".join(f"{name} = {setting(value)}" for name, value in options.items()) or NONE


def short(text: str, length: int = 26) -> str:
    """Text on one line; where it is too long for a figure, its middle is left out."""
    line = " ".join(text.split())
    if len(line) <= length:
        return line
    tail = (length - 1) // 2
    return f"{line[: length - 1 - tail]}…{line[-tail:]}"


def file_name(path: str, length: int = 18) -> str:
    """A file without its folder; where its name is too long, its end, which tells the files of a folder apart."""
    name = " ".join(path.split()).rpartition("/")[2]
    return name if len(name) <= length else f"…{name[1 - length :]}"


def chosen_by(kinds: Collection[Any]) -> str:
    """What the validation figure is: from observed labels it ranks epochs and runs, and is no mAP."""
    if len(set(kinds)) > 1:
        return "figure"
    return "estimate" if "observed" in kinds else "mAP"


def selection(kind: Any) -> str:
    """How the epoch was chosen, in words."""
    known = {"complete": "complete validation labels", "observed": "observed validation labels"}
    return known.get(str(kind), "labels not recorded")
