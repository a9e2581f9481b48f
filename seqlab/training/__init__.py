"""Fitting a model to batches."""
