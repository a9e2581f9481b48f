"""Sequence to real vectors, unaligned (S30): an encoder, and a decoder that writes frames until it ends."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, pad

from seqlab.layers.stack import CausalStack
from seqlab.layers.tap import tap
from seqlab.models.interface import Encoder, Memory, Reading
from seqlab.models.outputs import PointOutput
from seqlab.models.recurrent import Bridge, SourceAttention
from seqlab.models.seq2seq import EncoderModel, sum_penalties
from seqlab.padded import Batch, Measured, Padded
from seqlab.randomness import Dropout
from seqlab.types import State, Vectors

LEVEL = 0.8  # of the bands of a point output, which nobody asks for here


class Speaker(EncoderModel):
    """At each step the last frame and what the source says enter a recurrent stack (Bahdanau's wiring, S14).

    What comes out says the next frame and how likely it is the last one. Frames are read, written and scored in
    deviations from their mean over the training part.
    """

    def __init__(
        self,
        encoder: Encoder,
        stack: CausalStack,
        attention: SourceAttention,
        *,
        entrance: int,
        scale: Measured,
        dropout: float,
    ) -> None:
        super().__init__()
        self.encoder, self.stack, self.attention = encoder, stack, attention
        self.output, self.width, self.head = PointOutput(LEVEL), len(scale.mean), nn.Identity()
        self.bridge = Bridge(encoder.summary_size, stack.state_sizes)
        self.enter = nn.Linear(self.width, entrance)
        self.dropout = Dropout(dropout, name="decoder.input")
        features = stack.output_size + encoder.output_size
        self.frame, self.ending = nn.Linear(features, self.width), nn.Linear(features, 1)
        self.mean = nn.Buffer(torch.tensor(scale.mean), persistent=False)
        self.deviation = nn.Buffer(torch.tensor(scale.deviation), persistent=False)

    def read_batch(self, batch: Batch, carried: State = ()) -> Reading:
        """Teacher forcing: each frame is predicted from all before it."""
        target, memory = batch.require("target"), self.encoder(batch.require("source"))
        gold = (target.values - self.mean) / self.deviation
        context, state = self.start(memory)
        features, _ = self.features(pad(gold, (0, 0, 1, 0))[:, :-1], context, state)
        numbers = Padded(gold.flatten(1, 2), target.lengths * self.width)
        last = torch.arange(gold.shape[1]) == target.lengths[:, None] - 1
        endings = binary_cross_entropy_with_logits(
            self.ending(features)[..., 0], last.float(), reduction="none"
        )
        penalty = (
            self.width * endings[target.real].sum()
        )  # an ending counts as much as a whole frame
        predicted = self.frame(features).flatten(1, 2)[..., None]
        return Reading(
            predicted, numbers, penalty=sum_penalties(memory.penalty, penalty), output=self.output
        )

    def start(self, memory: Memory) -> tuple[State, State]:
        """What is computed once for each source, and the state before the first frame."""
        return self.attention.context(memory), self.bridge(memory.require_summary())

    def features(
        self, frames: Vectors, context: State, state: State
    ) -> tuple[Float[Tensor, "B T F"], State]:
        """What the next frame is predicted from, after each of these."""
        features = []
        for x in self.dropout(self.enter(frames).relu()).split(1, dim=1):
            step, _, state = self.attention.bahdanau_step(self.stack, x, context, state)
            features.append(step)
        return tap("decoder.features", torch.cat(features, dim=1)), state

    @torch.inference_mode()
    def write(self, source: Padded, *, most: int) -> tuple[Padded, Bool[Tensor, " B"]]:
        """Frame after frame until the ending is likelier than not, at most so many; and which rows ended so."""
        context, state = self.start(self.encoder(source))
        frame = self.mean.new_zeros(len(source), 1, self.width)
        frames = list[Tensor]()
        lengths = torch.zeros(len(source), dtype=torch.long)
        ended = torch.zeros(len(source), dtype=torch.bool)
        while len(frames) < most and not ended.all():
            features, state = self.features(frame, context, state)
            frame = self.frame(features)
            frames.append(frame)
            lengths += ~ended
            ended |= self.ending(features)[:, 0, 0] > 0
        return Padded(torch.cat(frames, dim=1) * self.deviation + self.mean, lengths), ended
