"""What a network is given, as vectors: tokens, words with their spelling, measured features; and where each stands."""

import math
from typing import Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqlab.equations.attention import learned_positions, sinusoidal_positions
from seqlab.layers.stack import recurrent_stack
from seqlab.layers.tap import tap
from seqlab.layers.transformer import LayerNorm
from seqlab.padded import Padded
from seqlab.randomness import Dropout, training
from seqlab.recipe import StackConfig, TransformerConfig
from seqlab.types import FlatNumbers, PositionIds, Vectors

Kind = Literal["sinusoidal", "learned", "rotary", "none"]


class Embedding(nn.Module):
    """One learned vector for each id. In training, a share of the tokens goes unseen (Iyyer et al. 2015).

    A vector begins with length 1, unless its numbers are given another deviation.
    """

    def __init__(
        self,
        num_tokens: int,
        size: int,
        *,
        name: str,
        unseen: float = 0.0,
        deviation: float | None = None,
    ) -> None:
        super().__init__()
        self.name = name
        self.size = size
        self.unseen = Dropout(unseen, name=f"{name}.tokens")
        drawn, std = (
            nn.Linear(size, num_tokens, bias=False).weight,
            size**-0.5 if deviation is None else deviation,
        )
        self.weight = nn.Parameter(nn.init.normal_(drawn, std=std))

    def forward(self, ids: PositionIds) -> Vectors:
        vectors = tap(f"{self.name}.embedding", nn.functional.embedding(ids, self.weight))
        if not (self.unseen.rate and training()):
            return vectors
        return vectors * self.unseen(vectors.new_ones(ids.shape))[..., None]


@runtime_checkable
class Inputs(Protocol):
    size: int

    def __call__(self, source: Padded) -> Vectors: ...


class TokenInputs(nn.Module):
    """Each token by its embedding."""

    def __init__(self, embedding: Embedding) -> None:
        super().__init__()
        self.embedding, self.size = embedding, embedding.size

    def forward(self, source: Padded) -> Vectors:
        return self.embedding(source.values)


class SpelledInputs(nn.Module):
    """Each word by its embedding beside what a small recurrent stack makes of its characters.

    A position holds the word's id, then its characters: a word never seen still has a shape. Each spelling is read
    once, however often it occurs in a batch.
    """

    def __init__(self, embedding: Embedding, num_characters: int, stack: StackConfig) -> None:
        super().__init__()
        self.embedding = embedding
        self.characters = Embedding(num_characters, stack.size, name="encoder.characters")
        self.stack = recurrent_stack(stack.size, stack, dropout=0.0, name="encoder.spelling")
        self.size = embedding.size + self.stack.summary_size

    def forward(self, source: Padded) -> Vectors:
        words, spelled = source.values[..., 0], source.values[..., 1:]
        different, where = torch.unique(
            spelled.reshape(-1, spelled.shape[-1]), dim=0, return_inverse=True
        )
        letters = Padded(different, (different != 0).sum(1))
        _, shapes = self.stack.encode(letters.with_values(self.characters(letters.values)))
        shape = tap("encoder.spelling", shapes[where].view(*words.shape, shapes.shape[-1]))
        return torch.cat([self.embedding(words), shape], dim=-1)


class VectorInputs(nn.Module):
    """Measured features, each brought to mean 0 and deviation 1 over the training part, then one linear layer."""

    def __init__(self, mean: list[float], deviation: list[float], size: int) -> None:
        super().__init__()
        self.size = size
        self.mean = nn.Buffer(torch.tensor(mean), persistent=False)
        self.deviation = nn.Buffer(torch.tensor(deviation), persistent=False)
        self.project = nn.Linear(len(mean), size)

    def forward(self, source: Padded) -> Vectors:
        values = (source.values.to(self.project.weight.dtype) - self.mean) / self.deviation
        return tap("encoder.embedding", self.project(source.with_values(values).masked().values))


def ids_of(source: Padded) -> PositionIds | None:
    """The tokens of a source, where it is made of tokens."""
    if source.values.is_floating_point():
        return None
    return source.values if source.values.dim() == 2 else source.values[..., 0]


class Positions(nn.Module):
    """Sinusoids, a learned table of `most` positions, or nothing here (C8; rotary ones act inside attention)."""

    def __init__(self, kind: Kind, size: int, *, most: int, name: str) -> None:
        super().__init__()
        self.kind, self.size, self.most, self.name = kind, size, most, name
        self.table = (
            nn.Parameter(torch.randn(most, size) * size**-0.5) if kind == "learned" else None
        )
        self.waves: Tensor = nn.Buffer(torch.zeros(0, size), persistent=False)

    def forward(self, x: Vectors, *, first: int = 0) -> Vectors:
        if self.kind in ("none", "rotary"):
            return x
        table = self._vectors(first + x.shape[1])
        return tap(f"{self.name}.positions", learned_positions(x, table.to(x.dtype), first=first))

    def vector(self, place: int) -> FlatNumbers:
        """What is added at this position; without numbers where nothing is."""
        if self.kind in ("none", "rotary"):
            return self.waves[:0].flatten()
        return self._vectors(place + 1)[place]

    def _vectors(self, needed: int) -> Float[Tensor, "P D"]:
        if self.table is not None:
            if needed > self.most:
                raise ValueError(f"{needed} positions where {self.most} were learned")
            return self.table
        if len(self.waves) < needed:
            self.waves = sinusoidal_positions(max(64, 2 * needed), self.size).to(self.waves)
        return self.waves


class Entrance(nn.Module):
    """Vectors of tokens at the door: scaled to the size of the positions, plus the positions, plus the segments."""

    def __init__(
        self, input_size: int, settings: TransformerConfig, *, most: int, dropout: float, name: str
    ) -> None:
        super().__init__()
        self.bridge = nn.Linear(input_size, settings.size) if input_size != settings.size else None
        self.scale = math.sqrt(settings.size) if settings.scale else 1.0
        self.positions = Positions(settings.positions, settings.size, most=most, name=name)
        self.segments: nn.Parameter | None = None
        if settings.segments:
            self.segments = nn.Parameter(
                torch.randn(settings.segments, settings.size) * settings.size**-0.5
            )
        self.norm = (
            LayerNorm(settings.size, epsilon=settings.epsilon) if settings.entrance_norm else None
        )
        self.dropout = Dropout(dropout, name=f"{name}.input")

    def forward(
        self, x: Float[Tensor, "B T E"], *, first: int = 0, segments: PositionIds | None = None
    ) -> Vectors:
        """`segments` are the number of each token's segment, for a model that knows segments."""
        x = x if self.bridge is None else self.bridge(x)
        x = self.positions(x * self.scale, first=first)
        if self.segments is not None and segments is not None:
            x = x + self.segments[segments.clamp(max=len(self.segments) - 1)]
        return self.dropout(x if self.norm is None else self.norm(x))
