"""python -m spml.cli."""

from spml.cli import entry

entry()
