"""tag: a sequence to aligned labels, or to aligned numbers (S11, S12)."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import torch
from jaxtyping import Float32
from torch import nn

from seqlab.bundle import Bundle
from seqlab.codecs.codec import Codec, SourceType, TargetType, padded
from seqlab.codecs.labels import LabelTarget, labels_in
from seqlab.codecs.numbers import NumberTarget
from seqlab.codecs.spellings import SpellingSource
from seqlab.codecs.words import WordSource
from seqlab.corpus.examples import Corpus
from seqlab.data.sources import Example, read_tagged
from seqlab.data.vectors import read_vectors
from seqlab.errors import UsageError
from seqlab.layers.linear import Head
from seqlab.metrics.scores import accuracy, looks_like_spans, macro_f1, span_scores
from seqlab.models.build import build_encoder
from seqlab.models.classifier import Measurer, Tagger
from seqlab.models.hidden import HMMTagger
from seqlab.models.outputs import AngleOutput, PointOutput
from seqlab.recipe import NUMBERS, Decode, Hidden, Recipe
from seqlab.subject import Question, Subject
from seqlab.tasks import checks
from seqlab.tasks.examples import (
    EXAMPLES,
    batches,
    encode_inputs,
    example_loss,
    gradient_learner,
    looked_at,
    mistakes,
    open_store,
    refuse_many_processes,
    vectors_or,
    warn_of_new_labels,
    writes_no_text,
)
from seqlab.tasks.crf import crf_learner, crf_tagger
from seqlab.tasks.hidden import hidden_learner, hidden_tagger
from seqlab.tasks.task import ANSWER_VIEWS, DataKind, Job, Opening, Prediction, Report, Scoring
from seqlab.text import UNK, WordTokenizer
from seqlab.training.run import Learner
from seqlab.world import World

T = TypeVar("T")
Sentences = Sequence[Any]  # tuples of words, or arrays of frames


class TagWords:
    """Each word or frame gets a label; with target.kind = "numbers" or "angles", it gets numbers."""

    name = "tag"
    tuned = "tuned-tagger"
    ladder = ("hmm-tagger", "bilstm-tagger", "char-tagger")
    recurrent = "bilstm-tagger"
    judged_by = ("entity_f1", "accuracy", "mae")
    ask = ""

    def check(self, recipe: Recipe) -> None:
        checks.check_settings(recipe, "vectors", "hmm", "crf", "numbers", "letters", "words")
        if recipe.model.hmm is not None:
            self._check_hidden(recipe, recipe.model.hmm)
        source = recipe.source
        if recipe.model.characters is not None and source.kind != "words":
            raise ValueError("[model.characters] spells the words of a tagger: source.kind must be 'words'")
        if source.endings and source.kind != "words":
            raise ValueError("source.endings are those of words: source.kind must be 'words'")
        checks.check_parts(recipe, encoder=True)

    def _check_hidden(self, recipe: Recipe, hmm: Hidden) -> None:
        source = recipe.source
        if recipe.target.kind in NUMBERS:
            raise ValueError(checks.NUMBERS_ARE_FOR_TAGGERS)
        if source.kind not in ("words", "vectors") or source.frame:
            raise ValueError("[model.hmm] tags whole words: source.kind is 'words' or 'vectors', without source.frame")
        checks.check_hidden(recipe, hmm)
        if hmm.states is not None or recipe.train.restarts > 1:
            raise ValueError("a tagger has a state for each label and starts from them: no hmm.states, no restarts")

    def data_kind(self, recipe: Recipe) -> DataKind:
        return EXAMPLES

    def reads(self, recipe: Recipe) -> SourceType:
        return SpellingSource if recipe.source.kind == "spellings" else vectors_or(recipe, WordSource)

    def writes(self, recipe: Recipe) -> TargetType:
        return NumberTarget if recipe.target.kind in NUMBERS else LabelTarget

    def read(self, recipe: Recipe, files: Sequence[str]) -> Iterator[Example]:
        if recipe.source.kind == "vectors":
            return read_vectors(files, target=recipe.data.target, words=True)
        return read_tagged(files, words=recipe.data.source, tag=recipe.data.target)

    def build(self, recipe: Recipe, codec: Codec) -> nn.Module:
        if recipe.model.hmm is not None:
            return hidden_tagger(recipe, recipe.model.hmm, codec)
        if recipe.model.crf is not None:
            return crf_tagger(codec)
        encoder, target = build_encoder(recipe, codec.source.entry), codec.target
        if isinstance(target, NumberTarget):
            output = AngleOutput() if target.angles else PointOutput(recipe.forecast.level)
            return Measurer(encoder, output, mean=target.mean, deviation=target.deviation)
        return Tagger(encoder, Head(encoder.output_size, len(labels_in(codec))))

    def learner(self, recipe: Recipe, network: nn.Module, corpus: Corpus, world: World) -> Learner:
        if recipe.model.hmm is not None:
            refuse_many_processes(recipe, world)
            return hidden_learner(recipe, recipe.model.hmm, corpus, network)
        if recipe.model.crf is not None:
            refuse_many_processes(recipe, world)
            return crf_learner(recipe, recipe.model.crf, network, corpus)
        return gradient_learner(recipe, network, corpus, world)

    def validate(self, bundle: Bundle, data: Any) -> dict[str, float]:
        return {}

    def predict(self, job: Job) -> list[Prediction]:
        """A label, or numbers, for each word of a line; words stand between spaces. A file of vectors is a line."""
        bundle = job.bundle
        source = bundle.codec.source
        sentences = [source.load(value) for value in job.inputs]
        details: list[dict[str, Any]]
        if isinstance(bundle.codec.target, NumberTarget):
            numbers = measure(bundle, sentences, first_row=job.first_row)
            texts = [[",".join(f"{n:.6g}" for n in row) for row in values.tolist()] for values in numbers]
            details = [{"numbers": values.tolist()} for values in numbers]
        else:
            texts = tag(bundle, sentences, first_row=job.first_row)
            details = [{"tags": tags} for tags in texts]
        words = isinstance(source, WordSource | SpellingSource)
        return [
            Prediction(source.show(value), " ".join(labels), ({"words": list(sentence)} if words else {}) | detail)
            for value, sentence, labels, detail in zip(job.inputs, sentences, texts, details, strict=True)
        ]

    def evaluate(self, bundle: Bundle, data: Any, scoring: Scoring) -> Report:
        if isinstance(bundle.codec.target, NumberTarget):
            return _evaluate_numbers(bundle, bundle.codec.target, data.all, scoring)
        return _evaluate_labels(bundle, data.all, scoring)

    def opening(self, bundle: Bundle, value: Any, decode: Decode) -> Opening:
        raise writes_no_text(self)

    def subject(self, question: Question) -> Subject:
        """The likeliest label of each position."""
        if not isinstance(question.bundle.codec.target, LabelTarget):
            raise UsageError("this model measures numbers: it has no labels to look into", hint="`predict` gives them.")
        subject, names = looked_at(question), labels_in(question.bundle.codec).names
        with torch.inference_mode():
            best = tuple(subject.logits().argmax(-1).tolist())
        return subject.answering(best, tuple(names[i] for i in best))

    def views(self, bundle: Bundle) -> tuple[str, ...]:
        if bundle.recipe.model.crf is not None:
            return ("evidence", "surprisal")
        return () if isinstance(bundle.codec.target, NumberTarget) else (*ANSWER_VIEWS, "cells")


@torch.inference_mode()
def tag(bundle: Bundle, sentences: Sentences, *, first_row: int = 0) -> list[list[str]]:
    """A label for each word or frame; beyond the recipe's longest sentence, the most frequent one."""
    model, labels = cast(Tagger | HMMTagger, bundle.model), labels_in(bundle.codec)
    rows = encode_inputs(bundle, sentences, first_row=first_row)
    tags = [[labels.majority] * len(sentence) for sentence in sentences]
    for together in batches([len(row) for row in rows]):
        source = padded([rows[place] for place in together])
        best = source.with_values(model.decode(source))
        for place, ids in zip(together, best.rows(), strict=True):
            for word, start in enumerate(_starts(bundle, sentences[place])):
                if start < len(ids):
                    tags[place][word] = labels.names[int(ids[start])]
    return tags


