"""Errors that the user can fix: the command line prints one line and exits with code 2."""

DAMAGED = "put the file back as spml train wrote it, or train again"  # remedy for a run's file
FEATURES = "if the items are rows of numbers, name their columns with --features"
EXTRA = "in the folder of spml's sources, run: pip install -e '.[{}]'"  # for a missing package


class UserError(ValueError):
    """A request that cannot be carried out; the message says what to change."""


class Interruption(KeyboardInterrupt):
    """The user stopped a run, which can be resumed."""


class DataError(UserError):
    """A fault in the user's data; the message gives file, line and value, and what to do."""
