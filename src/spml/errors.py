"""What the user can mend: the command line prints these as one line and ends with exit code 2."""

DAMAGED = (
    "put the file back as spml train wrote it, or train again"  # what to do about a file of a run
)


class UserError(ValueError):
    """A request that cannot be carried out as given; the message says what to change."""


class Interruption(KeyboardInterrupt):
    """The user ended a run, which can be gone on with."""


class DataError(UserError):
    """Something in the user's data; the message says where (file, line, value) and what to do."""