@torch.inference_mode()
def measure(bundle: Bundle, sentences: Sentences, *, first_row: int = 0) -> list[Float32[np.ndarray, "_ _"]]:
    """The numbers of each word or frame; beyond the recipe's longest sentence, the mean of the training part."""
    model, target = cast(Measurer, bundle.model), cast(NumberTarget, bundle.codec.target)
    rows = encode_inputs(bundle, sentences, first_row=first_row)
    mean = np.asarray(target.mean, dtype=np.float32)
    numbers = [np.tile(mean, (len(sentence), 1)) for sentence in sentences]
    for together in batches([len(row) for row in rows]):
        values = model.decode(padded([rows[place] for place in together])).numpy(force=True)
        for place, row in zip(together, values, strict=True):
            for word, start in enumerate(_starts(bundle, sentences[place])):
                if start < len(rows[place]):
                    numbers[place][word] = row[start]
    return numbers


def _starts(bundle: Bundle, sentence: Any) -> Sequence[int]:
    starts = bundle.codec.source.starts(sentence)
    return range(len(sentence)) if starts is None else starts


def _evaluate_numbers(bundle: Bundle, target: NumberTarget, examples: list[Example], scoring: Scoring) -> Report:
    """How far the numbers are off, beside the mean of training for every position."""

    def answer(share: Sequence[Any], begin: int) -> list[list[list[float]]]:
        return [rows.tolist() for rows in measure(bundle, share, first_row=begin)]

    answers = scoring.world.shared([e.source for e in examples], answer)
    guess = np.concatenate([np.asarray(rows, np.float32) for rows in answers])
    gold = np.concatenate([target.read(example) for example in examples])

    def scores(guess: np.ndarray) -> dict[str, float]:
        apart = target.difference(guess, gold)
        return {"mae": float(np.nanmean(np.abs(apart))), "rmse": float(np.sqrt(np.nanmean(apart**2)))}

    floor = scores(np.broadcast_to(np.asarray(target.mean, dtype=np.float32), gold.shape))
    losses = example_loss(bundle, examples, scoring.world)
    return Report("tag", len(examples), scores(guess) | losses, {"mean of training": floor})


