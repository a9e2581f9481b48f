"""Scores, and the floors they stand beside."""
