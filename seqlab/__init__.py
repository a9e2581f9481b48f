"""Seqlab: a laboratory for sequence models."""
