"""What an encoder is given, as vectors: tokens, words with their spelling, features that were measured elsewhere."""

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seqlab.layers.embedding import Embedding
from seqlab.layers.stack import recurrent_stack
from seqlab.layers.tap import tap
from seqlab.padded import Padded
from seqlab.recipe import Stack


@runtime_checkable
class Inputs(Protocol):
    size: int

    def __call__(self, source: Padded) -> Float[Tensor, "B T D"]: ...


class TokenInputs(nn.Module):
    """Each token by its embedding."""

    def __init__(self, embedding: Embedding) -> None:
        super().__init__()
        self.embedding, self.size = embedding, embedding.size

    def forward(self, source: Padded) -> Float[Tensor, "B T D"]:
        return self.embedding(source.values)


class SpelledInputs(nn.Module):
    """Each word by its embedding beside what a small recurrent stack makes of its characters.

    A position holds the word's id, then its characters: a word never seen still has a shape. Each spelling is read
    once, however often it occurs in a batch.
    """

    def __init__(self, embedding: Embedding, num_characters: int, stack: Stack) -> None:
        super().__init__()
        self.embedding = embedding
        self.characters = Embedding(num_characters, stack.size, name="encoder.characters")
        self.stack = recurrent_stack(stack.size, stack, dropout=0.0, name="encoder.spelling")
        self.size = embedding.size + self.stack.summary_size

    def forward(self, source: Padded) -> Float[Tensor, "B T D"]:
        words, spelled = source.values[..., 0], source.values[..., 1:]
        different, where = torch.unique(spelled.reshape(-1, spelled.shape[-1]), dim=0, return_inverse=True)
        letters = Padded(different, (different != 0).sum(1))
        _, shapes = self.stack.encode(letters.with_values(self.characters(letters.values)))
        shape = tap("encoder.spelling", shapes[where].view(*words.shape, shapes.shape[-1]))
        return torch.cat([self.embedding(words), shape], dim=-1)


class VectorInputs(nn.Module):
    """Measured features, each brought to mean 0 and deviation 1 over the training part, then one linear layer."""

    def __init__(self, mean: list[float], deviation: list[float], size: int) -> None:
        super().__init__()
        self.size = size
        self.mean: Tensor
        self.deviation: Tensor
        self.register_buffer("mean", torch.tensor(mean), persistent=False)
        self.register_buffer("deviation", torch.tensor(deviation), persistent=False)
        self.project = nn.Linear(len(mean), size)

    def forward(self, source: Padded) -> Float[Tensor, "B T D"]:
        values = (source.values.to(self.project.weight.dtype) - self.mean) / self.deviation
        return tap("encoder.embedding", self.project(source.with_values(values).masked().values))


def ids_of(source: Padded) -> Int[Tensor, "B T"] | None:
    """The tokens of a source, where it is made of tokens."""
    if source.values.is_floating_point():
        return None
    return source.values if source.values.dim() == 2 else source.values[..., 0]
