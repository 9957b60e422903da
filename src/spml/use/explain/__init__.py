"""Class maps that show where the evidence for a class lies."""
