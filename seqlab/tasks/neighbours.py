"""The nearest neighbour of a recipe: built, and given its examples."""

from typing import cast

import numpy as np
import torch
from torch import nn

from seqlab.codecs.codec import Codec
from seqlab.codecs.ngrams import NgramSource
from seqlab.corpus.examples import Corpus
from seqlab.data.store import TokenStore
from seqlab.models.neighbours import NeighbourDecoder, NeighbourEncoder, NeighbourModel
from seqlab.recipe import Neighbours, Recipe
from seqlab.tasks.linear import sources, training_rows
from seqlab.tasks.task import gradient_learner, refuse_many_processes
from seqlab.text import EOS
from seqlab.training.average import load_weights, parameters_of
from seqlab.training.counting import CountingLearner
from seqlab.training.run import Learner
from seqlab.world import World


def neighbour_model(settings: Neighbours, codec: Codec) -> nn.Module:
    """A model without examples."""
    vocabulary = cast(NgramSource, codec.source).vocabulary
    encoder = NeighbourEncoder(len(vocabulary.words), len(vocabulary), settings)
    return NeighbourModel(encoder, NeighbourDecoder(len(codec.target_tokenizer), EOS))


def neighbours_or_gradient(
    recipe: Recipe, network: nn.Module, corpus: Corpus, world: World
) -> Learner:
    """Neighbours are read by one process; layers descend along gradients."""
    if recipe.model.neighbours is None:
        return gradient_learner(recipe, network, corpus, world)
    refuse_many_processes(recipe, world)
    return _neighbour_learner(network, corpus)


def _neighbour_learner(model: nn.Module, corpus: Corpus) -> Learner:
    """All examples of the training part are kept."""
    rows, known = training_rows(corpus), cast(NeighbourModel, model)
    table = known.encoder.ngrams.measure(sources(rows, torch.arange(len(rows))))
    target = cast(TokenStore, rows.target)
    flat = np.asarray(target.flat).astype(np.int32)
    weights = {
        "encoder.ngrams.idf": known.encoder.ngrams.idf.detach(),
        "encoder.ids": table.ids.int(),
        "encoder.values": cast(torch.Tensor, table.values),
        "encoder.offsets": table.offsets.int(),
        "decoder.targets": torch.from_numpy(flat),
        "decoder.starts": torch.from_numpy(target.begins.astype(np.int32)),
    }
    load_weights(model, weights)
    return CountingLearner(model, parameters_of(model), by="keeping the examples")
