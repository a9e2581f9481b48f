"""Races against other libraries on the same data, in one run: a speed is a ratio."""
