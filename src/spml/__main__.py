"""`python -m spml`, where the program itself is not on the path."""

from spml.cli import entry

if __name__ == "__main__":
    entry()
