"""Linear classifiers: logits W x + b, where x is the n-grams of a text, or a summary of a sequence or a picture.

Only W and b are learnt, by a convex problem; what scales x is measured on the training part.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from seqlab.layers.tap import tap
from seqlab.models.interface import Reading, fixed, one_label
from seqlab.models.summaries import Summary
from seqlab.models.tf_idf import NgramWeights
from seqlab.padded import Batch, Padded
from seqlab.types import State


class _Linear(nn.Module):
    """W and b; the logits are the features, as the n-grams of a text are too many to pass on."""

    def __init__(self, num_features: int, num_labels: int) -> None:
        super().__init__()
        self.weight = fixed(torch.zeros(num_features, num_labels))
        self.bias = fixed(torch.zeros(num_labels))

    def features(self, source: Padded) -> Float[Tensor, "B 1 K"]:
        raise NotImplementedError

    def head(self, features: Float[Tensor, "... K"]) -> Float[Tensor, "... K"]:
        return tap("logits", features)

    def read_batch(self, batch: Batch, carried: State = ()) -> Reading:
        return Reading(self.features(batch.require("source")), one_label(batch))


class LinearText(_Linear):
    """Logistic regression over the n-grams of a text: a strong baseline for topics and sentiment (Wang 2012)."""

    def __init__(self, num_words: int, num_features: int, num_labels: int) -> None:
        super().__init__(num_features, num_labels)
        self.ngrams = NgramWeights(num_words, num_features)

    def features(self, source: Padded) -> Float[Tensor, "B 1 K"]:
        ids, values = self.ngrams(source)
        if not ids.shape[1]:
            return self.bias.expand(len(source), 1, -1)
        return (
            F.embedding_bag(ids, self.weight, per_sample_weights=values, mode="sum") + self.bias
        )[:, None]

    def contributions(self, source: Padded) -> Float[Tensor, "T K"]:
        """What each n-gram of the only row adds to each logit."""
        ids, values = self.ngrams(source)
        return values[0, :, None] * self.weight[ids[0]]


class LinearVector(_Linear):
    """Logistic regression over a summary of each row, whose numbers are brought to mean 0 and deviation 1."""

    def __init__(self, summary: Summary, num_labels: int) -> None:
        size = len(summary.names)
        super().__init__(size, num_labels)
        self.summary = summary
        self.mean = fixed(torch.zeros(size))
        self.deviation = fixed(torch.ones(size))

    @property
    def names(self) -> list[str]:
        return self.summary.names

    def vectors(self, source: Padded) -> Float[Tensor, "B D"]:
        """The summary of each row; together its numbers have about the length 1, as the n-grams of a text have."""
        return (self.summary(source) - self.mean) / self.deviation / len(self.mean) ** 0.5

    @torch.no_grad()
    def measure(self, parts: Sequence[Padded]) -> Float[Tensor, "N D"]:
        """Take mean and deviation from these rows; returns their vectors."""
        rows = torch.cat([self.summary(part) for part in parts])
        self.mean.copy_(rows.mean(0))
        deviation = rows.std(0, correction=0)
        self.deviation.copy_(torch.where(deviation > 1e-6, deviation, 1.0))
        return torch.cat([self.vectors(part) for part in parts])

    def features(self, source: Padded) -> Float[Tensor, "B 1 K"]:
        return (self.vectors(source) @ self.weight + self.bias)[:, None]

    def contributions(self, source: Padded) -> Float[Tensor, "D K"]:
        """What each number of the only row's summary adds to each logit."""
        return self.vectors(source)[0, :, None] * self.weight
