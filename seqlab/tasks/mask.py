"""mask: a masked sequence to the words that are missing. A model fills each [MASK] (S18)."""

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from seqlab.bundle import Bundle
from seqlab.codecs.codec import Codec, Examples, Nothing, SourceType, TargetType, padded
from seqlab.codecs.text import TextSource
from seqlab.corpus.examples import Corpus
from seqlab.data.sources import Example
from seqlab.equations.decoding import perplexity
from seqlab.errors import SeqlabWarning
from seqlab.layers.linear import Head
from seqlab.metrics.ngram import WittenBell
from seqlab.models.build import build_encoder, build_pooling, embedding_of
from seqlab.models.masked import MaskedLanguageModel
from seqlab.recipe import Decode, Recipe
from seqlab.subject import Question, Subject
from seqlab.tasks import checks
from seqlab.tasks.baselines import NGRAM_TOKENS
from seqlab.tasks.examples import (
    EXAMPLES,
    batches,
    encode_inputs,
    example_batches,
    example_loss,
    gradient_learner,
    looked_at,
    open_store,
    read_lines,
    writes_no_text,
)
from seqlab.tasks.task import ANSWER_VIEWS, DataKind, Job, Opening, Prediction, Report, Scoring
from seqlab.text import MASK, SPECIALS, Tokenizer
from seqlab.training.run import Learner
from seqlab.world import World

CANDIDATES = 5  # guesses shown for a blank


