"""Linear classifiers of a recipe: built, and fitted to a corpus."""

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

STRENGTHS = (1.0, 3.0, 10.0, 30.0)  # tried one after another
ROWS = 500  # examples read together
USUAL_STRENGTH = 10.0  # where too little is held out to choose by
STEPS = 60
FEW = 100  # texts, up to which an n-gram of one text is a feature
NUM_FEATURES = 100_000


def linear_classifier(recipe: Recipe, codec: Codec) -> nn.Module:
    """A linear classifier that knows nothing yet: of n-grams, of a small picture, or of a summary of vectors."""
    source, num_labels = codec.source, len(labels_in(codec))
    if isinstance(source, NgramSource):
        return LinearText(len(source.vocabulary.words), len(source.vocabulary), num_labels)
    if recipe.image is not None:
        return LinearVector(PictureSummary(recipe.image), num_labels)
    return LinearVector(SequenceSummary(len(cast(Measured, source.entry).mean)), num_labels)


def linear_or_gradient(recipe: Recipe, network: nn.Module, corpus: Corpus, world: World) -> Learner:
    """A linear classifier is fitted to the whole training part by one process; layers descend along gradients."""
    if recipe.model.linear is None:
        return gradient_learner(recipe, network, corpus, world)
    refuse_many_processes(recipe, world)
    return _linear_learner(recipe, recipe.model.linear, network, corpus)


def _linear_learner(
    recipe: Recipe, settings: LinearConfig, model: nn.Module, corpus: Corpus
) -> Learner:
    """Logistic regression on the whole training part; an example without a label tells nothing."""
    rows, linear = training_rows(corpus), cast(LinearText | LinearVector, model)
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
        strength = (
            USUAL_STRENGTH  # the best of several on so few is luck, and so would be its score
        )
    strengths = STRENGTHS if strength is None else (strength,)
    return ConvexLearner(model, [linear.weight, linear.bias], problem, recipe.train, strengths)


def training_rows(corpus: Corpus) -> Rows:
    """The training part as it lies on disk."""
    return cast(Rows, cast(ExampleBatches, corpus.train).rows)


def sources(rows: Rows, places: Int[Tensor, " N"]) -> list[Padded]:
    """The sources at these places, in their order, a few rows at a time."""
    return [rows.batch(some.numpy()).require("source") for some in places.split(ROWS)]


def fit_linear(
    texts: list[str], labels: Int[Tensor, " N"], num_labels: int, asked: list[str]
) -> list[int]:
    """The likeliest label of each text that is asked for, by a linear classifier of these texts and their labels."""
    often = 2 if len(texts) > FEW else 1
    vocabulary = NgramVocabulary.learn(
        lambda: texts,
        normaliser=Normaliser("NFKC", True, False),
        size=NUM_FEATURES,
        min_count=often,
    )
    model = LinearText(len(vocabulary.words), len(vocabulary), num_labels)
    parts = [_bags(vocabulary, texts[start : start + ROWS]) for start in range(0, len(texts), ROWS)]
    problem = LogisticRegression(model.ngrams.measure(parts), labels, len(vocabulary))
    settings = TrainConfig(steps=STEPS, tolerance=1e-3)
    learner = ConvexLearner(model, [model.weight, model.bias], problem, settings, (USUAL_STRENGTH,))
    while not learner.finished:
        learner.step()
    with torch.inference_mode():
        rows = [
            _bags(vocabulary, asked[start : start + ROWS]) for start in range(0, len(asked), ROWS)
        ]
        return [label for part in rows for label in model.features(part)[:, 0].argmax(-1).tolist()]


def _bags(vocabulary: NgramVocabulary, texts: list[str]) -> Padded:
    return padded(list(vocabulary.encode_all(texts)))
