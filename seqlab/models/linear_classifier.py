"""Linear classifiers: logits W x + b, where x is the n-grams of a text, or a summary of a sequence or a picture.

W and b are fitted by convex optimisation; the scale of x is measured on the training part.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from seqlab.layers.tap import tap
from seqlab.models.interface import Reading, frozen, one_label
from seqlab.models.summaries import Summary
from seqlab.models.tf_idf import NgramWeights
from seqlab.padded import Batch, Padded
from seqlab.types import State


class _Linear(nn.Module):
    """W and b. The features are the logits, because the n-grams of a text would be too many."""

    def __init__(self, num_features: int, num_labels: int) -> None:
        super().__init__()
        self.weight = frozen(torch.zeros(num_features, num_labels))
        self.bias = frozen(torch.zeros(num_labels))

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
        """Return what each n-gram adds to each logit, for a batch of one row."""
        ids, values = self.ngrams(source)
        return values[0, :, None] * self.weight[ids[0]]


class LinearVector(_Linear):
    """Logistic regression over a summary of each row, standardised to mean 0 and deviation 1."""

    def __init__(self, summary: Summary, num_labels: int) -> None:
        size = len(summary.names)
        super().__init__(size, num_labels)
        self.summary = summary
        self.mean = frozen(torch.zeros(size))
        self.deviation = frozen(torch.ones(size))

    @property
    def names(self) -> list[str]:
        return self.summary.names

    def vectors(self, source: Padded) -> Float[Tensor, "B D"]:
        """Return the standardised summary of each row, scaled to a length of about 1 like the n-grams of a text."""
        return (self.summary(source) - self.mean) / self.deviation / len(self.mean) ** 0.5

    @torch.no_grad()
    def measure(self, parts: Sequence[Padded]) -> Float[Tensor, "N D"]:
        """Set mean and deviation from these rows; return their vectors."""
        rows = torch.cat([self.summary(part) for part in parts])
        self.mean.copy_(rows.mean(0))
        deviation = rows.std(0, correction=0)
        self.deviation.copy_(torch.where(deviation > 1e-6, deviation, 1.0))
        return torch.cat([self.vectors(part) for part in parts])

    def features(self, source: Padded) -> Float[Tensor, "B 1 K"]:
        return (self.vectors(source) @ self.weight + self.bias)[:, None]

    def contributions(self, source: Padded) -> Float[Tensor, "D K"]:
        """Return what each number of the summary adds to each logit, for a batch of one row."""
        return self.vectors(source)[0, :, None] * self.weight
