"""Linear classifiers of a recipe: built, and fitted to a corpus."""

from typing import cast

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn

from seqlab.codecs.codec import Codec
from seqlab.codecs.labels import labels_in
from seqlab.codecs.ngrams import NgramSource
from seqlab.corpus.examples import Corpus, ExampleBatches
from seqlab.data.batching import Rows
from seqlab.data.store import TokenStore
from seqlab.models.linear import LinearText
from seqlab.padded import Padded
from seqlab.recipe import Linear, Recipe
from seqlab.tasks.task import gradient_learner, refuse_many_processes
from seqlab.training.convex import ConvexLearner, LogisticRegression
from seqlab.training.run import Learner
from seqlab.world import World

STRENGTHS = (1.0, 3.0, 10.0, 30.0)  # tried one after another
ROWS = 500  # examples read together


def linear_classifier(codec: Codec) -> nn.Module:
    """A linear classifier that knows nothing yet."""
    vocabulary = cast(NgramSource, codec.source).vocabulary
    return LinearText(len(vocabulary.words), len(vocabulary), len(labels_in(codec)))


def linear_or_gradient(recipe: Recipe, network: nn.Module, corpus: Corpus, world: World) -> Learner:
    """A linear classifier is fitted to the whole training part by one process; layers descend along gradients."""
    if recipe.model.linear is None:
        return gradient_learner(recipe, network, corpus, world)
    refuse_many_processes(recipe, world)
    return _linear_learner(recipe, recipe.model.linear, network, corpus)


def _linear_learner(recipe: Recipe, settings: Linear, model: nn.Module, corpus: Corpus) -> Learner:
    """Logistic regression on the whole training part; an example without a label tells nothing."""
    text, rows = cast(LinearText, model), training_rows(corpus)
    labels = torch.from_numpy(np.asarray(cast(TokenStore, rows.target).flat, dtype=np.int64))
    known = torch.nonzero(labels >= 0)[:, 0]
    table = text.ngrams.measure(sources(rows, known))
    problem = LogisticRegression(table, labels[known], len(text.weight))
    strengths = STRENGTHS if settings.strength is None else (settings.strength,)
    return ConvexLearner(model, [text.weight, text.bias], problem, recipe.train, strengths)


def training_rows(corpus: Corpus) -> Rows:
    """The training part as it lies on disk."""
    return cast(Rows, cast(ExampleBatches, corpus.train).rows)


def sources(rows: Rows, places: Int[Tensor, " N"]) -> list[Padded]:
    """The sources at these places, in their order, a few rows at a time."""
    return [rows.batch(some.numpy()).require("source") for some in places.split(ROWS)]
