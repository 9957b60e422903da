"""`python -m spml`, for when the program is not on the path."""

from spml.cli import entry

if __name__ == "__main__":
    entry()
