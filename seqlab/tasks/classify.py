"""The task `classify`: one label for each sequence (S10)."""

from collections.abc import Iterator, Sequence

import torch
from torch import nn

from seqlab.bundle import Bundle
from seqlab.codecs.codec import Codec, Files, SourceType
from seqlab.codecs.labels import LabelTarget, labels_in
from seqlab.codecs.ngrams import NgramSource
from seqlab.codecs.picture import PictureSource
from seqlab.codecs.text import TextSource
from seqlab.data.example import Example
from seqlab.data.picture_files import read_pictures
from seqlab.data.text_pairs import read_labelled
from seqlab.data.vector_files import read_vectors
from seqlab.equations.attention import hop_overlap
from seqlab.layers.linear import Head
from seqlab.metrics.scores import accuracy, macro_f1, share
from seqlab.models.build import build_encoder, build_pooling
from seqlab.models.classifier import Classifier
from seqlab.padded import Padded
from seqlab.recipe import Recipe
from seqlab.tasks.baselines import linear_labels
from seqlab.tasks.conformal import label_set, limit_of
from seqlab.tasks.examples import (
    Examples,
    answer_inputs,
    answers_in_order,
    encode_inputs,
    example_batches,
    example_loss,
    mistakes,
    num_unread,
    of_examples,
    vectors_or_text,
    warn_of_new_labels,
)
from seqlab.tasks.linear_fitting import linear_classifier, linear_or_gradient
from seqlab.tasks.settings import choose_classify
from seqlab.tasks.subjects import label_subject
from seqlab.tasks.task import ANSWER_VIEWS, Answer, Job, Prediction, Report, Scores, Scoring, Task
from seqlab.tasks.temperature import calibration, choose_limits, temperature_of
from seqlab.trace import Trace


def _reads(recipe: Recipe) -> SourceType:
    if recipe.source.kind == "ngrams":
        return NgramSource
    return PictureSource if recipe.image is not None else vectors_or_text(recipe, TextSource)


def _read(recipe: Recipe, files: Files) -> Iterator[Example]:
    data = recipe.data
    if recipe.image is not None:
        return read_pictures(
            files, recipe.image, labels=True, source=data.source, target=data.target
        )
    if recipe.source.kind == "vectors":
        return read_vectors(files, target=data.target, few_labels=True)
    return read_labelled(files, text=data.source, label=data.target, encoding=data.encoding)


def _build(recipe: Recipe, codec: Codec) -> nn.Module:
    if recipe.model.linear is not None:
        return linear_classifier(recipe, codec)
    encoder = build_encoder(recipe, codec.source.entry)
    pooling = build_pooling(recipe, encoder)
    head = Head(pooling.output_size, len(labels_in(codec)))
    return Classifier(encoder, pooling, head, dropout=recipe.model.dropout)


def _predict(job: Job) -> list[Prediction]:
    """Return the most probable label of each input, with the probabilities of all labels."""
    bundle, model = job.bundle, job.bundle.model
    source = bundle.codec.source
    names = labels_in(bundle.codec).names
    limit = None if job.decode.conformal is None else limit_of(bundle, job.decode.conformal)

    def answer(rows: Padded, numbers: list[int]) -> Iterator[Prediction]:
        logits = model.head(model.features(rows))[:, 0] / temperature_of(bundle)
        for number, p in zip(numbers, logits.double().softmax(-1), strict=True):
            value = job.inputs[number]
            best = int(p.argmax())
            details = {
                "probability": float(p[best]),
                "probabilities": dict(zip(names, p.tolist(), strict=True)),
            }
            if limit is not None:
                details["labels"] = label_set(names, p.tolist(), limit)
            if isinstance(source, TextSource):
                details |= num_unread(bundle, value)
            yield Prediction(source.show(value), names[best], details)

    return answers_in_order(encode_inputs(bundle, job.inputs, first_row=job.first_row), answer)


def _evaluate(bundle: Bundle, data: Examples, scoring: Scoring) -> Report:
    """Score the accuracy, next to that of the majority class and of a linear model over words."""
    examples = data.all
    gold = [str(example.target) for example in examples]
    warn_of_new_labels(bundle, examples)
    answers = answer_inputs(
        _predict, bundle, data.sources, decode=scoring.decode, world=scoring.world
    )
    predicted = [answer.output for answer in answers]
    scores = (
        _scores(predicted, gold)
        | example_loss(bundle, examples, scoring.world)
        | calibration(bundle, examples)
    )
    scores |= _conformal_scores(answers, gold)
    if bundle.recipe.model.pooling == "hops" and bundle.recipe.model.hops > 1:
        scores["hop_overlap"] = _hop_overlap(bundle, examples)
    baselines = {"majority class": _scores([labels_in(bundle.codec).majority] * len(gold), gold)}
    note = ""
    if isinstance(bundle.codec.source, TextSource):
        linear, note = linear_labels(
            bundle, examples, scoring.store("source"), scoring.store("target")
        )
        baselines |= {"TF-IDF, linear": _scores(linear, gold)} if linear else {}
    wrong = mistakes(bundle, examples, predicted, gold)
    right = share("accuracy", [p == g for p, g in zip(predicted, gold, strict=True)])
    return Report("classify", len(examples), scores, baselines, wrong, note, by_example=right)


def _baseline(recipe: Recipe) -> str:
    if recipe.image is not None:
        return "linear-pixels"
    return "linear-vectors" if recipe.source.kind == "vectors" else "linear-classifier"


def _scores(predicted: list[str], gold: list[str]) -> Scores:
    return {"accuracy": accuracy(predicted, gold), "macro_f1": macro_f1(predicted, gold)}


def _conformal_scores(answers: Sequence[Answer], gold: list[str]) -> Scores:
    """Return the share of conformal sets that contain the true label, and their mean size, if there are sets."""
    sets = [answer.details["labels"] for answer in answers if "labels" in answer.details]
    if not sets:
        return {}
    covered = [label in labels for label, labels in zip(gold, sets, strict=True)]
    return {"set_coverage": sum(covered) / len(sets), "set_size": sum(map(len, sets)) / len(sets)}


@torch.inference_mode()
def _hop_overlap(bundle: Bundle, examples: list[Example]) -> float:
    """Return how much the attention of the hops overlaps: 1 if all are equal, 0 if they share no position."""
    overlaps = []
    for batch in example_batches(bundle, examples):
        with Trace().recording() as trace:
            bundle.model.features(batch.require("source"))
        overlaps.append(hop_overlap(trace["pooling.weights"]))
    return float(torch.cat(overlaps).mean())


# The source is a text, a sequence of vectors, or a picture.
CLASSIFY = Task(
    name="classify",
    ladder=("lstm-classifier", "bilstm-classifier", "self-attentive", "transformer-classifier"),
    judged_by=("accuracy",),
    data_kind=of_examples,
    reads=_reads,
    writes=lambda recipe: LabelTarget,
    read=_read,
    build=_build,
    predict=_predict,
    choose=choose_classify,
    evaluate=_evaluate,
    baseline=_baseline,
    calibrate=choose_limits,
    subject=label_subject,
    special_settings=("vectors", "image", "linear", "conformal", "letters"),
    learner=linear_or_gradient,
    views=lambda bundle: ("evidence",) if bundle.recipe.model.linear else (*ANSWER_VIEWS, "cells"),
    fine_tuning_recipe="tuned-classifier",
    recurrent_recipe="bilstm-classifier",
)
