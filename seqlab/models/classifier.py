"""Sequence to label (S10), and sequence to aligned labels (S11)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqlab.layers.linear import Head
from seqlab.layers.pooling import Pooling
from seqlab.layers.tap import tap
from seqlab.models.interface import Encoder, Reading, one_label
from seqlab.models.outputs import Output
from seqlab.models.seq2seq import EncoderModel, sum_penalties
from seqlab.padded import Batch, Measured, Padded
from seqlab.randomness import Dropout
from seqlab.types import PositionIds, Scalar, State, Vector, Vectors


class Classifier(nn.Module):
    """One label for the whole sequence, from its pooled states."""

    def __init__(
        self, encoder: Encoder, pooling: Pooling, head: Head, *, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.encoder, self.pooling, self.head = encoder, pooling, head
        self.dropout = Dropout(dropout, name="pooling")

    def features(self, source: Padded) -> Float[Tensor, "B 1 D"]:
        return self._read(source)[0]

    def vectors(self, source: Padded) -> Vector:
        """Return one vector for each row: the input of the head."""
        return self.features(source)[:, 0]

    def _read(self, source: Padded) -> tuple[Float[Tensor, "B 1 D"], Scalar | None]:
        memory = self.encoder(source)
        pooled, penalty = self.pooling(memory.require_states(), memory.require_summary())
        return self.dropout(pooled)[:, None], sum_penalties(memory.penalty, penalty)

    def read_batch(self, batch: Batch, carried: State = ()) -> Reading:
        features, penalty = self._read(batch.require("source"))
        return Reading(features, one_label(batch), penalty=penalty)


class Tagger(EncoderModel):
    """One label for each position."""

    def __init__(self, encoder: Encoder, head: Head) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head

    @property
    def label_bias(self) -> Float[Tensor, " K"]:
        return self.head.output.bias

    def features(self, source: Padded) -> Vectors:
        return self.encoder(source).require_states().values

    def decode(self, source: Padded) -> PositionIds:
        """Return the likeliest label of each position."""
        return self.head(self.features(source)).argmax(-1)

    def read_batch(self, batch: Batch, carried: State = ()) -> Reading:
        memory = self.encoder(batch.require("source"))
        return Reading(
            memory.require_states().values, batch.require("target"), penalty=memory.penalty
        )


class PositionRegressor(EncoderModel):
    """Numbers at each position, such as the angles of amino acids; each is predicted independently by one output."""

    def __init__(self, encoder: Encoder, output: Output, scale: Measured) -> None:
        super().__init__()
        self.encoder = encoder
        self.output = output
        self.width = len(scale.mean)
        self.head = nn.Identity()
        self.measure = nn.Linear(encoder.output_size, self.width * output.size)
        self.mean = nn.Buffer(torch.tensor(scale.mean), persistent=False)
        self.deviation = nn.Buffer(torch.tensor(scale.deviation), persistent=False)

    def features(self, source: Padded) -> Float[Tensor, "B TD P"]:
        """Return the distribution parameters of each number; the numbers of a position follow each other."""
        raw = self.measure(self.encoder(source).require_states().values).unflatten(
            -1, (self.width, self.output.size)
        )
        return tap("numbers", self.output.place(raw, self.mean, self.deviation)).flatten(1, 2)

    def decode(self, source: Padded) -> Vectors:
        """Return the predicted numbers of each position."""
        return self.output.mean(self.features(source)).unflatten(1, (-1, self.width))

    def read_batch(self, batch: Batch, carried: State = ()) -> Reading:
        target = batch.require("target")
        values = target.values.flatten(1, 2)
        gold = Padded(values.nan_to_num(), target.lengths * self.width, ~values.isnan())
        return Reading(self.features(batch.require("source")), gold, output=self.output)
