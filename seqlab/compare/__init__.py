"""Several recipes on one file, in one table, and which to take."""

from seqlab.compare.ladder import LADDERS, compare, find_recipe
from seqlab.compare.rungs import LEGEND, Comparison, Rung

__all__ = ["LADDERS", "LEGEND", "Comparison", "Rung", "compare", "find_recipe"]
