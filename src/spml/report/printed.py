"""Figures for print: files of a fixed size with readable letters."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spml.files import replacing
from spml.report.figures import GRID, INK, QUIET

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLE: Any = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10,
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
    "hatch.linewidth": 0.7,
}


@contextmanager
def printed(*files: Path, size: tuple[float, float], font: float = 10) -> Iterator[Figure]:
    """A figure to paint on, written to each file (.svg, .png, .pdf) if the block does not raise.

    Args:
        files: files to write.
        size: width and height in inches, at which the letters have `font` points.
        font: size of the letters.
    """
    import matplotlib
    from matplotlib.figure import Figure

    style = {
        **STYLE,
        "font.size": font,
        "axes.titlesize": font,
        "axes.labelsize": font,
        "legend.fontsize": font,
    }
    with matplotlib.rc_context({**style, "svg.hashsalt": files[0].name}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing", category=UserWarning)
        figure = Figure(figsize=size, layout="constrained", facecolor="white")
        yield figure
        for file in files:
            kind = file.suffix[1:].lower()
            about = (
                {"Date": None}
                if kind == "svg"
                else {"CreationDate": None}
                if kind == "pdf"
                else None
            )
            with replacing(file) as beside:
                figure.savefig(beside, format=kind, dpi=160, metadata=about)
