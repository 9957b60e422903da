"""Checks of a data set: `spml check`, and the files of a benchmark for `spml prepare`."""
