"""Labels that are likely missing, listed for review."""
