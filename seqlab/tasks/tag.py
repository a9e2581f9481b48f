"""tag: a sequence to aligned labels, or to aligned numbers (S11, S12)."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import nn

from seqlab.bundle import Bundle
from seqlab.codecs.codec import Codec, Files, SourceType
from seqlab.codecs.labels import LabelTarget, labels_in
from seqlab.codecs.numbers import NumberTarget
from seqlab.codecs.spellings import SpellingSource
from seqlab.codecs.words import WordSource
from seqlab.corpus.examples import Corpus
from seqlab.data.sources import Example
from seqlab.data.tagged import read_tagged
from seqlab.data.vectors import read_vectors
from seqlab.errors import UsageError
from seqlab.layers.linear import Head
from seqlab.metrics.scores import accuracy, looks_like_spans, macro_f1, span_scores, spans
from seqlab.metrics.uncertainty import ExampleScores, f1, share
from seqlab.models.build import build_encoder
from seqlab.models.classifier import Measurer, Tagger
from seqlab.models.outputs import AngleOutput, PointOutput
from seqlab.padded import Padded
from seqlab.recipe import NUMBERS, Recipe
from seqlab.subject import Question, Subject
from seqlab.tasks.calibrate import calibration, choose_temperature
from seqlab.tasks.crf import crf_learner, crf_tagger
from seqlab.tasks.examples import (
    Examples,
    answers_in_order,
    encode_inputs,
    example_loss,
    likeliest_labels,
    mistakes,
    of_examples,
    vectors_or,
    warn_of_new_labels,
)
from seqlab.tasks.hidden import check_hidden, hidden_or_gradient, hidden_tagger
from seqlab.tasks.settings import choose_tag
from seqlab.tasks.task import (
    ANSWER_VIEWS,
    NUMBERS_ARE_FOR_TAGGERS,
    Baselines,
    Job,
    Prediction,
    Report,
    Scores,
    Scoring,
    Task,
    refuse_many_processes,
)
from seqlab.text import UNK, WordTokenizer
from seqlab.training.run import Learner
from seqlab.world import World


def _check(recipe: Recipe) -> None:
    source, hmm = recipe.source, recipe.model.hmm
    if hmm is not None:
        if recipe.target.kind in NUMBERS:
            raise ValueError(NUMBERS_ARE_FOR_TAGGERS)
        if source.kind not in ("words", "vectors") or source.frame:
            raise ValueError(
                "[model.hmm] tags whole words: source.kind is 'words' or 'vectors', without source.frame"
            )
        check_hidden(recipe, hmm)
        if hmm.states is not None or recipe.train.restarts > 1:
            raise ValueError(
                "a tagger has a state for each label and starts from them: no hmm.states, no restarts"
            )
    if recipe.model.characters is not None and source.kind != "words":
        raise ValueError(
            "[model.characters] spells the words of a tagger: source.kind must be 'words'"
        )
    if source.endings and source.kind != "words":
        raise ValueError("source.endings are those of words: source.kind must be 'words'")


def _reads(recipe: Recipe) -> SourceType:
    return SpellingSource if recipe.source.kind == "spellings" else vectors_or(recipe, WordSource)


def _read(recipe: Recipe, files: Files) -> Iterator[Example]:
    if recipe.source.kind == "vectors":
        return read_vectors(files, target=recipe.data.target, words=True)
    return read_tagged(
        files, words=recipe.data.source, tag=recipe.data.target, encoding=recipe.data.encoding
    )


def _build(recipe: Recipe, codec: Codec) -> nn.Module:
    if recipe.model.hmm is not None:
        return hidden_tagger(recipe, recipe.model.hmm, codec)
    if recipe.model.crf is not None:
        return crf_tagger(codec)
    encoder, target = build_encoder(recipe, codec.source.entry), codec.target
    if isinstance(target, NumberTarget):
        output = AngleOutput() if target.angles else PointOutput(recipe.forecast.level)
        return Measurer(encoder, output, target.scale)
    return Tagger(encoder, Head(encoder.output_size, len(labels_in(codec))))


def _predict(job: Job) -> list[Prediction]:
    """A label, or numbers, for each word of a line; words stand between spaces. A file of vectors is a line."""
    source = job.bundle.codec.source
    measures, words = (
        isinstance(job.bundle.codec.target, NumberTarget),
        isinstance(source, WordSource | SpellingSource),
    )
    sentences = [source.load(value) for value in job.inputs]
    answers = by_word(job.bundle, sentences, first_row=job.first_row)
    return [
        Prediction(
            source.show(value),
            " ".join(",".join(f"{n:.6g}" for n in each) if measures else each for each in answer),
            ({"words": list(sentence)} if words else {})
            | {"numbers" if measures else "tags": answer},
        )
        for value, sentence, answer in zip(job.inputs, sentences, answers, strict=True)
    ]


def by_word(bundle: Bundle, sentences: Sequence[Any], *, first_row: int = 0) -> list[list[Any]]:
    """A label, or a list of numbers, for each word or frame of each sentence.

    Beyond the recipe's longest sentence it is the most frequent label, or the mean of the training part.
    """
    model, target = bundle.model, bundle.codec.target
    if isinstance(target, NumberTarget):
        otherwise: Any = np.asarray(target.scale.mean, dtype=np.float32).tolist()
    else:
        otherwise = labels_in(bundle.codec).majority

    def answer(source: Padded, places: list[int]) -> Iterator[list[Any]]:
        for row in source.with_values(model.decode(source)).rows():
            values = row.tolist()
            yield (
                [target.labels.names[i] for i in values]
                if isinstance(target, LabelTarget)
                else values
            )

    rows = answers_in_order(encode_inputs(bundle, sentences, first_row=first_row), answer)
    return [
        [row[start] if start < len(row) else otherwise for start in _starts(bundle, sentence)]
        for sentence, row in zip(sentences, rows, strict=True)
    ]


def _starts(bundle: Bundle, sentence: Any) -> Sequence[int]:
    starts = bundle.codec.source.starts(sentence)
    return range(len(sentence)) if starts is None else starts


def _evaluate(bundle: Bundle, data: Examples, scoring: Scoring) -> Report:
    examples, target = data.all, bundle.codec.target
    answers = scoring.world.shared(
        data.sources, lambda share, begin: by_word(bundle, share, first_row=begin)
    )
    losses = example_loss(bundle, examples, scoring.world)
    if isinstance(target, NumberTarget):
        report = _number_report(target, examples, answers)
    else:
        report = _label_report(bundle, examples, answers, scoring)
        losses |= calibration(bundle, examples)
    return replace(report, scores=report.scores | losses)


def _number_report(
    target: NumberTarget, examples: list[Example], answers: list[list[list[float]]]
) -> Report:
    """How far the numbers are off, beside the mean of training for every position."""
    gold = np.concatenate([target.read(example) for example in examples])

    def scores(guess: np.ndarray) -> Scores:
        apart = target.difference(guess, gold)
        return {
            "mae": float(np.nanmean(np.abs(apart))),
            "rmse": float(np.sqrt(np.nanmean(apart**2))),
        }

    guess = np.concatenate([np.asarray(rows, np.float32) for rows in answers])
    mean = np.broadcast_to(np.asarray(target.scale.mean, dtype=np.float32), gold.shape)
    return Report("tag", len(examples), scores(guess), {"mean of training": scores(mean)})


def _label_report(
    bundle: Bundle, examples: list[Example], answers: list[list[str]], scoring: Scoring
) -> Report:
    """Unknown labels are not scored: there any answer counts as right, and for spans as outside of all."""
    warn_of_new_labels(bundle, examples)
    no_label = bundle.recipe.data.no_label
    expected = [list(e.target) for e in examples]
    predicted = [
        [g if g == no_label else p for p, g in zip(*both, strict=True)]
        for both in zip(answers, expected, strict=True)
    ]
    labelled = [label != no_label for labels in expected for label in labels]
    flat, gold = (
        list(itertools.compress(itertools.chain(*rows), labelled)) for rows in (predicted, expected)
    )
    scores = {"accuracy": accuracy(flat, gold), "macro_f1": macro_f1(flat, gold)}
    by_example = _right_labels(predicted, expected, no_label)
    if looks_like_spans(labels_in(bundle.codec).names):
        scores |= span_scores(predicted, expected)
        by_example = _right_spans(predicted, expected)
    ids = list(itertools.compress(_word_ids(bundle, examples), labelled))
    new = [i == UNK or i >= _num_words(bundle) for i in ids]
    if any(new):
        unseen = (list(itertools.compress(labels, new)) for labels in (flat, gold))
        scores["accuracy_on_unseen_words"] = accuracy(*unseen)
    right = [
        p == labels
        for p, labels in zip(predicted, expected, strict=True)
        if set(labels) - {no_label}
    ]
    scores["whole_sentences"] = sum(right) / max(1, len(right))
    baselines, note = _most_frequent_tag(bundle, ids, gold, scoring)
    wrong = mistakes(
        bundle, examples, list(map(" ".join, predicted)), list(map(" ".join, expected))
    )
    return Report("tag", len(examples), scores, baselines, wrong, note, by_example=by_example)


def _right_labels(
    predicted: list[list[str]], expected: list[list[str]], no_label: str | None
) -> ExampleScores:
    pairs = [
        [p == g for p, g in zip(*both, strict=True) if g != no_label]
        for both in zip(predicted, expected, strict=True)
    ]
    return share("accuracy", [sum(right) for right in pairs], [len(right) for right in pairs])


def _right_spans(predicted: list[list[str]], expected: list[list[str]]) -> ExampleScores:
    both = [(spans(p), spans(g)) for p, g in zip(predicted, expected, strict=True)]
    return f1(
        "entity_f1",
        [len(p & g) for p, g in both],
        [len(p) for p, _ in both],
        [len(g) for _, g in both],
    )


def _num_words(bundle: Bundle) -> int:
    """Ids from here on are classes of words that training did not see."""
    tokenizer = bundle.codec.source_tokenizer
    return tokenizer.num_words if isinstance(tokenizer, WordTokenizer) else len(tokenizer)


def _word_ids(bundle: Bundle, examples: list[Example]) -> list[int]:
    """The id of each word, or of the first piece of each; frames have none."""
    source = bundle.codec.source
    if not isinstance(source, WordSource):
        return []
    sentences = [e.source for e in examples]
    rows = zip(sentences, source.encode(sentences), strict=True)
    return [int(np.ravel(row[start])[0]) for words, row in rows for start in _starts(bundle, words)]


def _most_frequent_tag(
    bundle: Bundle, ids: list[int], gold: list[str], scoring: Scoring
) -> tuple[Baselines, str]:
    """Each word's most frequent label in training, and the most frequent of all for a new word."""
    labels, words, tags = labels_in(bundle.codec), scoring.store("source"), scoring.store("target")
    if words is None or tags is None or not ids:
        note = "the most frequent tag of each word needs the training part" if ids else ""
        return {"majority tag": {"accuracy": accuracy([labels.majority] * len(gold), gold)}}, note
    counts = np.zeros((len(bundle.codec.source_tokenizer), len(labels)), dtype=np.int64)
    tokens, tag = (
        np.asarray(words.flat if words.flat.ndim == 1 else words.flat[:, 0]),
        np.asarray(tags.flat),
    )
    np.add.at(counts, (tokens[tag >= 0], tag[tag >= 0]), 1)
    counts[counts.sum(1) == 0] = counts.sum(0)
    best = counts.argmax(1)
    return {
        "most frequent tag": {"accuracy": accuracy([labels.names[best[i]] for i in ids], gold)}
    }, ""


def _subject(question: Question) -> Subject:
    if not isinstance(question.bundle.codec.target, LabelTarget):
        raise UsageError(
            "this model measures numbers: it has no labels to look into",
            hint="`predict` gives them.",
        )
    return likeliest_labels(question)


def _learner(recipe: Recipe, network: nn.Module, corpus: Corpus, world: World) -> Learner:
    if recipe.model.crf is None:
        return hidden_or_gradient(recipe, network, corpus, world)
    refuse_many_processes(recipe, world)
    return crf_learner(recipe, recipe.model.crf, network, corpus)


def _views(bundle: Bundle) -> tuple[str, ...]:
    if bundle.recipe.model.crf is not None:
        return ("evidence", "surprisal")
    return () if isinstance(bundle.codec.target, NumberTarget) else (*ANSWER_VIEWS, "cells")


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
    calibrate=choose_temperature,
    subject=_subject,
    takes=("vectors", "hmm", "crf", "numbers", "letters", "words"),
    check=_check,
    learner=_learner,
    views=_views,
    tuned="tuned-tagger",
    recurrent="bilstm-tagger",
)
