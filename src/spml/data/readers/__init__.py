"""Readers: files of labels in, label tables out."""
