"""One module for each command; `spml.cli` finds them."""
