"""The hidden Markov model of a recipe: drawn by chance, and as it is to be fitted to a corpus."""

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import nn

from seqlab.assemble.corpus import Corpus, ExampleBatches
from seqlab.assemble.vocabularies import Vocabularies
from seqlab.data.batching import Rows, plan_in_order
from seqlab.data.store import TokenStore
from seqlab.models.hidden import HMMDecoder, HMMTagger, Probabilities, label_chain
from seqlab.models.hmm import HMM, Untied
from seqlab.models.language_model import LanguageModel
from seqlab.padded import Padded
from seqlab.recipe import Hidden, Recipe
from seqlab.text import SOS, UNK, Tokenizer, WordTokenizer
from seqlab.training.baum_welch import EMSteps, HMMData, HMMSettings, Pseudo, rows_at_once
from seqlab.training.counting import CountingLearner, Symbols, count_labels
from seqlab.training.hmm_em import HMMLearner
from seqlab.training.hmm_fit import Family, draw_hmm
from seqlab.training.run import Learner


def hidden_model(recipe: Recipe, vocabularies: Vocabularies) -> nn.Module:
    """A tagger or a language model that knows nothing yet."""
    hmm = _drawn(recipe, vocabularies)
    if recipe.task == "lm":
        return LanguageModel(HMMDecoder(hmm, first=SOS))
    return HMMTagger(hmm, path=_settings(recipe).decode == "viterbi")


def probabilities_of(model: nn.Module) -> Probabilities:
    """Where a model keeps its hidden Markov model."""
    return next(module for module in model.modules() if isinstance(module, Probabilities))


def hidden_learner(recipe: Recipe, corpus: Corpus, model: nn.Module) -> Learner:
    """Complete labels are counted; some of them, or none, are for EM. With some, EM leans on what they count."""
    hmm = probabilities_of(model)
    settings, search = _settings(recipe), HMMSettings(tolerance=recipe.train.tolerance)
    like = _drawn(recipe, corpus.vocabularies)
    parts = list(_evidence(recipe, corpus, like.num_states))
    if recipe.task == "lm":
        pseudo = Pseudo(settings.smoothing, settings.smoothing, settings.smoothing)
        em = EMSteps(parts, like, settings=search, pseudo=pseudo)
        return HMMLearner(hmm, lambda restart: _drawn(recipe, corpus.vocabularies, restart), em, recipe.train)
    vocabularies, names = corpus.vocabularies, corpus.vocabularies.classes.names
    emitted = (
        Family(len(names), settings.emissions) if vocabularies.features is not None else _symbols(vocabularies.sources)
    )
    counted = count_labels(parts, names, emitted, order=settings.order, smoothing=settings.smoothing)
    known = all(bool((part.known_labels[part.observations.real] >= 0).all()) for part in parts)
    if known:
        return CountingLearner(hmm, counted.model)
    em = EMSteps(parts, counted.model, settings=search, pseudo=counted.pseudo)
    return HMMLearner(hmm, lambda restart: counted.model, em, recipe.train, by_validation=True)


def _settings(recipe: Recipe) -> Hidden:
    assert recipe.model.hmm is not None
    return recipe.model.hmm


def _drawn(recipe: Recipe, vocabularies: Vocabularies, restart: int = 0) -> HMM:
    settings, seed = _settings(recipe), recipe.train.seed
    if recipe.task == "lm":
        family, width = Family(settings.states or 1), len(vocabularies.targets)
        return draw_hmm(family, width, seed=seed, restart=restart)
    family, features = Family(len(vocabularies.classes), settings.emissions), vocabularies.features
    width = len(vocabularies.sources) if features is None else len(features.mean)
    one = draw_hmm(family, width, seed=seed, restart=restart)
    moves = one.transitions if settings.order == 1 else one.transitions.repeat(family.num_states + 1, 1, 1)
    return label_chain(one.initial, moves, cast(Untied, one.emissions))


def _evidence(recipe: Recipe, corpus: Corpus, num_states: int) -> Iterator[HMMData]:
    """The training part, rows of like length together; one endless text is cut into rows of `train.bptt` tokens."""
    batches = corpus.train
    rows = batches.rows if isinstance(batches, ExampleBatches) else _cut(batches.streams.flat, recipe.train.bptt)
    for places in plan_in_order(rows.lengths, budget=rows_at_once(num_states)):
        batch = rows.batch(places)
        target = cast(Padded, batch.target)
        if batch.source is not None:
            yield HMMData(batch.source, labels=target.values)
        elif isinstance(batches, ExampleBatches):  # SOS is not emitted: it is where the chain begins
            yield HMMData(Padded(target.values[:, 1:], target.lengths - 1))
        else:
            yield HMMData(target)


def _cut(flat: np.ndarray, steps: int) -> Rows:
    offsets = np.append(np.arange(0, len(flat), steps), len(flat))
    return Rows(target=TokenStore(Path(), flat, offsets, 0))


def _symbols(tokenizer: Tokenizer) -> Symbols:
    if isinstance(tokenizer, WordTokenizer):
        return Symbols(torch.tensor(tokenizer.parents()), tokenizer.num_words, root=UNK)
    return Symbols(torch.full((len(tokenizer),), UNK), len(tokenizer), root=UNK)
