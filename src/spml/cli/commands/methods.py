"""`spml methods`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Methods:
    """List every method with a summary and the inputs that it needs.

    Example: spml methods
    """

    order: ClassVar[int] = 45

    def run(self) -> None:
        """Print the table."""
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        from spml import losses
        from spml.losses.registry import summary

        table = Table("method", "summary", "needs", box=SIMPLE_HEAD, pad_edge=False)
        for name in losses.names():
            needs = ", ".join(sorted(losses.needs(name)))
            table.add_row(name, Text(summary(name)), needs)
        Console().print(table)
        print("Options of a method: spml train DATA --method NAME --set help")
