"""mask: a masked sequence to the words that are missing. A model fills each [MASK] (S18)."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from seqlab.bundle import Bundle
from seqlab.codecs.codec import Codec, Nothing
from seqlab.codecs.codec import Examples as Part
from seqlab.codecs.text import TextSource
from seqlab.equations.decoding import perplexity
from seqlab.errors import warn
from seqlab.layers.linear import Head
from seqlab.metrics.ngram import WittenBell
from seqlab.models.build import build_encoder, build_pooling, embedding_of
from seqlab.models.masked import MaskedLanguageModel
from seqlab.padded import Padded
from seqlab.recipe import Recipe
from seqlab.subject import Question, Subject
from seqlab.tasks.baselines import NGRAM_TOKENS
from seqlab.tasks.examples import (
    Examples,
    answers_in_order,
    encode_inputs,
    example_batches,
    of_examples,
    read_sources,
    source_subject,
    text_loss,
)
from seqlab.tasks.task import ANSWER_VIEWS, Job, Prediction, Report, Scoring, Task
from seqlab.text import MASK, SPECIALS, Tokenizer

CANDIDATES = 5  # guesses shown for a blank


class MaskedText(TextSource):
    """Text in which [MASK] always is a special token."""

    @classmethod
    def learn(cls, recipe: Recipe, examples: Part, old: Codec | None) -> "TextSource":
        return replace(super().learn(recipe, examples, old), markers=True)

    def typed(self, value: Any) -> str:
        """A text with a blank for its middle word."""
        words = str(value).split()
        return " ".join(
            "[MASK]" if place == len(words) // 2 else word for place, word in enumerate(words)
        )


def _build(recipe: Recipe, codec: Codec) -> nn.Module:
    encoder, num_tokens = build_encoder(recipe, codec.source.entry), len(codec.source_tokenizer)
    tied = embedding_of(encoder).weight if recipe.model.tie else None
    head = Head(encoder.output_size, num_tokens, tied=tied)
    theme = build_pooling(recipe, encoder) if recipe.model.pooling == "theme" else None
    return MaskedLanguageModel(
        encoder, head, num_tokens=num_tokens, share=recipe.model.masked, theme=theme
    )


def _predict(job: Job) -> list[Prediction]:
    """Each text with its blanks filled by the likeliest tokens, and the next likeliest for each blank."""
    model: MaskedLanguageModel = job.bundle.model
    tokenizer = job.bundle.codec.source_tokenizer
    _warn_of_no_blank(job)

    def answer(source: Padded, places: list[int]) -> Iterator[Prediction]:
        for place, ids, states in zip(places, source.rows(), model.features(source), strict=True):
            logits = model.head(states[(ids == MASK).nonzero()[:, 0]]).double()
            logits[
                :, : len(SPECIALS)
            ] = -torch.inf  # a blank is never filled with a token that is no text
            best = logits.softmax(-1).topk(min(CANDIDATES, logits.shape[-1] - len(SPECIALS)))
            guesses = zip(best.indices.tolist(), best.values.tolist(), strict=True)
            yield _filled(job.inputs[place], tokenizer, list(guesses))

    return answers_in_order(encode_inputs(job.bundle, job.inputs, first_row=job.first_row), answer)


def _evaluate(bundle: Bundle, data: Examples, scoring: Scoring) -> Report:
    """How well hidden tokens are guessed, beside guessing by frequency; the same ones are hidden each time."""
    report = Report("mask", len(data.all), text_loss(bundle, data.all, scoring.world), {})
    train = scoring.store("source")
    if train is None:
        return replace(report, baseline_note="the unigram baseline needs the training part")
    model: MaskedLanguageModel = bundle.model
    golds = (
        model.hide(batch.require("source"), batch.rows)[1]
        for batch in example_batches(bundle, data.all)
    )
    hidden = np.concatenate([gold.values[gold.scored].numpy(force=True) for gold in golds])
    if not len(hidden):
        return replace(report, baseline_note="in so short a text no token was hidden to guess")
    tokens = np.asarray(train.flat[:NGRAM_TOKENS])
    unigram = WittenBell(1, len(bundle.codec.source_tokenizer)).fit(tokens)
    mean = float(-unigram.log_probabilities(hidden).mean())
    baseline = {"loss": mean, "perplexity": perplexity(mean), "bits_per_token": mean / math.log(2)}
    baseline["token_accuracy"] = float(
        (hidden == np.bincount(tokens[tokens >= len(SPECIALS)]).argmax()).mean()
    )
    return replace(report, baselines={"by frequency": baseline})


def _subject(question: Question) -> Subject:
    """The likeliest token for each blank, and what stands there elsewhere."""
    subject = source_subject(question)
    with torch.inference_mode():
        best = subject.logits().argmax(-1)
    read = cast(Padded, subject.reads).values[0]
    ids = torch.where(read == MASK, best, read).tolist()
    return subject.answering(tuple(ids), tuple(question.bundle.codec.source_tokenizer.pieces(ids)))


def _warn_of_no_blank(job: Job) -> None:
    without = [row for row, text in enumerate(job.inputs) if "[MASK]" not in text and text.strip()]
    if without:
        more = f" (and {len(without) - 1} more)" if len(without) > 1 else ""
        line = job.first_row + without[0] + 1
        warn(f"line {line}: there is no [MASK] to fill{more}; write one where a word is missing")


def _filled(
    text: str, tokenizer: Tokenizer, guesses: list[tuple[list[int], list[float]]]
) -> Prediction:
    """A text with the best guess in each blank."""
    blanks = [
        [
            {"token": tokenizer.decode([i]).strip(), "probability": p}
            for i, p in zip(ids, ps, strict=True)
        ]
        for ids, ps in guesses
    ]
    written = text
    for blank in blanks:
        written = written.replace("[MASK]", str(blank[0]["token"]), 1)
    return Prediction(text, written, {"blanks": blanks})


# Some tokens of a text are hidden, and the model guesses them from both sides.
MASK_TASK = Task(
    name="mask",
    ladder=("bilstm-mask", "bert-tiny"),
    judged_by=("loss",),
    data_kind=of_examples,
    reads=lambda recipe: MaskedText,
    writes=lambda recipe: Nothing,
    read=read_sources,
    build=_build,
    predict=_predict,
    evaluate=_evaluate,
    subject=_subject,
    special_settings=("split",),
    views=lambda bundle: (*ANSWER_VIEWS, "cells"),
)