def _evaluate_labels(bundle: Bundle, examples: list[Example], scoring: Scoring) -> Report:
    """Unknown labels are not scored: there any answer counts as right, and for spans as outside of all."""
    warn_of_new_labels(bundle, examples)
    no_label = bundle.recipe.data.no_label

    def answer(share: Sequence[Any], begin: int) -> list[list[str]]:
        return tag(bundle, share, first_row=begin)

    answers = scoring.world.shared([e.source for e in examples], answer)
    predicted = [
        [g if g == no_label else p for p, g in zip(labels, e.target, strict=True)]
        for labels, e in zip(answers, examples, strict=True)
    ]
    known = [place for place, label in enumerate(itertools.chain(*(e.target for e in examples))) if label != no_label]
    flat, gold = (_at(known, list(itertools.chain(*rows))) for rows in (predicted, [e.target for e in examples]))
    scores = {"accuracy": accuracy(flat, gold), "macro_f1": macro_f1(flat, gold)}
    if looks_like_spans(labels_in(bundle.codec).names):
        scores |= span_scores(predicted, [list(e.target) for e in examples])
    ids = _at(known, _word_ids(bundle, examples))
    new = [place for place, i in enumerate(ids) if i == UNK or i >= _num_words(bundle)]
    if new:
        scores["accuracy_on_unseen_words"] = accuracy(_at(new, flat), _at(new, gold))
    right = [p == list(e.target) for p, e in zip(predicted, examples, strict=True) if set(e.target) - {no_label}]
    scores["whole_sentences"] = sum(right) / max(1, len(right))
    floors, note = _most_frequent_tag(bundle, ids, gold, scoring.train)
    outputs = [" ".join(labels) for labels in predicted]
    wrong = mistakes(bundle, examples, outputs, [" ".join(e.target) for e in examples])
    losses = example_loss(bundle, examples, scoring.world)
    return Report("tag", len(examples), scores | losses, floors, wrong, note)


def _at(places: list[int], values: list[T]) -> list[T]:
    return [values[place] for place in places] if values else []


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
    bundle: Bundle, ids: list[int], gold: list[str], stores: Path | None
) -> tuple[dict[str, dict[str, float]], str]:
    """Each word's most frequent label in training, and the most frequent of all for a new word."""
    labels = labels_in(bundle.codec)
    words, tags = open_store(stores, "train_source"), open_store(stores, "train_target")
    if words is None or tags is None or not ids:
        floor = accuracy([labels.majority] * len(gold), gold)
        note = "the most frequent tag of each word needs the training part" if ids else ""
        return {"majority tag": {"accuracy": floor}}, note
    counts = np.zeros((len(bundle.codec.source_tokenizer), len(labels)), dtype=np.int64)
    tokens, known = np.asarray(words.flat if words.flat.ndim == 1 else words.flat[:, 0]), np.asarray(tags.flat)
    np.add.at(counts, (tokens[known >= 0], known[known >= 0]), 1)
    counts[counts.sum(1) == 0] = counts.sum(0)
    best = counts.argmax(1)
    return {"most frequent tag": {"accuracy": accuracy([labels.names[best[i]] for i in ids], gold)}}, ""
