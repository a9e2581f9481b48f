"""The task `mask`: masked language models, which fill each [MASK] (S18)."""

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
    text_loss,
)
from seqlab.tasks.subjects import source_subject
from seqlab.tasks.task import ANSWER_VIEWS, Job, Prediction, Report, Scoring, Task
from seqlab.text import MASK, SPECIALS, Tokenizer

# candidates that are shown for each [MASK]
CANDIDATES = 5


class MaskedText(TextSource):
    """A text source in which [MASK] always is a special token."""

    @classmethod
    def learn(cls, recipe: Recipe, examples: Part, old: Codec | None) -> "TextSource":
        return replace(super().learn(recipe, examples, old), markers=True)

    def typed(self, value: Any) -> str:
        """Return the text with its middle word replaced by [MASK]."""
        words = str(value).split()
        if words:
            words[len(words) // 2] = "[MASK]"
        return " ".join(words)


def _build(recipe: Recipe, codec: Codec) -> nn.Module:
    encoder = build_encoder(recipe, codec.source.entry)
    num_tokens = len(codec.source_tokenizer)
    tied = embedding_of(encoder).weight if recipe.model.tie else None
    head = Head(encoder.output_size, num_tokens, tied=tied)
    theme = build_pooling(recipe, encoder) if recipe.model.pooling == "theme" else None
    return MaskedLanguageModel(
        encoder, head, num_tokens=num_tokens, share=recipe.model.masked, theme=theme
    )


def _predict(job: Job) -> list[Prediction]:
    """Fill each [MASK] with the most probable token, and return the best candidates for it."""
    model: MaskedLanguageModel = job.bundle.model
    tokenizer = job.bundle.codec.source_tokenizer
    _warn_if_nothing_masked(job)

    def answer(source: Padded, numbers: list[int]) -> Iterator[Prediction]:
        for number, ids, states in zip(numbers, source.rows(), model.features(source), strict=True):
            logits = model.head(states[(ids == MASK).nonzero()[:, 0]]).double()
            # special tokens are not text
            logits[:, : len(SPECIALS)] = -torch.inf
            best = logits.softmax(-1).topk(min(CANDIDATES, logits.shape[-1] - len(SPECIALS)))
            candidates = zip(best.indices.tolist(), best.values.tolist(), strict=True)
            yield _filled(job.inputs[number], tokenizer, list(candidates))

    return answers_in_order(encode_inputs(job.bundle, job.inputs, first_row=job.first_row), answer)


def _evaluate(bundle: Bundle, data: Examples, scoring: Scoring) -> Report:
    """Score the prediction of masked tokens, next to a unigram model; the same tokens are masked in each evaluation."""
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
        return replace(report, baseline_note="the text is so short that no token was masked")
    tokens = np.asarray(train.flat[:NGRAM_TOKENS])
    unigram = WittenBell(1, len(bundle.codec.source_tokenizer)).fit(tokens)
    mean = float(-unigram.log_probabilities(hidden).mean())
    baseline = {"loss": mean, "perplexity": perplexity(mean), "bits_per_token": mean / math.log(2)}
    most_frequent = np.bincount(tokens[tokens >= len(SPECIALS)]).argmax()
    baseline["token_accuracy"] = float((hidden == most_frequent).mean())
    return replace(report, baselines={"by frequency": baseline})


def _subject(question: Question) -> Subject:
    """Return the subject: the answer is the most probable token for each [MASK], and the token itself elsewhere."""
    subject = source_subject(question)
    with torch.inference_mode():
        best = subject.logits().argmax(-1)
    read = cast(Padded, subject.reads).values[0]
    ids = torch.where(read == MASK, best, read).tolist()
    return subject.answering(tuple(ids), tuple(question.bundle.codec.source_tokenizer.pieces(ids)))


def _warn_if_nothing_masked(job: Job) -> None:
    without = [row for row, text in enumerate(job.inputs) if "[MASK]" not in text and text.strip()]
    if without:
        more = f" (and {len(without) - 1} more)" if len(without) > 1 else ""
        line = job.first_row + without[0] + 1
        warn(f"line {line}: there is no [MASK] to fill{more}; write one where a word is missing")


def _filled(
    text: str, tokenizer: Tokenizer, candidates: list[tuple[list[int], list[float]]]
) -> Prediction:
    """Return a text with the best candidate in place of each [MASK], and all candidates as details."""
    blanks = []
    output = text
    for ids, probabilities in candidates:
        blank = [
            {"token": tokenizer.decode([token]).strip(), "probability": probability}
            for token, probability in zip(ids, probabilities, strict=True)
        ]
        blanks.append(blank)
        output = output.replace("[MASK]", str(blank[0]["token"]), 1)
    return Prediction(text, output, {"blanks": blanks})


# Some tokens of a text are masked; the model predicts them from the context on both sides.
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
