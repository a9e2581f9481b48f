"""How a network learns unless its task says otherwise: by gradient descent, in one process or in many."""

from torch import nn

from seqlab.corpus.examples import Corpus
from seqlab.errors import UsageError
from seqlab.layers.transformer import BatchNorm
from seqlab.recipe import Recipe
from seqlab.training.gradient import GradientLearner
from seqlab.training.run import Learner
from seqlab.training.world import World


def gradient_learner(recipe: Recipe, network: nn.Module, corpus: Corpus, world: World) -> Learner:
    """Gradient descent on the batches of the training part."""
    if world.size > 1 and any(isinstance(module, BatchNorm) for module in network.modules()):
        raise UsageError(
            "a batch norm looks at the whole batch",
            hint="train with normalise=layer and without model.pooling_norm, or without torchrun.",
        )
    return GradientLearner(network, corpus.train, recipe.train, world)


def refuse_many_processes(recipe: Recipe, world: World) -> None:
    """EM and counting read the whole training part in one process."""
    if world.size > 1:
        raise UsageError(f"recipe '{recipe.name}' is fitted by one process", hint="train it without torchrun.")
