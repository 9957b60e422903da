"""Figures drawn with matplotlib: those of one run as small SVG for its page, and files to print."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import numpy.typing as npt
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from spml.files import replacing
from spml.metrics.scores import sigmoid
from spml.report.format import count, percent, short
from spml.runs.run import Scored

Counts = npt.NDArray[np.int64]
INK, QUIET, GRID = "#1f2328", "#5b6470", "#dfe3e8"
# Okabe and Ito's palette, darkened where it is faint on white
COLOURS = ("#0072b2", "#d55e00", "#00855f", "#9c4f86", "#2a2a2a", "#b07800", "#3f9bd1")
_LINES = ("-", "--", "-.", ":")  # coprime to the seven colours: 28 methods before a pair repeats
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*", "p", "h")

STYLE: Any = {  # of every figure, on the page and in print
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # ships with matplotlib, so layouts are equal everywhere
    "text.color": INK,
    "axes.labelcolor": QUIET,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "axes.edgecolor": GRID,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "legend.frameon": False,
}
_SIZES = ("font.size", "axes.titlesize", "axes.labelsize", "legend.fontsize")
_PAGE: Any = {
    **STYLE,
    **dict.fromkeys(_SIZES, 12),
    **{f"{axis}tick.{kind}.size": 0 for axis in "xy" for kind in ("major", "minor")},
    "xtick.major.pad": 7,  # keeps the first label clear of the other axis's
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "axes.grid": True,
    "grid.linewidth": 0.8,
    "hatch.linewidth": 0.8,
    "lines.linewidth": 1.8,
}
_UNDATED: Any = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}  # equal on every day
ABOVE: Any = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderpad": 0}  # place of a legend
BINS = 25
_KINDS = {
    True: ("positive", "unknown", "negative"),
    False: ("observed positive", "unknown", "observed negative"),
}
# edge, line, face and hatch of each kind
_LOOKS = (
    (COLOURS[0], "-", "#cfe3f1", "////"),
    (COLOURS[1], "--", "none", None),
    (INK, ":", "none", None),
)


def curve(
    values: Mapping[int, float], title: str, *, name: str, chosen: int | None = None
) -> Markup:
    """One quantity by epoch, with the chosen epoch marked."""

    def paint(ax: Axes) -> None:
        epochs = list(values)
        ax.plot(epochs, list(values.values()), color=COLOURS[0], marker="o", markersize=3.5)
        if chosen is not None and chosen in values:
            best = values[chosen]
            ax.axvline(chosen, color=QUIET, linewidth=1, linestyle=":")
            ax.plot([chosen], [best], "o", markersize=9, color=COLOURS[1], fillstyle="none")
            ax.set_title(f"epoch {chosen}: {percent(best)}", loc="right")
        epoch_axis(ax, title)

    return draw(paint, name=name, label=f"{title} by epoch")


def epoch_axis(ax: Axes, title: str) -> None:
    """Whole epochs below, the quantity's name above the left corner."""
    ax.set_title(title, loc="left", color=QUIET)
    ax.set_xlabel("epoch")
    whole_epochs(ax)
    ax.grid(axis="x", visible=False)


def class_bars(
    names: Sequence[str], values: Mapping[str, float], counts: Mapping[str, int], *, name: str
) -> Markup:
    """AP of each class as a bar, with the number of its observed positives if there are any."""

    def paint(ax: Axes) -> None:
        shown = [values[name] for name in names]
        ax.barh(np.arange(len(names)), shown, height=0.62, color=COLOURS[0])
        for row, value in enumerate(shown):
            put: Any = {"x": value + 1.5, "ha": "left", "color": INK}
            if value > 85:
                put = {"x": value - 1.5, "ha": "right", "color": "white"}
            ax.text(y=row, s=percent(value, 1), va="center", fontsize=11, **put)
        class_axis(ax, names, counts)
        ax.set_xlim(0, 100)
        ax.set_xlabel("average precision, %")

    height = 56 + 21 * len(names)
    return draw(paint, name=name, label="Average precision of each class", height=height)


def class_axis(ax: Axes, names: Sequence[str], counts: Mapping[str, int]) -> None:
    """Class names from top to bottom on the left, their observed positives on the right."""
    ax.set_yticks(np.arange(len(names)), [short(name) for name in names], color=INK)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.grid(axis="y", visible=False)
    ax.spines["left"].set_visible(False)
    if not counts:
        return
    put: Any = {"x": 1.15, "transform": ax.get_yaxis_transform(), "ha": "right", "color": QUIET}
    for row, name in enumerate(names):
        ax.text(y=row, s=count(counts.get(name, 0)), va="center", **put)
    ax.text(y=-0.75, s="observed", va="bottom", **put)


def count_bars(counts: Mapping[str, int], *, name: str) -> Markup:
    """Observed positives per class: named bars, or a ranked curve of many classes."""
    names = sorted(counts, key=lambda name: -counts[name])
    sizes = [counts[name] for name in names]
    few = len(names) <= 20
    title = "observed positives in training"

    def paint(ax: Axes) -> None:
        if few:
            ax.barh(np.arange(len(names)), sizes, height=0.62, color=COLOURS[0])
            class_axis(ax, names, {})
            ax.set_xlabel(title)
            ax.xaxis.set_major_formatter(lambda value, _: count(value))
            return
        ax.fill_between(np.arange(1, len(names) + 1), sizes, step="mid", color=COLOURS[0])
        ax.set_xlim(0.5, len(names) + 0.5)
        ax.set_ylim(0)
        ax.grid(axis="x", visible=False)
        ax.set_title(title, loc="left", color=QUIET)
        ax.set_xlabel("classes, most frequent first")
        ax.yaxis.set_major_formatter(lambda value, _: count(value))

    height = 56 + 21 * len(names) if few else 280
    label = "Observed positives of each class in training"
    return draw(paint, name=name, label=label, height=height)