class MaskedText(TextSource):
    """Text in which [MASK] always is a special token."""

    @classmethod
    def learn(cls, recipe: Recipe, examples: Examples, old: Codec | None) -> "TextSource":
        return replace(super().learn(recipe, examples, old), markers=True)

    def typed(self, value: Any) -> str:
        """A text with a blank for its middle word."""
        words = str(value).split()
        return " ".join("[MASK]" if place == len(words) // 2 else word for place, word in enumerate(words))


class FillBlanks:
    """Some tokens of a text are hidden, and the model guesses them from both sides."""

    name = "mask"
    tuned = ""
    ladder = ("bilstm-mask", "bert-tiny")
    recurrent = ""
    judged_by = ("loss",)
    ask = ""

    def check(self, recipe: Recipe) -> None:
        checks.check_settings(recipe, "split")
        checks.check_parts(recipe, encoder=True)

    def data_kind(self, recipe: Recipe) -> DataKind:
        return EXAMPLES

    def reads(self, recipe: Recipe) -> SourceType:
        return MaskedText

    def writes(self, recipe: Recipe) -> TargetType:
        return Nothing

    def read(self, recipe: Recipe, files: Sequence[str]) -> Iterator[Example]:
        return (Example(line, "", where) for where, line in read_lines(files))

    def build(self, recipe: Recipe, codec: Codec) -> nn.Module:
        encoder, num_tokens = build_encoder(recipe, codec.source.entry), len(codec.source_tokenizer)
        tied = embedding_of(encoder).weight if recipe.model.tie else None
        head = Head(encoder.output_size, num_tokens, tied=tied)
        theme = build_pooling(recipe, encoder) if recipe.model.pooling == "theme" else None
        return MaskedLanguageModel(encoder, head, num_tokens=num_tokens, share=recipe.model.masked, theme=theme)

    def learner(self, recipe: Recipe, network: nn.Module, corpus: Corpus, world: World) -> Learner:
        return gradient_learner(recipe, network, corpus, world)

    def validate(self, bundle: Bundle, data: Any) -> dict[str, float]:
        return {}

    @torch.inference_mode()
    def predict(self, job: Job) -> list[Prediction]:
        """Each text with its blanks filled by the likeliest tokens, and the next likeliest for each blank."""
        model, tokenizer = cast(MaskedLanguageModel, job.bundle.model), job.bundle.codec.source_tokenizer
        _warn_of_no_blank(job)
        sources = encode_inputs(job.bundle, job.inputs, first_row=job.first_row)
        answers: dict[int, Prediction] = {}
        for rows in batches([len(source) for source in sources]):
            source = padded([sources[row] for row in rows])
            features = model.features(source)
            for row, ids, states in zip(rows, source.rows(), features, strict=True):
                blanks = (ids == MASK).nonzero()[:, 0]
                logits = model.head(states[blanks]).double()
                logits[:, : len(SPECIALS)] = -torch.inf  # a blank is never filled with a token that is no text
                best = logits.softmax(-1).topk(min(CANDIDATES, logits.shape[-1] - len(SPECIALS)))
                guesses = zip(best.indices.tolist(), best.values.tolist(), strict=True)
                answers[row] = _filled(job.inputs[row], tokenizer, list(guesses))
        return [answers[row] for row in range(len(job.inputs))]

    def evaluate(self, bundle: Bundle, data: Any, scoring: Scoring) -> Report:
        """How well hidden tokens are guessed, beside guessing by frequency; the same ones are hidden each time."""
        examples = data.all
        scores = example_loss(bundle, examples, scoring.world)
        scores["bits_per_token"] = scores["loss"] / math.log(2)
        report = Report(self.name, len(examples), scores, {})
        train = open_store(scoring.train, "train_source")
        if train is None:
            return replace(report, floor_note="the unigram floor needs the training part")
        model = cast(MaskedLanguageModel, bundle.model)
        golds = (model.hide(b.source, b.rows)[1] for b in example_batches(bundle, examples) if b.source is not None)
        hidden = np.concatenate([gold.values[gold.scored].numpy(force=True) for gold in golds])
        if not len(hidden):
            return replace(report, floor_note="in so short a text no token was hidden to guess")
        tokens = np.asarray(train.flat[:NGRAM_TOKENS])
        unigram = WittenBell(1, len(bundle.codec.source_tokenizer)).fit(tokens)
        mean = float(-unigram.log_probabilities(hidden).mean())
        floor = {"loss": mean, "perplexity": perplexity(mean), "bits_per_token": mean / math.log(2)}
        floor["token_accuracy"] = float((hidden == np.bincount(tokens[tokens >= len(SPECIALS)]).argmax()).mean())
        return replace(report, floors={"by frequency": floor})

    def opening(self, bundle: Bundle, value: Any, decode: Decode) -> Opening:
        raise writes_no_text(self)

    def subject(self, question: Question) -> Subject:
        """The likeliest token for each blank, and what stands there elsewhere."""
        subject = looked_at(question)
        with torch.inference_mode():
            best = subject.logits().argmax(-1)
        read = cast(Any, subject.reads).values[0]
        ids = torch.where(read == MASK, best, read).tolist()
        return subject.answering(tuple(ids), tuple(question.bundle.codec.source_tokenizer.pieces(ids)))

    def views(self, bundle: Bundle) -> tuple[str, ...]:
        return (*ANSWER_VIEWS, "cells")


def _warn_of_no_blank(job: Job) -> None:
    without = [row for row, text in enumerate(job.inputs) if "[MASK]" not in text and text.strip()]
    if without:
        more = f" (and {len(without) - 1} more)" if len(without) > 1 else ""
        line = job.first_row + without[0] + 1
        message = f"line {line}: there is no [MASK] to fill{more}; write one where a word is missing"
        warnings.warn(message, SeqlabWarning, stacklevel=2)


def _filled(text: str, tokenizer: Tokenizer, guesses: list[tuple[list[int], list[float]]]) -> Prediction:
    """A text with the best guess in each blank."""
    blanks = [
        [{"token": tokenizer.decode([i]).strip(), "probability": p} for i, p in zip(ids, ps, strict=True)]
        for ids, ps in guesses
    ]
    written = text
    for blank in blanks:
        written = written.replace("[MASK]", str(blank[0]["token"]), 1)
    return Prediction(text, written, {"blanks": blanks})
