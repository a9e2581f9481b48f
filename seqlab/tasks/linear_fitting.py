"""Building linear classifiers and fitting them by logistic regression."""

from typing import cast

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn

from seqlab.codecs.codec import Codec, padded
from seqlab.codecs.labels import labels_in
from seqlab.codecs.ngrams import NgramSource
from seqlab.corpus.examples import Corpus, ExampleBatches
from seqlab.data.batching import Rows
from seqlab.data.store import TokenStore
from seqlab.distributed import World
from seqlab.models.linear_classifier import LinearText, LinearVector
from seqlab.models.summaries import PictureSummary, SequenceSummary
from seqlab.models.tf_idf import SparseTable
from seqlab.padded import Measured, Padded
from seqlab.recipe import LinearConfig, Recipe, TrainConfig
from seqlab.tasks.settings import HELD_OUT
from seqlab.tasks.task import gradient_learner, refuse_many_processes
from seqlab.text import Normaliser
from seqlab.text.ngrams import NgramVocabulary
from seqlab.training.convex import ConvexLearner, DenseTable, LogisticRegression
from seqlab.training.run import Learner

# candidates, fitted one after another
STRENGTHS = (1.0, 3.0, 10.0, 30.0)
# the default if the held-out part is too small to choose a strength
DEFAULT_STRENGTH = 10.0
# examples of a batch
BATCH_ROWS = 500
STEPS = 60
# up to this many texts, an n-gram that occurs in only one text is a feature
FEW_TEXTS = 100
NUM_FEATURES = 100_000


def linear_classifier(recipe: Recipe, codec: Codec) -> nn.Module:
    """Build an untrained classifier over n-grams, the pixels of a small picture, or a summary of vectors."""
    source, num_labels = codec.source, len(labels_in(codec))
    if isinstance(source, NgramSource):
        return LinearText(len(source.vocabulary.words), len(source.vocabulary), num_labels)
    if recipe.image is not None:
        return LinearVector(PictureSummary(recipe.image), num_labels)
    return LinearVector(_sequence_summary(recipe, codec), num_labels)


def _sequence_summary(recipe: Recipe, codec: Codec) -> SequenceSummary:
    points = 0 if recipe.model.linear is None else recipe.model.linear.points
    return SequenceSummary(len(cast(Measured, codec.source.entry).mean), points)


def linear_or_gradient(recipe: Recipe, network: nn.Module, corpus: Corpus, world: World) -> Learner:
    """Return the learner of a classifier: logistic regression for [model.linear], else gradient descent."""
    if recipe.model.linear is None:
        return gradient_learner(recipe, network, corpus, world)
    refuse_many_processes(recipe, world)
    return _linear_learner(recipe, recipe.model.linear, network, corpus)


def _linear_learner(
    recipe: Recipe, settings: LinearConfig, model: nn.Module, corpus: Corpus
) -> Learner:
    """Return logistic regression on all labelled examples of the training part."""
    rows = training_rows(corpus)
    linear = cast(LinearText | LinearVector, model)
    labels = torch.from_numpy(np.asarray(cast(TokenStore, rows.target).flat, dtype=np.int64))
    labelled = torch.nonzero(labels >= 0)[:, 0]
    parts = sources(rows, labelled)
    if isinstance(linear, LinearText):
        table: SparseTable | DenseTable = linear.ngrams.measure(parts)
    else:
        table = DenseTable(linear.measure(parts))
    problem = LogisticRegression(table, labels[labelled], len(linear.weight))
    strength = settings.strength
    if strength is None and corpus.size.get("validation_target_rows", 0) < HELD_OUT - 1:
        # choosing the best of several on so few examples would be random
        strength = DEFAULT_STRENGTH
    strengths = STRENGTHS if strength is None else (strength,)
    return ConvexLearner(model, [linear.weight, linear.bias], problem, recipe.train, strengths)


def training_rows(corpus: Corpus) -> Rows:
    """Return the stored rows of the training part."""
    return cast(Rows, cast(ExampleBatches, corpus.train).rows)


def sources(rows: Rows, numbers: Int[Tensor, " N"]) -> list[Padded]:
    """Return the sources of these rows, in their order, in batches."""
    return [rows.batch(part.numpy()).require("source") for part in numbers.split(BATCH_ROWS)]


def fit_and_predict(
    texts: list[str], labels: Int[Tensor, " N"], num_labels: int, inputs: list[str]
) -> list[int]:
    """Fit a linear classifier to texts and their labels, and return its label for each input."""
    vocabulary = NgramVocabulary.learn(
        lambda: texts,
        normaliser=Normaliser("NFKC", True, False),
        size=NUM_FEATURES,
        min_count=2 if len(texts) > FEW_TEXTS else 1,
    )
    model = LinearText(len(vocabulary.words), len(vocabulary), num_labels)
    table = model.ngrams.measure(_encode_in_batches(vocabulary, texts))
    problem = LogisticRegression(table, labels, len(vocabulary))
    settings = TrainConfig(steps=STEPS, tolerance=1e-3)
    learner = ConvexLearner(
        model, [model.weight, model.bias], problem, settings, (DEFAULT_STRENGTH,)
    )
    while not learner.finished:
        learner.step()
    predicted: list[int] = []
    with torch.inference_mode():
        for part in _encode_in_batches(vocabulary, inputs):
            predicted += model.features(part)[:, 0].argmax(-1).tolist()
    return predicted


def _encode_in_batches(vocabulary: NgramVocabulary, texts: list[str]) -> list[Padded]:
    return [
        padded(list(vocabulary.encode_all(texts[start : start + BATCH_ROWS])))
        for start in range(0, len(texts), BATCH_ROWS)
    ]
