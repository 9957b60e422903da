"""One HTML page for a run or a comparison of runs that needs only a browser."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spml.report.run_page import write_report

__all__ = ["write_report"]


def __getattr__(name: str) -> Any:
    """Load `write_report` on first use, because importing numpy is slow."""
    if name == "write_report":
        from spml.report.run_page import write_report

        return write_report
    raise AttributeError(f"module 'spml.report' has no attribute {name!r}")
