"""ELMo (S19): a forward and a backward language model, and their layers as features of other models."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqlab.equations.attention import mean_pool
from seqlab.equations.pretraining import mix_layers
from seqlab.layers.inputs import Embedding, Inputs, ids_of
from seqlab.layers.linear import Head
from seqlab.layers.stack import CausalStack
from seqlab.layers.tap import tap
from seqlab.models.interface import Reading
from seqlab.padded import Batch, Padded
from seqlab.randomness import Dropout
from seqlab.recipe import StackConfig
from seqlab.text.vocabulary import EOS, SOS
from seqlab.types import State, Vector, Vectors


class BidirectionalReaders(nn.Module):
    """A forward stack and an independent backward stack over the same embedding."""

    def __init__(
        self, embedding: Embedding, stack: StackConfig, *, entering: float, dropout: float
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.ahead = CausalStack(embedding.size, stack, dropout=dropout, name="bilm.forward")
        self.back = CausalStack(embedding.size, stack, dropout=dropout, name="bilm.backward")
        self.dropout = Dropout(entering, name="bilm.input")
        self.num_layers, self.size = stack.layers + 1, 2 * stack.size

    def read(self, stack: CausalStack, framed: Padded) -> list[Tensor]:
        """Return the embeddings of all tokens but the last, and the outputs of each layer for them."""
        x = self.dropout(self.embedding(framed.values[:, :-1]))
        state = stack.start(len(framed))
        parts = len(stack.state_sizes) // len(stack.layers)  # of the state of one layer
        depths = [x]
        for depth, layer in enumerate(stack.layers):
            x, _ = layer(x, state[depth * parts : (depth + 1) * parts])
            depths.append(x)
        return depths

    def layers(self, source: Padded) -> Float[Tensor, "L B T D"]:
        """Return the states of each layer after each word, those of both directions concatenated."""
        both = add_ends(source)
        ahead = self.read(self.ahead, both)
        back = self.read(self.back, both.reversed())
        words = Padded(source.values, source.lengths)
        depths = [
            torch.cat([one[:, 1:], words.with_values(other[:, 1:]).reversed().values], dim=-1)
            for one, other in zip(ahead, back, strict=True)
        ]
        return torch.stack(depths)


class BidirectionalLanguageModel(nn.Module):
    """Predict each token from all before it, and from all after it; both directions share embedding and head."""

    def __init__(self, readers: BidirectionalReaders, head: Head) -> None:
        super().__init__()
        self.readers, self.head = readers, head

    def read_batch(self, batch: Batch, carried: State = ()) -> Reading:
        """Return the features of both directions, concatenated in time."""
        both = add_ends(batch.require("source"))
        ways = [(self.readers.ahead, both), (self.readers.back, both.reversed())]
        features = torch.cat([self.readers.read(stack, way)[-1] for stack, way in ways], dim=1)
        gold = torch.cat([way.values[:, 1:] for _, way in ways], dim=1)
        observed = Padded(both.values[:, 1:], both.lengths - 1).real.repeat(1, 2)
        return Reading(
            features, Padded(gold, torch.full_like(both.lengths, gold.shape[1]), observed)
        )

    def vectors(self, source: Padded) -> Vector:
        """Return one vector for each row: the mean of the last layers over its tokens."""
        return mean_pool(self.readers.layers(source)[-1], source.real)


class ElmoInputs(nn.Module):
    """Other inputs, concatenated with the mixed layers (E66) of a frozen language model."""

    def __init__(self, inputs: Inputs, readers: BidirectionalReaders) -> None:
        super().__init__()
        self.inputs, self.readers = inputs, readers.requires_grad_(False)
        self.scores = nn.Parameter(torch.zeros(readers.num_layers))
        self.gain = nn.Parameter(torch.ones(()))
        self.size = inputs.size + readers.size

    def forward(self, source: Padded) -> Vectors:
        ids = ids_of(source)
        if ids is None:
            raise ValueError(
                "ELMo inputs need a source of tokens, and this one consists of vectors"
            )
        layers = self.readers.layers(source.with_values(ids))
        return torch.cat(
            [self.inputs(source), tap("encoder.elmo", mix_layers(layers, self.scores, self.gain))],
            dim=-1,
        )


def add_ends(source: Padded) -> Padded:
    """Return each row between SOS and EOS."""
    rows = len(source)
    ends = (source.lengths + 1)[:, None]
    values = torch.nn.functional.pad(source.values, (1, 1))
    values[:, 0] = SOS
    return Padded(values.scatter(1, ends, EOS) if rows else values, source.lengths + 2)
