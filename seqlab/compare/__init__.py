"""Several recipes on one file, in one table, and which to take."""

from seqlab.compare.ladder import compare, find_recipe
from seqlab.compare.rungs import LEGEND, Comparison, Rung

__all__ = ["LEGEND", "Comparison", "Rung", "compare", "find_recipe"]
