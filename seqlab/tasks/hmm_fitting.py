"""Building hidden Markov models for tasks, with random initial parameters, and their learners."""

from collections.abc import Iterator
from functools import partial
from typing import cast

import numpy as np
import torch
from torch import nn

from seqlab.codecs.codec import Codec
from seqlab.codecs.labels import labels_in
from seqlab.corpus.examples import Corpus, ExampleBatches
from seqlab.data.batching import Rows, plan_in_order
from seqlab.data.store import TokenStore
from seqlab.data.streams import Streams
from seqlab.models.hmm import HMM, HMMDecoder, HMMTagger, Probabilities, label_chain
from seqlab.models.seq2seq import LanguageModel
from seqlab.padded import Padded, Tokens
from seqlab.recipe import HMMConfig, Recipe
from seqlab.text import SOS, UNK, Tokenizer, WordTokenizer
from seqlab.training.baum_welch import EMSteps, HMMData, PseudoCounts, rows_at_once
from seqlab.training.counting import CountingLearner, Symbols, count_labels
from seqlab.training.hmm_em import HMMLearner, HMMShape, draw_hmm
from seqlab.training.run import Learner


def check_hmm(recipe: Recipe, hmm: HMMConfig) -> None:
    """Raise a ValueError if [model.hmm] does not suit the other settings of a recipe."""
    for name in ("encoder", "decoder", "characters", "elmo", "vectors"):
        if getattr(recipe.model, name) is not None:
            raise ValueError(f"[model.hmm] replaces all layers: leave out 'model.{name}'")
    reads_vectors = recipe.source.kind == "vectors"
    if reads_vectors != (hmm.emissions != "categorical"):
        emit = "words" if hmm.emissions == "categorical" else "vectors"
        raise ValueError(
            f"'{hmm.emissions}' states emit {emit}: model.hmm.emissions does not fit source.kind"
        )
    if recipe.train.epochs is not None:
        raise ValueError(
            "[model.hmm] needs train.steps, the iterations of EM, instead of train.epochs"
        )


def hmm_language_model(recipe: Recipe, settings: HMMConfig, codec: Codec) -> nn.Module:
    """Build an untrained language model with unnamed states."""
    return LanguageModel(HMMDecoder(_draw_states(recipe, settings, codec), first=SOS))


def hmm_tagger(recipe: Recipe, settings: HMMConfig, codec: Codec) -> nn.Module:
    """Build an untrained tagger whose states are labels."""
    return HMMTagger(_draw_labels(recipe, settings, codec), path=settings.decode == "viterbi")


def probabilities_of(model: nn.Module) -> Probabilities:
    """Return the module that holds the parameters of a model's hidden Markov model."""
    return next(module for module in model.modules() if isinstance(module, Probabilities))


def hmm_learner(recipe: Recipe, settings: HMMConfig, model: nn.Module, corpus: Corpus) -> Learner:
    """Return a learner: counting if all labels are known, else EM, with the counts of known labels as a prior."""
    hmm, tolerance = probabilities_of(model), recipe.train.tolerance
    if settings.states is not None:
        draw = partial(_draw_states, recipe, settings, corpus.codec)
        parts = list(_training_data(recipe, corpus, settings.states))
        pseudo = PseudoCounts(settings.smoothing, settings.smoothing, settings.smoothing)
        em = EMSteps(parts, draw(0), tolerance=tolerance, pseudo=pseudo)
        return HMMLearner(hmm, draw, em, recipe.train)
    names = labels_in(corpus.codec).names
    num_states = _draw_labels(recipe, settings, corpus.codec).num_states
    parts = list(_training_data(recipe, corpus, num_states))
    tokenizers = corpus.codec.tokenizers
    emitted = (
        _symbols(tokenizers["source"]) if tokenizers else HMMShape(len(names), settings.emissions)
    )
    counted = count_labels(
        parts, names, emitted, order=settings.order, smoothing=settings.smoothing
    )
    all_known = all(bool((part.known_labels[part.observations.real] >= 0).all()) for part in parts)
    if all_known:
        return CountingLearner(hmm, counted.model.tensors())
    em = EMSteps(parts, counted.model, tolerance=tolerance, pseudo=counted.pseudo)
    return HMMLearner(hmm, lambda restart: counted.model, em, recipe.train, by_validation=True)


def _draw_states(recipe: Recipe, settings: HMMConfig, codec: Codec, restart: int = 0) -> HMM:
    family, num_tokens = HMMShape(settings.states or 1), len(codec.target_tokenizer)
    return draw_hmm(family, num_tokens, seed=recipe.train.seed, restart=restart)


def _draw_labels(recipe: Recipe, settings: HMMConfig, codec: Codec) -> HMM:
    family, entry = HMMShape(len(labels_in(codec)), settings.emissions), codec.source.entry
    width = entry.num_tokens if isinstance(entry, Tokens) else len(entry.mean)
    first_order = draw_hmm(family, width, seed=recipe.train.seed)
    transitions = first_order.transitions
    if settings.order > 1:
        transitions = transitions.repeat(family.num_states + 1, 1, 1)
    return label_chain(first_order.initial, transitions, first_order.emissions)


def _training_data(recipe: Recipe, corpus: Corpus, num_states: int) -> Iterator[HMMData]:
    """Yield the training part in batches of similar length; one long text is cut into rows of `train.bptt` tokens."""
    batches = corpus.train
    if isinstance(batches, Streams):
        flat, steps = batches.flat, recipe.train.bptt
        begins = np.arange(0, len(flat), steps)
        rows = Rows(target=TokenStore(flat, begins, np.minimum(begins + steps, len(flat))))
    else:
        rows = cast(Rows, cast(ExampleBatches, batches).rows)
    for numbers in plan_in_order(rows.lengths, budget=rows_at_once(num_states)):
        batch = rows.batch(numbers)
        target = batch.require("target")
        if batch.source is not None:
            yield HMMData(batch.source, labels=target.values)
        elif isinstance(batches, ExampleBatches):
            # SOS is not emitted: it is the start of the chain
            yield HMMData(Padded(target.values[:, 1:], target.lengths - 1))
        else:
            yield HMMData(target)


def _symbols(tokenizer: Tokenizer) -> Symbols:
    """Return the symbols that states emit; unknown words are grouped by their endings."""
    if isinstance(tokenizer, WordTokenizer):
        return Symbols(torch.tensor(tokenizer.parents()), tokenizer.num_words, root=UNK)
    return Symbols(torch.full((len(tokenizer),), UNK), len(tokenizer), root=UNK)
