"""Seqlab: a laboratory for sequence models, from the hidden Markov model to the Transformer.

import seqlab
run = seqlab.train("translate", "pairs.tsv", out="runs/pairs")
model = seqlab.load("runs/pairs")
model.predict("samedi 3 mai 1997").output
model.evaluate("test.tsv").scores
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqlab.lab import Model, Trained, load, train
    from seqlab.recipe import Recipe, load_recipe, recipe_names

__version__ = "0.1.0"
__all__ = [
    "Model",
    "Recipe",
    "SeqlabError",
    "Trained",
    "load",
    "load_recipe",
    "recipe_names",
    "train",
]

from seqlab.errors import SeqlabError
from seqlab.machine import limit_product_caches, sleep_while_waiting

_MODULES = {
    **dict.fromkeys(("Model", "Trained", "load", "train"), "seqlab.lab"),
    **dict.fromkeys(("Recipe", "load_recipe", "recipe_names"), "seqlab.recipe"),
}


def __getattr__(name: str) -> Any:
    """Import public names when they are first used, so that `import seqlab` does not import torch."""
    if name not in _MODULES:
        raise AttributeError(f"module 'seqlab' has no attribute '{name}'")
    sleep_while_waiting()
    limit_product_caches()
    return getattr(import_module(_MODULES[name]), name)
