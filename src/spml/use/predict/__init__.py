"""Probabilities and tags for new items."""
