"""Sequence to real vectors, unaligned (S30): an encoder, and a decoder of frames that predicts its end."""

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

LEVEL = 0.8  # of the intervals of a point output, which are not used here


class Speaker(EncoderModel):
    """At each step, a recurrent stack reads the last frame and the attention context (Bahdanau's wiring, S14).

    From its output, the next frame and the probability that it is the last are predicted. Frames are standardised by
    mean and deviation of the training part.
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
        penalty = self.width * endings[target.real].sum()  # the weight of a whole frame
        predicted = self.frame(features).flatten(1, 2)[..., None]
        return Reading(
            predicted, numbers, penalty=sum_penalties(memory.penalty, penalty), output=self.output
        )

    def start(self, memory: Memory) -> tuple[State, State]:
        """Return what is computed once for each source, and the state before the first frame."""
        return self.attention.context(memory), self.bridge(memory.require_summary())

    def features(
        self, frames: Vectors, context: State, state: State
    ) -> tuple[Float[Tensor, "B T F"], State]:
        """Return the features after each frame, from which the next one is predicted."""
        features = []
        for x in self.dropout(self.enter(frames).relu()).split(1, dim=1):
            step, _, state = self.attention.bahdanau_step(self.stack, x, context, state)
            features.append(step)
        return tap("decoder.features", torch.cat(features, dim=1)), state

    @torch.inference_mode()
    def write(self, source: Padded, *, most: int) -> tuple[Padded, Bool[Tensor, " B"]]:
        """Generate frames until the end is likelier than not, at most `most`; also return which rows have ended."""
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
