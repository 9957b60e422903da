"""One HTML page for a run, or for a comparison of runs, that needs nothing but a browser."""

from spml.report.page import write_report

__all__ = ["write_report"]
