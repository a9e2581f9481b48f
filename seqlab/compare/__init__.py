"""Several recipes on one file, in one table, and which to take."""

from seqlab.compare.comparison import LEGEND, Comparison, RecipeResult
from seqlab.compare.measure import compare, find_recipe

__all__ = ["LEGEND", "Comparison", "RecipeResult", "compare", "find_recipe"]
