"""Checks of a data set: `spml check`."""
