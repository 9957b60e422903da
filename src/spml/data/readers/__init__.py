"""Readers: one per format, from files of labels to label tables."""
