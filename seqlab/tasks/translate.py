"""The task `translate`: a sequence to another one, without alignment (S13-S16). Any text-to-text file fits."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import numpy as np
import torch
from jaxtyping import Int
from torch import nn

from seqlab.bundle import Bundle
from seqlab.codecs.codec import Codec, Files, Json, SourceType
from seqlab.codecs.ngrams import NgramSource
from seqlab.codecs.text import TextSource, TextTarget
from seqlab.corpus.examples import Corpus
from seqlab.data.example import Example
from seqlab.data.store import TokenStore
from seqlab.data.text_pairs import read_pairs
from seqlab.data.vector_files import read_vectors
from seqlab.metrics.scores import accuracy as exact_match
from seqlab.metrics.scores import share
from seqlab.metrics.text_scores import bleu, corpus_scores
from seqlab.models.neighbours import NeighbourDecoder, NeighbourEncoder, NeighbourModel
from seqlab.recipe import NeighboursConfig, Recipe
from seqlab.tasks.examples import (
    Examples,
    answer_inputs,
    example_loss,
    mistakes,
    num_unread,
    of_examples,
    vectors_or_text,
)
from seqlab.tasks.linear_fitting import sources, training_rows
from seqlab.tasks.settings import choose_translate, recipe_for_pairs
from seqlab.tasks.task import (
    ANSWER_VIEWS,
    Classical,
    Job,
    Prediction,
    Report,
    Scoring,
    Task,
)
from seqlab.tasks.text_generation import (
    build_translator,
    exactly_right,
    start_translation,
    translate,
    translation_subject,
)
from seqlab.text import EOS
from seqlab.training.counting import CountingLearner
from seqlab.training.run import Learner
from seqlab.training.weights import load_weights, parameters_of


def _neighbour_model(recipe: Recipe, settings: NeighboursConfig, codec: Codec) -> nn.Module:
    """Build a nearest-neighbour model, without its examples."""
    vocabulary = cast(NgramSource, codec.source).vocabulary
    encoder = NeighbourEncoder(len(vocabulary.words), len(vocabulary), settings)
    return NeighbourModel(encoder, NeighbourDecoder(len(codec.target_tokenizer), EOS))


def _neighbour_learner(
    recipe: Recipe, settings: NeighboursConfig, model: nn.Module, corpus: Corpus
) -> Learner:
    """Store all examples of the training part as the weights of the model."""
    rows, neighbours = training_rows(corpus), cast(NeighbourModel, model)
    table = neighbours.encoder.ngrams.measure(sources(rows, torch.arange(len(rows))))
    target = cast(TokenStore, rows.target)
    flat = np.asarray(target.flat).astype(np.int32)
    weights = {
        "encoder.ngrams.idf": neighbours.encoder.ngrams.idf.detach(),
        "encoder.ids": table.ids.int(),
        "encoder.values": cast(torch.Tensor, table.values),
        "encoder.offsets": table.offsets.int(),
        "decoder.targets": torch.from_numpy(flat),
        "decoder.starts": torch.from_numpy(target.begins.astype(np.int32)),
    }
    load_weights(model, weights)
    return CountingLearner(model, parameters_of(model), by="keeping the examples")


# limits of the groups of source lengths, in tokens
BUCKETS = (0, 10, 20, 30, 10**9)


def _reads(recipe: Recipe) -> SourceType:
    return NgramSource if recipe.source.kind == "ngrams" else vectors_or_text(recipe, TextSource)


def _read(recipe: Recipe, files: Files) -> Iterator[Example]:
    if recipe.source.kind == "vectors":
        return read_vectors(files, target=recipe.data.target)
    return read_pairs(
        files, source=recipe.data.source, target=recipe.data.target, encoding=recipe.data.encoding
    )


def _predict(job: Job) -> list[Prediction]:
    answers = translate(job)
    if not isinstance(job.bundle.codec.source, TextSource):
        return answers
    return [
        replace(answer, details=answer.details | num_unread(job.bundle, value))
        for answer, value in zip(answers, job.inputs, strict=True)
    ]


def _evaluate(bundle: Bundle, data: Examples, scoring: Scoring) -> Report:
    """Score BLEU, chrF and exact matches, next to those of a copy of the source."""
    examples, lower = data.all, scoring.lower
    sources = data.sources
    normalise = bundle.codec.target_tokenizer.normaliser
    gold = [normalise(str(example.target)) for example in examples]
    answers = answer_inputs(translate, bundle, sources, decode=scoring.decode, world=scoring.world)
    predicted = [answer.output for answer in answers]

    def text_scores(texts: list[str]) -> Json:
        return {"exact": exact_match(texts, gold), **corpus_scores(texts, gold, lower=lower)}

    scores = text_scores(predicted) | example_loss(bundle, examples, scoring.world)
    baselines = {}
    if isinstance(bundle.codec.source, TextSource | NgramSource):
        copied = text_scores(list(map(str, sources)))
        baselines["copy of the source"] = {
            name: float(copied[name]) for name in ("exact", "bleu", "chrf")
        }
    lengths = np.asarray([len(row) for row in bundle.codec.source.encode(sources)])
    by_length = _by_length(lengths, predicted, gold, lower=lower)
    wrong = mistakes(bundle, examples, predicted, gold)
    by_example = bleu(predicted, [[text] for text in gold], lower=lower)
    if not text_scores(gold)["bleu"]:
        # targets of less than four words have no BLEU
        exact = [output == expected for output, expected in zip(predicted, gold, strict=True)]
        by_example = share("exact", exact)
    return Report(
        "translate",
        len(examples),
        scores,
        baselines,
        wrong,
        by_length=by_length,
        by_example=by_example,
    )


def _by_length(
    lengths: Int[np.ndarray, " N"], predicted: list[str], gold: list[str], *, lower: bool
) -> dict[str, dict[str, int | float]]:
    """Return the scores by the length of the source: without attention they fall for long sources (C6)."""
    table = {}
    for low, high in itertools.pairwise(BUCKETS):
        rows = np.flatnonzero((lengths > low) & (lengths <= high)).tolist()
        if not rows:
            continue
        outputs = [predicted[row] for row in rows]
        expected = [gold[row] for row in rows]
        name = f"{low + 1}-{high}" if high < BUCKETS[-1] else f"over {low}"
        table[name] = {
            "examples": len(rows),
            "exact": exact_match(outputs, expected),
            "bleu": float(corpus_scores(outputs, expected, lower=lower)["bleu"]),
        }
    return table


# An encoder reads the source, a decoder writes the target.
TRANSLATE = Task(
    name="translate",
    ladder=("seq2seq", "bahdanau", "transformer-lstm", "transformer-small"),
    judged_by=("bleu", "chrf"),
    data_kind=of_examples,
    reads=_reads,
    writes=lambda recipe: TextTarget,
    read=_read,
    build=build_translator,
    predict=_predict,
    choose=choose_translate,
    recipe_for=recipe_for_pairs,
    evaluate=_evaluate,
    baseline=lambda recipe: "" if recipe.source.kind == "vectors" else "nearest-neighbour",
    subject=translation_subject,
    special_settings=("vectors",),
    classical={
        "neighbours": Classical(
            _neighbour_model, _neighbour_learner, ("evidence", "surprisal", "beam")
        )
    },
    parts=("encoder", "decoder"),
    validate=exactly_right,
    decoder_start=start_translation,
    views=lambda bundle: (*ANSWER_VIEWS, "cells", "beam"),
    recurrent_recipe="seq2seq",
)
