"""Calibrated probabilities and thresholds."""
