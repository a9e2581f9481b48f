"""Building conditional random fields for taggers, and fitting them by maximum likelihood."""

from typing import cast

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from seqlab.codecs.codec import Codec
from seqlab.codecs.labels import labels_in
from seqlab.corpus.examples import Corpus
from seqlab.data.batching import plan_in_order
from seqlab.metrics.scores import looks_like_spans
from seqlab.models.crf import CRF, NEVER
from seqlab.padded import Tokens
from seqlab.recipe import CRFConfig, Recipe
from seqlab.tasks.linear_fitting import training_rows
from seqlab.training.convex import ConvexLearner
from seqlab.training.crf_loss import CRFProblem
from seqlab.training.run import Learner

# candidates, fitted one after another
STRENGTHS = (1.0, 10.0)
# positions of a batch
BATCH_POSITIONS = 20_000


def crf_tagger(recipe: Recipe, settings: CRFConfig, codec: Codec) -> nn.Module:
    """Build an untrained conditional random field."""
    return CRF(cast(Tokens, codec.source.entry).num_tokens, len(labels_in(codec)))


def crf_learner(recipe: Recipe, settings: CRFConfig, model: nn.Module, corpus: Corpus) -> Learner:
    """Return maximum-likelihood estimation on the whole training part, in batches of similar length."""
    crf = cast(CRF, model)
    rows = training_rows(corpus)
    plan = plan_in_order(rows.lengths, budget=BATCH_POSITIONS)
    batches = [rows.batch(numbers) for numbers in plan]
    batches = [batch for batch in batches if int(batch.require("source").lengths.min())]
    labels = [batch.require("target").values for batch in batches]
    problem = CRFProblem([batch.require("source") for batch in batches], labels, len(crf.weight))
    with torch.no_grad():
        crf.barred.masked_fill_(_barred_transitions(labels_in(corpus.codec).names, labels), NEVER)
    strengths = STRENGTHS if settings.strength is None else (settings.strength,)
    return ConvexLearner(model, crf.learnt, problem, recipe.train, strengths)


def _barred_transitions(
    names: tuple[str, ...] | list[str], labels: list[Tensor]
) -> Bool[Tensor, "K1 K"]:
    """Return which transitions are impossible: "I-X" follows only "B-X" or "I-X"; the last row is the start.

    Transitions that occur in the training part are never barred.
    """
    barred = torch.zeros(len(names) + 1, len(names), dtype=torch.bool)
    if not looks_like_spans(names):
        return barred
    for after, name in enumerate(names):
        if name.startswith("I-"):
            inside = [before in (f"B-{name[2:]}", name) for before in names]
            barred[:, after] = ~torch.tensor([*inside, False])
    for part in labels:
        barred[-1, part[:, 0].clamp(min=0)] = False
        barred[part[:, :-1].clamp(min=0), part[:, 1:].clamp(min=0)] = False
    return barred
