"""bilm: a sequence read from both ends. Its layers are features for other models (S19)."""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
from jaxtyping import Int
from torch import nn

from seqlab.bundle import Bundle
from seqlab.codecs.codec import Codec, Nothing, SourceType, TargetType
from seqlab.codecs.text import TextSource
from seqlab.corpus.examples import Corpus
from seqlab.data.sources import Example
from seqlab.data.store import TokenStore
from seqlab.errors import UsageError
from seqlab.layers.inputs import Embedding
from seqlab.models.build import build_head
from seqlab.models.elmo import BidirectionalLanguageModel, TwoReaders
from seqlab.recipe import Decode, Recipe, Stack
from seqlab.subject import Question, Subject
from seqlab.tasks import checks
from seqlab.tasks.baselines import NGRAM_TOKENS, ngram_baselines
from seqlab.tasks.examples import (
    EXAMPLES,
    example_loss,
    gradient_learner,
    open_store,
    read_lines,
    writes_no_text,
)
from seqlab.tasks.task import DataKind, Job, Opening, Prediction, Report, Scoring
from seqlab.text import EOS, SOS
from seqlab.training.run import Learner
from seqlab.world import World


class BothDirections:
    """Two language models over one text: each token is predicted from all before it, and from all after it."""

    name = "bilm"
    tuned = ""
    ladder = ("elmo",)
    recurrent = ""
    judged_by = ("loss",)
    ask = " --embed"

    def check(self, recipe: Recipe) -> None:
        checks.check_settings(recipe, "split")
        checks.check_parts(recipe, encoder=True)
        encoder = recipe.model.encoder
        if not isinstance(encoder, Stack) or encoder.size != recipe.model.embedding:
            raise ValueError("a 'bilm' model has a recurrent encoder, with model.embedding as large as encoder.size")
        if encoder.bidirectional or encoder.connection == "dense":
            raise ValueError("a 'bilm' model reads each direction by itself: bidirectional = false, and not dense")

    def data_kind(self, recipe: Recipe) -> DataKind:
        return EXAMPLES

    def reads(self, recipe: Recipe) -> SourceType:
        return TextSource

    def writes(self, recipe: Recipe) -> TargetType:
        return Nothing

    def read(self, recipe: Recipe, files: Sequence[str]) -> Iterator[Example]:
        return (Example(line, "", where) for where, line in read_lines(files))

    def build(self, recipe: Recipe, codec: Codec) -> nn.Module:
        stack = cast(Stack, recipe.model.encoder)
        embedding = Embedding(len(codec.source_tokenizer), stack.size, name="bilm")
        readers = TwoReaders(embedding, stack, entering=recipe.model.entering, dropout=recipe.model.dropout)
        return BidirectionalLanguageModel(readers, build_head(recipe, readers.embedding, stack.size))

    def learner(self, recipe: Recipe, network: nn.Module, corpus: Corpus, world: World) -> Learner:
        return gradient_learner(recipe, network, corpus, world)

    def validate(self, bundle: Bundle, data: Any) -> dict[str, float]:
        return {}

    def predict(self, job: Job) -> list[Prediction]:
        raise UsageError(
            "a bidirectional language model answers nothing by itself",
            hint="`predict --embed` gives its vectors, and `train tag DATA --from MODEL` uses them as features.",
        )

    def evaluate(self, bundle: Bundle, data: Any, scoring: Scoring) -> Report:
        """The loss in both directions, beside that of n-grams, which read in one."""
        scores = example_loss(bundle, data.all, scoring.world)
        scores["bits_per_token"] = scores["loss"] / math.log(2)
        train = open_store(scoring.train, "train_source")
        held_out = [np.asarray([SOS, *source, EOS]) for source, _ in bundle.codec.encode(data.all)]
        tokens = None if train is None else _between_ends(train)
        floors, note = ngram_baselines(tokens, held_out, bundle.codec.source_tokenizer)
        return Report(self.name, len(data.all), scores, floors, floor_note=note)

    def opening(self, bundle: Bundle, value: Any, decode: Decode) -> Opening:
        raise writes_no_text(self)

    def subject(self, question: Question) -> Subject:
        raise UsageError(
            "a 'bilm' model gives no answer in tokens or labels to look into",
            hint="`predict --embed` gives its vectors.",
        )

    def views(self, bundle: Bundle) -> tuple[str, ...]:
        return ()


def _between_ends(store: TokenStore) -> Int[np.ndarray, " N"]:
    """The rows of a store end to end, each between SOS and EOS, as the model reads them."""
    rows = itertools.takewhile(lambda row: store.offsets[row] < NGRAM_TOKENS, range(len(store)))
    return np.concatenate([part for row in rows for part in ([SOS], store[row], [EOS])])
