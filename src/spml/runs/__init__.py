"""The run folder: what training writes and every other command reads."""
