"""The task `tag`: a label, or numbers, for each position of a sequence (S11, S12)."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import nn

from seqlab.bundle import Bundle
from seqlab.codecs.codec import Codec, Files, Json, SourceType
from seqlab.codecs.labels import LabelTarget, labels_in
from seqlab.codecs.numbers import NumberTarget
from seqlab.codecs.spellings import SpellingSource
from seqlab.codecs.words import WordSource
from seqlab.data.example import Example
from seqlab.data.tagged import read_tagged
from seqlab.data.vector_files import read_vectors
from seqlab.errors import UsageError
from seqlab.layers.linear import Head
from seqlab.models.build import build_encoder
from seqlab.models.classifier import PositionRegressor, Tagger
from seqlab.models.outputs import AngleOutput, PointOutput
from seqlab.padded import Padded
from seqlab.recipe import NUMBERS, Recipe
from seqlab.subject import Question, Subject
from seqlab.tasks.crf_fitting import crf_learner, crf_tagger
from seqlab.tasks.examples import (
    Examples,
    answers_in_order,
    encode_inputs,
    example_loss,
    of_examples,
    vectors_or_text,
)
from seqlab.tasks.hmm_fitting import check_hmm, hmm_learner, hmm_tagger
from seqlab.tasks.outside import choose_outside
from seqlab.tasks.settings import choose_tag
from seqlab.tasks.subjects import label_subject
from seqlab.tasks.tag_scores import label_report, number_report, starts
from seqlab.tasks.task import (
    ANSWER_VIEWS,
    NUMBERS_ARE_FOR_TAGGERS,
    Classical,
    Job,
    Prediction,
    Report,
    Scoring,
    Task,
)
from seqlab.tasks.temperature import calibration, choose_temperature


def _check(recipe: Recipe) -> None:
    source, hmm = recipe.source, recipe.model.hmm
    if hmm is not None:
        if recipe.target.kind in NUMBERS:
            raise ValueError(NUMBERS_ARE_FOR_TAGGERS)
        if source.kind not in ("words", "vectors") or source.frame:
            raise ValueError(
                "[model.hmm] tags whole words: source.kind is 'words' or 'vectors', without source.frame"
            )
        check_hmm(recipe, hmm)
        if hmm.states is not None or recipe.train.restarts > 1:
            raise ValueError(
                "the states of a tagger are its labels: leave out hmm.states and train.restarts"
            )
    if source.endings and source.kind != "words":
        raise ValueError("source.endings needs words: source.kind must be 'words'")


def _reads(recipe: Recipe) -> SourceType:
    return (
        SpellingSource if recipe.source.kind == "spellings" else vectors_or_text(recipe, WordSource)
    )


def _read(recipe: Recipe, files: Files) -> Iterator[Example]:
    if recipe.source.kind == "vectors":
        return read_vectors(files, target=recipe.data.target, words=True)
    return read_tagged(
        files, words=recipe.data.source, tag=recipe.data.target, encoding=recipe.data.encoding
    )


def _build(recipe: Recipe, codec: Codec) -> nn.Module:
    encoder = build_encoder(recipe, codec.source.entry)
    target = codec.target
    if isinstance(target, NumberTarget):
        output = AngleOutput() if target.angles else PointOutput(recipe.forecast.level)
        return PositionRegressor(encoder, output, target.scale)
    return Tagger(encoder, Head(encoder.output_size, len(labels_in(codec))))


def _predict(job: Job) -> list[Prediction]:
    """Tag each word of a line, or each frame of a file of vectors; words are separated by spaces."""
    source = job.bundle.codec.source
    has_words = isinstance(source, WordSource | SpellingSource)
    has_numbers = isinstance(job.bundle.codec.target, NumberTarget)
    sentences = [source.load(value) for value in job.inputs]
    answers = by_word(job.bundle, sentences, first_row=job.first_row)
    predictions = []
    for value, sentence, answer in zip(job.inputs, sentences, answers, strict=True):
        details: Json = {"words": list(sentence)} if has_words else {}
        if has_numbers:
            tags = [",".join(f"{number:.6g}" for number in numbers) for numbers in answer]
            details["numbers"] = answer
        else:
            tags = answer
            details["tags"] = answer
        predictions.append(Prediction(source.show(value), " ".join(tags), details))
    return predictions


def by_word(bundle: Bundle, sentences: Sequence[Any], *, first_row: int = 0) -> list[list[Any]]:
    """Return a label, or a list of numbers, for each word or frame of each sentence.

    Words beyond the maximum length get the most frequent label, or the mean of the training part.
    """
    model, target = bundle.model, bundle.codec.target
    if isinstance(target, NumberTarget):
        default: Any = np.asarray(target.scale.mean, dtype=np.float32).tolist()
    else:
        default = labels_in(bundle.codec).majority

    def answer(source: Padded, numbers: list[int]) -> Iterator[list[Any]]:
        for row in source.with_values(model.decode(source)).rows():
            values = row.tolist()
            if isinstance(target, LabelTarget):
                yield [target.labels.names[label] for label in values]
            else:
                yield values

    rows = answers_in_order(encode_inputs(bundle, sentences, first_row=first_row), answer)
    return [
        [row[start] if start < len(row) else default for start in starts(bundle, sentence)]
        for sentence, row in zip(sentences, rows, strict=True)
    ]


def _calibrate(bundle: Bundle, data: Examples) -> None:
    """Choose how readily O is predicted, and then the temperature of the probabilities."""
    choose_outside(bundle, data, by_word)
    choose_temperature(bundle, data)


def _evaluate(bundle: Bundle, data: Examples, scoring: Scoring) -> Report:
    examples, target = data.all, bundle.codec.target
    answers = scoring.world.map_shares(
        data.sources, lambda share, begin: by_word(bundle, share, first_row=begin)
    )
    losses = example_loss(bundle, examples, scoring.world)
    if isinstance(target, NumberTarget):
        report = number_report(target, examples, answers)
    else:
        report = label_report(bundle, examples, answers, scoring)
        losses |= calibration(bundle, examples)
    return replace(report, scores=report.scores | losses)


def _subject(question: Question) -> Subject:
    if not isinstance(question.bundle.codec.target, LabelTarget):
        raise UsageError(
            "this model predicts numbers: it has no labels to explain",
            hint="`predict` gives the numbers.",
        )
    return label_subject(question)


# Each word or frame gets a label; with target.kind = "numbers" or "angles", it gets numbers.
TAG = Task(
    name="tag",
    ladder=("hmm-tagger", "bilstm-tagger", "char-tagger"),
    judged_by=("entity_f1", "accuracy", "mae"),
    data_kind=of_examples,
    reads=_reads,
    writes=lambda recipe: NumberTarget if recipe.target.kind in NUMBERS else LabelTarget,
    read=_read,
    build=_build,
    predict=_predict,
    choose=choose_tag,
    evaluate=_evaluate,
    baseline=lambda recipe: (
        "crf-tagger" if recipe.source.kind == "words" and recipe.target.kind not in NUMBERS else ""
    ),
    calibrate=_calibrate,
    subject=_subject,
    special_settings=("vectors", "numbers", "letters", "words"),
    check=_check,
    classical={
        "hmm": Classical(hmm_tagger, hmm_learner),
        "crf": Classical(crf_tagger, crf_learner, ("evidence", "surprisal")),
    },
    views=lambda bundle: (
        () if isinstance(bundle.codec.target, NumberTarget) else (*ANSWER_VIEWS, "cells")
    ),
    fine_tuning_recipe="tuned-tagger",
    recurrent_recipe="bilstm-tagger",
)
