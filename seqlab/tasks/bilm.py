"""The task `bilm`: bidirectional language models, whose layers are features for other models (S19)."""

import itertools
from typing import cast

import numpy as np
from jaxtyping import Int
from torch import nn

from seqlab.bundle import Bundle
from seqlab.codecs.codec import Codec, Nothing
from seqlab.codecs.text import TextSource
from seqlab.data.store import TokenStore
from seqlab.errors import UsageError
from seqlab.layers.inputs import Embedding
from seqlab.models.build import build_head
from seqlab.models.elmo import BidirectionalLanguageModel, BidirectionalReaders
from seqlab.recipe import Recipe, StackConfig
from seqlab.tasks.baselines import NGRAM_TOKENS, ngram_baselines
from seqlab.tasks.examples import Examples, of_examples, read_sources, text_loss
from seqlab.tasks.task import Job, Prediction, Report, Scoring, Task, no_subject
from seqlab.text import EOS, SOS


def _check(recipe: Recipe) -> None:
    encoder = recipe.model.encoder
    if not isinstance(encoder, StackConfig) or encoder.size != recipe.model.embedding:
        raise ValueError(
            "a 'bilm' model needs a recurrent encoder, and model.embedding as large as encoder.size"
        )
    if encoder.bidirectional or encoder.connection == "dense":
        raise ValueError(
            "a 'bilm' model has an encoder for each direction: bidirectional = false, and not dense"
        )


def _build(recipe: Recipe, codec: Codec) -> nn.Module:
    stack = cast(StackConfig, recipe.model.encoder)
    embedding = Embedding(len(codec.source_tokenizer), stack.size, name="bilm")
    readers = BidirectionalReaders(
        embedding, stack, entering=recipe.model.entrance_dropout, dropout=recipe.model.dropout
    )
    return BidirectionalLanguageModel(readers, build_head(recipe, readers.embedding, stack.size))


def _predict(job: Job) -> list[Prediction]:
    raise UsageError(
        "a bidirectional language model has no answers of its own",
        hint="`predict --embed` gives its vectors, and `train tag DATA --from MODEL` uses them as features.",
    )


def _evaluate(bundle: Bundle, data: Examples, scoring: Scoring) -> Report:
    """Score the model by its loss in both directions, next to that of n-grams, which read in one."""
    scores, train = text_loss(bundle, data.all, scoring.world), scoring.store("source")
    held_out = [np.asarray([SOS, *source, EOS]) for source, _ in bundle.codec.encode(data.all)]
    tokens = None if train is None else _between_ends(train)
    baselines, note = ngram_baselines(tokens, held_out, bundle.codec.source_tokenizer)
    return Report("bilm", len(data.all), scores, baselines, baseline_note=note)


def _between_ends(store: TokenStore) -> Int[np.ndarray, " N"]:
    """Concatenate the rows of a store, each between SOS and EOS, as the model reads them."""
    rows = itertools.takewhile(lambda row: store.begins[row] < NGRAM_TOKENS, range(len(store)))
    return np.concatenate([part for row in rows for part in ([SOS], store[row], [EOS])])


# Two language models of one text: each token is predicted from all tokens before it, and from all after it.
BILM = Task(
    name="bilm",
    ladder=("elmo",),
    judged_by=("loss",),
    data_kind=of_examples,
    reads=lambda recipe: TextSource,
    writes=lambda recipe: Nothing,
    read=read_sources,
    build=_build,
    predict=_predict,
    evaluate=_evaluate,
    subject=no_subject("`predict --embed` gives its vectors."),
    special_settings=("split",),
    check=_check,
    predict_arguments=" --embed",
)
