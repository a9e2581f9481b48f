"""Scores, and simple baselines to compare them with."""
