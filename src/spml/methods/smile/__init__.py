"""SMILE, on pictures and on feature vectors."""
