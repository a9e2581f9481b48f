"""Wiring: encoders, decoders, heads, and the models made of them."""
