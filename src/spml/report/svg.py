"""Matplotlib figures as small SVG text that takes its font from the page."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, QUIET, GRID = "#1f2328", "#5b6470", "#dfe3e8"
COLOURS = ("#0072b2", "#d55e00", "#00855f", "#9c4f86", "#2a2a2a", "#b07800", "#3f9bd1")
_LINES = ("-", "--", "-.", ":")  # four against seven colours: 28 methods before a pair repeats
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*", "p", "h")

_STYLE: Any = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # ships with matplotlib: the layout is the same everywhere
    "font.size": 12,
    "axes.titlesize": 12,
    "axes.labelsize": 12,
    "legend.fontsize": 12,
    "text.color": INK,
    "axes.labelcolor": QUIET,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.major.pad": 7,  # the first number stands clear of that of the other axis
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "axes.edgecolor": GRID,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "hatch.linewidth": 0.8,
    "lines.linewidth": 1.8,
    "legend.frameon": False,
}


@dataclass(frozen=True)
class Look:
    """How the n-th method looks in every figure: apart in colour, in line and in marker."""

    number: int

    @property
    def colour(self) -> str:
        """Okabe and Ito's palette, darkened where it would be faint on white."""
        return COLOURS[self.number % len(COLOURS)]

    @property
    def line(self) -> str:
        """Line style."""
        return _LINES[self.number % len(_LINES)]

    @property
    def marker(self) -> str:
        """Marker."""
        return _MARKERS[self.number % len(_MARKERS)]


def whole_epochs(ax: Axes) -> None:
    """Few whole numbers below, one alone where there is one epoch."""
    from matplotlib.ticker import MaxNLocator

    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8, min_n_ticks=1))


def draw(
    paint: Callable[[Axes], None], *, name: str, label: str, width: float = 460, height: float = 280
) -> Markup:
    """The SVG element of one pair of axes.

    Args:
        paint: puts everything on the axes.
        name: keeps the identifiers of one figure apart from those of the others on a page.
        label: what the figure shows, for those who cannot see it.
        width: in pixels, as is `height`; the page scales the figure.
        height: see `width`.
    """
    import matplotlib
    from matplotlib.figure import Figure

    text = io.StringIO()
    with ExitStack() as stack:
        stack.enter_context(matplotlib.rc_context({**_STYLE, "svg.hashsalt": name}))
        stack.enter_context(warnings.catch_warnings())
        warnings.filterwarnings(
            "ignore", message="Glyph .* missing", category=UserWarning
        )  # the browser has them
        figure = Figure(figsize=(width / 72, height / 72), layout="constrained")
        paint(figure.subplots())
        figure.savefig(
            text, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type"))
        )
    return _inline(text.getvalue(), label)


def _inline(svg: str, label: str) -> Markup:
    """The element alone, without font names, fixed size, unused identifiers and needless digits."""
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
