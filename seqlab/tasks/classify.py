"""classify: a sequence to one label (S10)."""

from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch
from torch import nn

from seqlab.bundle import Bundle
from seqlab.codecs.codec import Codec, SourceType, TargetType, padded
from seqlab.codecs.labels import LabelTarget, labels_in
from seqlab.codecs.ngrams import NgramSource
from seqlab.codecs.picture import PictureSource
from seqlab.codecs.text import TextSource
from seqlab.corpus.examples import Corpus
from seqlab.data.pictures import read_pictures
from seqlab.data.sources import Example, read_labelled
from seqlab.data.vectors import read_vectors
from seqlab.equations.attention import hop_overlap
from seqlab.layers.linear import Head
from seqlab.layers.tap import listening
from seqlab.metrics.scores import accuracy, macro_f1
from seqlab.models.build import build_encoder, build_pooling
from seqlab.models.classifier import Classifier
from seqlab.recipe import Decode, Recipe
from seqlab.subject import Question, Subject
from seqlab.tasks import checks
from seqlab.tasks.baselines import linear_labels
from seqlab.tasks.examples import (
    EXAMPLES,
    batches,
    encode_inputs,
    example_batches,
    example_loss,
    gradient_learner,
    looked_at,
    mistakes,
    open_store,
    refuse_many_processes,
    unread,
    vectors_or,
    warn_of_new_labels,
    writes_no_text,
)
from seqlab.tasks.linear import linear_classifier, linear_learner
from seqlab.tasks.task import ANSWER_VIEWS, DataKind, Job, Opening, Prediction, Report, Scoring
from seqlab.training.run import Learner
from seqlab.world import World


class Classify:
    """The source is a text, a sequence of vectors, or a picture."""

    name = "classify"
    tuned = "tuned-classifier"
    ladder = ("lstm-classifier", "bilstm-classifier", "self-attentive", "transformer-classifier")
    recurrent = "bilstm-classifier"
    judged_by = ("accuracy",)
    ask = ""

    def check(self, recipe: Recipe) -> None:
        checks.check_settings(recipe, "vectors", "image", "linear")
        checks.check_parts(recipe, encoder=True)

    def data_kind(self, recipe: Recipe) -> DataKind:
        return EXAMPLES

    def reads(self, recipe: Recipe) -> SourceType:
        if recipe.source.kind == "ngrams":
            return NgramSource
        return PictureSource if recipe.image is not None else vectors_or(recipe, TextSource)

    def writes(self, recipe: Recipe) -> TargetType:
        return LabelTarget

    def read(self, recipe: Recipe, files: Sequence[str]) -> Iterator[Example]:
        data = recipe.data
        if recipe.image is not None:
            return read_pictures(files, recipe.image, labels=True, source=data.source, target=data.target)
        if recipe.source.kind == "vectors":
            return read_vectors(files, target=data.target)
        return read_labelled(files, text=data.source, label=data.target)

    def build(self, recipe: Recipe, codec: Codec) -> nn.Module:
        if recipe.model.linear is not None:
            return linear_classifier(codec)
        encoder = build_encoder(recipe, codec.source.entry)
        pooling = build_pooling(recipe, encoder)
        head = Head(pooling.output_size, len(labels_in(codec)))
        return Classifier(encoder, pooling, head, dropout=recipe.model.dropout)

    def learner(self, recipe: Recipe, network: nn.Module, corpus: Corpus, world: World) -> Learner:
        if recipe.model.linear is not None:
            refuse_many_processes(recipe, world)
            return linear_learner(recipe, recipe.model.linear, network, corpus)
        return gradient_learner(recipe, network, corpus, world)

    def validate(self, bundle: Bundle, data: Any) -> dict[str, float]:
        return {}

    @torch.inference_mode()
    def predict(self, job: Job) -> list[Prediction]:
        """The likeliest label of each input, with the probability of each."""
        bundle, model = job.bundle, cast(Classifier, job.bundle.model)
        names, source = labels_in(bundle.codec).names, bundle.codec.source
        rows = encode_inputs(bundle, job.inputs, first_row=job.first_row)
        answers: dict[int, Prediction] = {}
        for together in batches([len(row) for row in rows]):
            logits = model.head(model.features(padded([rows[place] for place in together])))[:, 0]
            for place, p in zip(together, logits.double().softmax(-1), strict=True):
                best = int(p.argmax())
                details = {"probability": float(p[best]), "probabilities": dict(zip(names, p.tolist(), strict=True))}
                details |= unread(bundle, job.inputs[place]) if isinstance(source, TextSource) else {}
                answers[place] = Prediction(source.show(job.inputs[place]), names[best], details)
        return [answers[place] for place in range(len(rows))]

    def evaluate(self, bundle: Bundle, data: Any, scoring: Scoring) -> Report:
        """Accuracy, beside the majority class and a linear model over words."""
        examples, world = data.all, scoring.world
        gold = [str(example.target) for example in examples]
        warn_of_new_labels(bundle, examples)

        def answer(share: Sequence[Any], begin: int) -> list[str]:
            return [p.output for p in self.predict(Job(bundle, list(share), bundle.recipe.decode, first_row=begin))]

        predicted = world.shared([e.source for e in examples], answer)
        scores = _scores(predicted, gold) | example_loss(bundle, examples, world)
        if bundle.recipe.model.pooling == "hops" and bundle.recipe.model.hops > 1:
            scores["hop_overlap"] = _hop_overlap(bundle, examples)
        floors = {"majority class": _scores([labels_in(bundle.codec).majority] * len(gold), gold)}
        note = ""
        if isinstance(bundle.codec.source, TextSource):
            texts, labels = (open_store(scoring.train, name) for name in ("train_source", "train_target"))
            linear, note = linear_labels(bundle, examples, texts, labels)
            floors |= {"TF-IDF, linear": _scores(linear, gold)} if linear else {}
        wrong = mistakes(bundle, examples, predicted, gold)
        return Report(self.name, len(examples), scores, floors, wrong, note)

    def opening(self, bundle: Bundle, value: Any, decode: Decode) -> Opening:
        raise writes_no_text(self)

    def subject(self, question: Question) -> Subject:
        """The likeliest label, from the whole of the source."""
        subject, names = looked_at(question), labels_in(question.bundle.codec).names
        with torch.inference_mode():
            best = tuple(subject.logits().argmax(-1).tolist())
        return subject.answering(best, tuple(names[i] for i in best))

    def views(self, bundle: Bundle) -> tuple[str, ...]:
        return ("evidence",) if bundle.recipe.model.linear is not None else (*ANSWER_VIEWS, "cells")


def _scores(predicted: list[str], gold: list[str]) -> dict[str, float]:
    return {"accuracy": accuracy(predicted, gold), "macro_f1": macro_f1(predicted, gold)}


@torch.inference_mode()
def _hop_overlap(bundle: Bundle, examples: list[Example]) -> float:
    """How much of the hops' weight lies on the same places: 1 where all look alike, 0 where each has its own."""
    overlaps: list[torch.Tensor] = []

    def record(name: str, value: torch.Tensor) -> torch.Tensor:
        if name == "pooling.weights":
            overlaps.append(hop_overlap(value))
        return value

    with listening(record):
        for batch in example_batches(bundle, examples):
            cast(Any, bundle.model).features(batch.source)
    return float(torch.cat(overlaps).mean())
