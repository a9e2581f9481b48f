"""How a tagger's labels or numbers are scored, beside the simplest baselines."""

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


def label_report(
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
    pairs = list(zip(predicted, expected, strict=True))
    right = [[p == g for p, g in zip(*pair, strict=True) if g != no_label] for pair in pairs]
    labelled = [label != no_label for labels in expected for label in labels]
    flat, gold = (
        list(itertools.compress(itertools.chain(*rows), labelled)) for rows in (predicted, expected)
    )
    scores = {"accuracy": accuracy(flat, gold), "macro_f1": macro_f1(flat, gold)}
    by_example = share("accuracy", [sum(row) for row in right], [len(row) for row in right])
    if looks_like_spans(labels_in(bundle.codec).names):
        scores |= span_scores(predicted, expected)
        both = [(spans(p), spans(g)) for p, g in pairs]
        common = [len(p & g) for p, g in both]
        by_example = f1("entity_f1", common, [len(p) for p, _ in both], [len(g) for _, g in both])
    ids = list(itertools.compress(_word_ids(bundle, examples), labelled))
    new = [i == UNK or i >= _num_words(bundle) for i in ids]
    if any(new):
        unseen = (list(itertools.compress(labels, new)) for labels in (flat, gold))
        scores["accuracy_on_unseen_words"] = accuracy(*unseen)
    whole = [all(row) for row in right if row]
    scores["whole_sentences"] = sum(whole) / max(1, len(whole))
    baselines, note = _most_frequent_tag(bundle, ids, gold, scoring)
    written, gold_written = (list(map(" ".join, rows)) for rows in (predicted, expected))
    wrong = mistakes(bundle, examples, written, gold_written)
    return Report("tag", len(examples), scores, baselines, wrong, note, by_example=by_example)


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
    return [int(np.ravel(row[start])[0]) for words, row in rows for start in starts(bundle, words)]


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


def starts(bundle: Bundle, sentence: Any) -> Sequence[int]:
    starts = bundle.codec.source.starts(sentence)
    return range(len(sentence)) if starts is None else starts
