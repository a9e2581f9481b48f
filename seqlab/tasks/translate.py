"""translate: a sequence to another one, unaligned (S13-S16). Any text-to-text file fits."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Int
from torch import nn

from seqlab.bundle import Bundle
from seqlab.codecs.codec import Codec, SourceType, TargetType
from seqlab.codecs.ngrams import NgramSource
from seqlab.codecs.text import TextSource, TextTarget
from seqlab.corpus.examples import Corpus
from seqlab.data.sources import Example, read_pairs
from seqlab.data.vectors import read_vectors
from seqlab.metrics.scores import corpus_scores, exact_match
from seqlab.models.build import build_seq2seq
from seqlab.recipe import Decode, Recipe
from seqlab.subject import Question, Subject
from seqlab.tasks import checks
from seqlab.tasks.examples import (
    EXAMPLES,
    ask,
    example_loss,
    gradient_learner,
    mistakes,
    refuse_many_processes,
    unread,
    vectors_or,
)
from seqlab.tasks.neighbours import neighbour_learner, neighbour_model
from seqlab.tasks.task import ANSWER_VIEWS, DataKind, Job, Opening, Prediction, Report, Scoring
from seqlab.tasks.writing import DECODED_WHILE_TRAINING, exactly_right, open_translation, translate, translated
from seqlab.training.run import Learner
from seqlab.world import World

BUCKETS = (0, 10, 20, 30, 10**9)  # source tokens


class Translate:
    """An encoder reads the source, a decoder writes the target."""

    name = "translate"
    tuned = ""
    ladder = ("seq2seq", "bahdanau", "transformer-lstm", "transformer-small")
    recurrent = "seq2seq"
    judged_by = ("bleu", "chrf")
    ask = ""

    def check(self, recipe: Recipe) -> None:
        checks.check_settings(recipe, "vectors", "neighbours")
        checks.check_parts(recipe, encoder=True, decoder=True)

    def data_kind(self, recipe: Recipe) -> DataKind:
        return EXAMPLES

    def reads(self, recipe: Recipe) -> SourceType:
        return NgramSource if recipe.source.kind == "ngrams" else vectors_or(recipe, TextSource)

    def writes(self, recipe: Recipe) -> TargetType:
        return TextTarget

    def read(self, recipe: Recipe, files: Sequence[str]) -> Iterator[Example]:
        if recipe.source.kind == "vectors":
            return read_vectors(files, target=recipe.data.target)
        return read_pairs(files, source=recipe.data.source, target=recipe.data.target)

    def build(self, recipe: Recipe, codec: Codec) -> nn.Module:
        if recipe.model.neighbours is not None:
            return neighbour_model(recipe.model.neighbours, codec)
        return build_seq2seq(recipe, codec.source.entry, len(codec.target_tokenizer))

    def learner(self, recipe: Recipe, network: nn.Module, corpus: Corpus, world: World) -> Learner:
        if recipe.model.neighbours is not None:
            refuse_many_processes(recipe, world)
            return neighbour_learner(network, corpus)
        return gradient_learner(recipe, network, corpus, world)

    def validate(self, bundle: Bundle, data: Any) -> dict[str, float]:
        return {"exact": exactly_right(self, bundle, data.some(DECODED_WHILE_TRAINING).all)}

    def predict(self, job: Job) -> list[Prediction]:
        answers = translate(job)
        if not isinstance(job.bundle.codec.source, TextSource):
            return answers
        both = zip(answers, job.inputs, strict=True)
        return [replace(each, details=each.details | unread(job.bundle, value)) for each, value in both]

    def evaluate(self, bundle: Bundle, data: Any, scoring: Scoring) -> Report:
        """BLEU, chrF and exact matches, beside a copy of the source."""
        examples, lower = data.all, scoring.lower
        normalise = bundle.codec.target_tokenizer.normaliser
        sources, gold = [e.source for e in examples], [normalise(str(e.target)) for e in examples]
        answers = ask(self, bundle, sources, decode=scoring.decode, world=scoring.world)
        predicted = [answer.output for answer in answers]
        scores: dict[str, Any] = {"exact": exact_match(predicted, gold), **corpus_scores(predicted, gold, lower=lower)}
        scores |= example_loss(bundle, examples, scoring.world)
        floors = {}
        if isinstance(bundle.codec.source, TextSource | NgramSource):
            copies = list(map(str, sources))
            copied = corpus_scores(copies, gold, lower=lower)
            floor = {"exact": exact_match(copies, gold), "bleu": float(copied["bleu"]), "chrf": float(copied["chrf"])}
            floors["copy of the source"] = floor
        lengths = np.asarray([len(row) for row in bundle.codec.source.encode(sources)])
        by_length = _by_length(lengths, predicted, gold, lower=lower)
        wrong = mistakes(bundle, examples, predicted, gold)
        return Report(self.name, len(examples), scores, floors, wrong, by_length=by_length)

    def opening(self, bundle: Bundle, value: Any, decode: Decode) -> Opening:
        return open_translation(bundle, value, decode)

    def subject(self, question: Question) -> Subject:
        return translated(question)

    def views(self, bundle: Bundle) -> tuple[str, ...]:
        if bundle.recipe.model.neighbours is not None:
            return ("evidence", "surprisal", "beam")
        return (*ANSWER_VIEWS, "cells", "beam")


def _by_length(
    lengths: Int[np.ndarray, " N"], predicted: list[str], gold: list[str], *, lower: bool
) -> dict[str, dict[str, int | float]]:
    """The same scores for short and long sources: without attention they fall (C6)."""
    table = {}
    for low, high in itertools.pairwise(BUCKETS):
        rows = np.flatnonzero((lengths > low) & (lengths <= high)).tolist()
        if rows:
            ours, theirs = [predicted[i] for i in rows], [gold[i] for i in rows]
            bleu = float(corpus_scores(ours, theirs, lower=lower)["bleu"])
            name = f"{low + 1}-{high}" if high < BUCKETS[-1] else f"over {low}"
            table[name] = {"examples": len(rows), "exact": exact_match(ours, theirs), "bleu": bleu}
    return table