def confidences(scored: Scored) -> dict[str, Counts]:
    """Histogram of the confidences for each kind of label."""
    confidence = sigmoid(scored.logits)
    known = np.isfinite(confidence)
    kinds = dict(zip((1, 0, -1), _KINDS[scored.complete], strict=True))
    present = {kind: known & (scored.truth == value) for value, kind in kinds.items()}
    return {
        kind: np.histogram(confidence[mask], bins=BINS, range=(0, 1))[0]
        for kind, mask in present.items()
        if mask.any()
    }


def histogram(counts: Mapping[str, Counts], *, name: str, top: float, width: float = 460) -> Markup:
    """Confidence histograms on a logarithmic count axis that ends at `top`."""

    def paint(ax: Axes) -> None:
        edges = np.linspace(0, 1, BINS + 1)
        for (kind, values), (edge, line, face, hatch) in zip(counts.items(), _LOOKS, strict=False):
            patch = ax.stairs(values, edges, fill=hatch is not None, label=kind)
            patch.set(edgecolor=edge, linestyle=line, facecolor=face, hatch=hatch, linewidth=1.6)
        ax.set_yscale("log")
        ax.set_ylim(0.7, top * 1.4)
        ax.set_xlim(0, 1)
        ax.yaxis.set_major_locator(LogLocator(base=10, numticks=8))
        ax.yaxis.set_minor_locator(NullLocator())
        ax.yaxis.set_major_formatter(lambda value, _: count(value))
        ax.grid(axis="x", visible=False)
        ax.set_xlabel("confidence")
        ax.set_ylabel("labels per bin")
        columns = 2 if len(counts) < 3 or width > 400 else 1
        ax.legend(ncols=columns, handlelength=1.6, **ABOVE)

    label = f"Confidence histograms: {', '.join(counts)}"
    return draw(paint, name=name, label=label, width=width, height=260)


def peak(counts: Mapping[str, Counts]) -> float:
    """The highest bar of a set of histograms."""
    return float(max((values.max() for values in counts.values()), default=1))


def look(number: int) -> dict[str, Any]:
    """Colour, line and marker of the n-th method in every figure."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": _LINES[number % len(_LINES)],
        "marker": _MARKERS[number % len(_MARKERS)],
    }


def whole_epochs(ax: Axes) -> None:
    """A few whole numbers as ticks, also for a single epoch."""
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8, min_n_ticks=1))


def draw(
    paint: Callable[[Axes], None], *, name: str, label: str, width: float = 460, height: float = 280
) -> Markup:
    """Draw one pair of axes as an SVG element of that size in pixels, which the page scales.

    `name` is unique on the page, so that identifiers of two figures differ; `label` is read aloud.
    """
    text = io.StringIO()
    with _styled(_PAGE, name):
        figure = Figure(figsize=(width / 72, height / 72), layout="constrained")
        paint(figure.subplots())
        metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(text, format="svg", metadata=metadata)
    return _inline(text.getvalue(), label)


@contextmanager
def figure_files(*files: Path, size: tuple[float, float], font: float = 10) -> Iterator[Figure]:
    """A figure to paint on, written to each file (.svg, .png, .pdf) if the block does not raise.

    `size` is in inches; at that size, letters have `font` points.
    """
    style = {**STYLE, **dict.fromkeys(_SIZES, font), "hatch.linewidth": 0.7}
    with _styled(style, files[0].name):
        figure = Figure(figsize=size, layout="constrained", facecolor="white")
        yield figure
        for file in files:
            kind = file.suffix.lower()
            with replacing(file) as beside:
                figure.savefig(beside, format=kind[1:], dpi=160, metadata=_UNDATED.get(kind))


@contextmanager
def _styled(style: Any, salt: str) -> Iterator[None]:
    with matplotlib.rc_context({**style, "svg.hashsalt": salt}), warnings.catch_warnings():
        # the browser has glyphs that matplotlib's font lacks
        warnings.filterwarnings("ignore", message="Glyph .* missing", category=UserWarning)
        yield


def _inline(svg: str, label: str) -> Markup:
    """The <svg> element without font names, fixed size, unused identifiers and needless digits."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<style.*?</style>", "", svg, count=1, flags=re.DOTALL)
    svg = re.sub(r"<defs>\s*</defs>", "", svg)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = re.sub(r"""(<text style="[^"]*?) font-family: [^;"]*;?""", r"\1", svg)
    svg = re.sub(r' transform="rotate\(-0 [^"]*"', "", svg)
    svg = re.sub(r'<path[^>]* d="[^"]*"', lambda path: _fewer_digits(path[0]), svg)
    svg = re.sub(r">\s+<", "><", svg)
    svg = re.sub(r"<g></g>", "", svg)
    head = Markup('<svg role="img" aria-label="{}" ').format(label)
    return head + Markup(re.sub(r'^<svg (.*?) width="[^"]*" height="[^"]*"', r"\1", svg, count=1))


def _fewer_digits(path: str) -> str:
    return re.sub(r"\s*\n\s*", " ", re.sub(r"(\.\d\d)\d+", r"\1", path))
