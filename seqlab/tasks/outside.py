"""How readily a tagger of spans predicts "outside": chosen by the F1 of held-out spans.

A tagger learns to get most labels right. Where nearly all of them are O, it predicts O too often for a high F1:
precision is far above recall. So an amount is subtracted from the bias of O. Few held-out spans make a noisy curve, so
each amount is judged by the mean of its own F1 and that of its two neighbours.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from seqlab.bundle import Bundle
from seqlab.codecs.labels import LabelTarget, labels_in
from seqlab.metrics.scores import looks_like_spans, span_scores
from seqlab.tasks.examples import Examples

OUTSIDE = "O"
STEP = 0.5  # nats
AMOUNTS = 5  # zero and four steps
SENTENCES = 500  # are tagged with each amount: more take time and change little


@runtime_checkable
class Biased(Protocol):
    """A model with a bias for each label."""

    @property
    def label_bias(self) -> Float[Tensor, " K"]:
        """What is added to the score of each label at every position."""


def choose_outside(
    bundle: Bundle, data: Examples, tag: Callable[[Bundle, Sequence[Any]], list[list[Any]]]
) -> None:
    """Subtract from the bias of O what gives the highest F1 on held-out sentences; of equals, the least.

    Chosen again on the same sentences, nothing more is subtracted.
    """
    model = bundle.model
    if not isinstance(bundle.codec.target, LabelTarget) or not isinstance(model, Biased):
        return
    names, some = list(labels_in(bundle.codec).names), data.sample(SENTENCES)
    gold = [list(example.target) for example in some.all]
    if OUTSIDE not in names or not looks_like_spans(names) or {OUTSIDE} >= set().union(*gold):
        return
    outside, bias, scores = names.index(OUTSIDE), model.label_bias, []
    learnt = bias[outside].item()
    with torch.no_grad():
        for step in range(-1, AMOUNTS + 1):
            bias[outside] = learnt - step * STEP
            scores.append(span_scores(tag(bundle, some.sources), gold)["entity_f1"])
        means = [sum(scores[place : place + 3]) for place in range(AMOUNTS)]
        bias[outside] = learnt - means.index(max(means)) * STEP
