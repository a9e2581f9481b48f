"""Several recipes on one file, in one table, and which to take."""

from seqlab.compare.comparison import LEGEND, Comparison, Rung
from seqlab.compare.measure import compare, find_recipe

__all__ = ["LEGEND", "Comparison", "Rung", "compare", "find_recipe"]
