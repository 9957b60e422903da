"""One HTML page for a run or a comparison of runs that needs only a browser."""

from typing import TYPE_CHECKING

from spml import lazy_names

if TYPE_CHECKING:
    from spml.report.run_page import write_report

__all__ = ["write_report"]

if not TYPE_CHECKING:
    # Lazy, because importing numpy is slow.
    __getattr__ = lazy_names(__name__, {"write_report": "spml.report.run_page"})
