"""Figures for print: files of a fixed size with readable letters."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spml.files import replacing
from spml.report.figures import STYLE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZES = ("font.size", "axes.titlesize", "axes.labelsize", "legend.fontsize")
UNDATED: Any = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}  # the same bytes every day


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

    style = {**STYLE, **dict.fromkeys(SIZES, font), "hatch.linewidth": 0.7}
    with matplotlib.rc_context({**style, "svg.hashsalt": files[0].name}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing", category=UserWarning)
        figure = Figure(figsize=size, layout="constrained", facecolor="white")
        yield figure
        for file in files:
            kind = file.suffix.lower()
            with replacing(file) as beside:
                figure.savefig(beside, format=kind[1:], dpi=160, metadata=UNDATED.get(kind))
