"""Scores of a tagger's labels or numbers, and of its simplest baselines."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from seqlab.bundle import Bundle
from seqlab.codecs.labels import labels_in
from seqlab.codecs.numbers import NumberTarget
from seqlab.codecs.words import WordSource
from seqlab.data.example import Example
from seqlab.metrics.scores import (
    ExampleScores,
    accuracy,
    f1,
    looks_like_spans,
    macro_f1,
    share,
    span_scores,
    spans,
)
from seqlab.tasks.examples import mistakes, warn_of_new_labels
from seqlab.tasks.task import Baselines, Report, Scores, Scoring
from seqlab.text import UNK, WordTokenizer


def number_report(
    target: NumberTarget, examples: list[Example], answers: list[list[list[float]]]
) -> Report:
    """Score the errors of predicted numbers, next to those of the mean of training."""
    gold = np.concatenate([target.read(example) for example in examples])

    def scores(predicted: np.ndarray) -> Scores:
        errors = target.difference(predicted, gold)
        return {
            "mae": float(np.nanmean(np.abs(errors))),
            "rmse": float(np.sqrt(np.nanmean(errors**2))),
        }

    predicted = np.concatenate([np.asarray(rows, np.float32) for rows in answers])
    mean = np.broadcast_to(np.asarray(target.scale.mean, dtype=np.float32), gold.shape)
    return Report("tag", len(examples), scores(predicted), {"mean of training": scores(mean)})


def label_report(
    bundle: Bundle, examples: list[Example], answers: list[list[str]], scoring: Scoring
) -> Report:
    """Score predicted labels; words whose label is unknown are not scored, and are outside of all spans."""
    warn_of_new_labels(bundle, examples)
    no_label = bundle.recipe.data.no_label
    expected = [list(example.target) for example in examples]
    predicted = [
        [g if g == no_label else p for p, g in zip(answer, gold_labels, strict=True)]
        for answer, gold_labels in zip(answers, expected, strict=True)
    ]
    correct = [
        [p == g for p, g in zip(labels, gold_labels, strict=True) if g != no_label]
        for labels, gold_labels in zip(predicted, expected, strict=True)
    ]
    is_known = [label != no_label for labels in expected for label in labels]
    flat = list(itertools.compress(itertools.chain(*predicted), is_known))
    gold = list(itertools.compress(itertools.chain(*expected), is_known))
    scores = {"accuracy": accuracy(flat, gold), "macro_f1": macro_f1(flat, gold)}
    by_example = share("accuracy", [sum(row) for row in correct], [len(row) for row in correct])
    if looks_like_spans(labels_in(bundle.codec).names):
        scores |= span_scores(predicted, expected)
        by_example = _entity_f1(predicted, expected)
    ids = list(itertools.compress(_word_ids(bundle, examples), is_known))
    is_unseen = [i == UNK or i >= _num_words(bundle) for i in ids]
    if any(is_unseen):
        unseen = (list(itertools.compress(labels, is_unseen)) for labels in (flat, gold))
        scores["accuracy_on_unseen_words"] = accuracy(*unseen)
    sentences = [all(row) for row in correct if row]
    scores["whole_sentences"] = sum(sentences) / max(1, len(sentences))
    baselines, note = _most_frequent_tag(bundle, ids, gold, scoring)
    wrong = mistakes(
        bundle, examples, list(map(" ".join, predicted)), list(map(" ".join, expected))
    )
    return Report("tag", len(examples), scores, baselines, wrong, note, by_example=by_example)


def _entity_f1(predicted: list[list[str]], expected: list[list[str]]) -> ExampleScores:
    """Return the F1 of entities, with the counts of each sentence."""
    predicted_spans = list(map(spans, predicted))
    gold_spans = list(map(spans, expected))
    common = [len(p & g) for p, g in zip(predicted_spans, gold_spans, strict=True)]
    return f1("entity_f1", common, list(map(len, predicted_spans)), list(map(len, gold_spans)))


def _num_words(bundle: Bundle) -> int:
    """Return the number of known words; larger ids are classes of unknown words."""
    tokenizer = bundle.codec.source_tokenizer
    return tokenizer.num_words if isinstance(tokenizer, WordTokenizer) else len(tokenizer)


def _word_ids(bundle: Bundle, examples: list[Example]) -> list[int]:
    """Return the id of each word, or of its first piece; frames have no ids."""
    source = bundle.codec.source
    if not isinstance(source, WordSource):
        return []
    sentences = [e.source for e in examples]
    rows = zip(sentences, source.encode(sentences), strict=True)
    return [int(np.ravel(row[start])[0]) for words, row in rows for start in starts(bundle, words)]


def _most_frequent_tag(
    bundle: Bundle, ids: list[int], gold: list[str], scoring: Scoring
) -> tuple[Baselines, str]:
    """Score the most frequent label of each word in training, or of all words for an unknown word."""
    labels = labels_in(bundle.codec)
    words = scoring.store("source")
    tags = scoring.store("target")
    if words is None or tags is None or not ids:
        note = "the most frequent tag of each word needs the training part" if ids else ""
        return {"majority tag": {"accuracy": accuracy([labels.majority] * len(gold), gold)}}, note
    counts = np.zeros((len(bundle.codec.source_tokenizer), len(labels)), dtype=np.int64)
    tokens = np.asarray(words.flat if words.flat.ndim == 1 else words.flat[:, 0])
    tag = np.asarray(tags.flat)
    np.add.at(counts, (tokens[tag >= 0], tag[tag >= 0]), 1)
    counts[counts.sum(1) == 0] = counts.sum(0)
    best = counts.argmax(1)
    predicted = [labels.names[best[i]] for i in ids]
    return {"most frequent tag": {"accuracy": accuracy(predicted, gold)}}, ""


def starts(bundle: Bundle, sentence: Any) -> Sequence[int]:
    """Return the position of the first token of each word."""
    starts = bundle.codec.source.starts(sentence)
    return range(len(sentence)) if starts is None else starts
