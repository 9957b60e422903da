"""`spml check`."""
from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """Placeholder."""

    def run(self) -> None:
        """Nothing."""
