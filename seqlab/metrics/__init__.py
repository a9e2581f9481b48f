"""Scores, and the baselines they stand beside."""
