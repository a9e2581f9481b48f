"""Bags of n-grams: the weight of each n-gram of a text, and tables of many texts, in which nearly all is zero."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from seqlab.models.interface import fixed
from seqlab.padded import Padded

TINY = 1e-12


class NgramWeights(nn.Module):
    """(1 + log tf) idf of each n-gram of a text; those of words and those of characters each scaled to length 1."""

    def __init__(self, num_words: int, num_features: int) -> None:
        super().__init__()
        self.num_words = num_words
        self.idf = fixed(torch.ones(num_features))

    def forward(self, source: Padded) -> tuple[Int[Tensor, "B T"], Float[Tensor, "B T"]]:
        """The ids and the values of the features that are there; a pad has the value 0."""
        ids, counts = source.values.unbind(-1)
        ids = ids * source.real  # what lies in a pad is no feature
        values = (1 + counts.clamp(min=1).log()) * self.idf[ids] * source.real
        words = ids < self.num_words
        for part in (words, ~words):
            length = (values * part).square().sum(1, keepdim=True).sqrt()
            values = torch.where(part, values / length.clamp(min=TINY), values)
        return ids, values

    @torch.no_grad()
    def measure(self, parts: Sequence[Padded]) -> "SparseTable":
        """idf = log((1 + N) / (1 + df)) + 1, where df of these N texts have the n-gram; returns the table of them."""
        df, num_texts = torch.zeros(len(self.idf)), sum(len(part) for part in parts)
        for part in parts:
            df += torch.bincount(part.values[..., 0][part.real], minlength=len(df))
        self.idf.copy_(((1 + num_texts) / (1 + df.double())).log() + 1)
        rows = [tuple(each[part.real] for each in self(part)) for part in parts]
        ids, values = (torch.cat(each) for each in zip(*rows, strict=True))
        lengths = torch.cat([part.lengths for part in parts])
        return SparseTable(ids, lengths.cumsum(0) - lengths, values)


@dataclass(frozen=True)
class SparseTable:
    """A table in which nearly all is zero: row r holds `values` at the columns `ids`, from offset r to the next.

    X W is a weighted sum of a few rows of W for each row; so is Xᵀ G, with the table turned round.
    """

    ids: Int[Tensor, " M"]
    offsets: Int[Tensor, " N"]
    values: Float[Tensor, " M"] | None = None  # all 1 where there are none

    def times(self, weight: Float[Tensor, "V K"]) -> Float[Tensor, "N K"]:
        return F.embedding_bag(
            self.ids, weight, self.offsets, mode="sum", per_sample_weights=self.values
        )

    def transposed(self, num_columns: int) -> "SparseTable":
        """The table with rows and columns exchanged."""
        ends = torch.cat([self.offsets[1:], self.offsets.new_tensor([len(self.ids)])])
        rows = torch.repeat_interleave(torch.arange(len(self.offsets)), ends - self.offsets)
        order = torch.argsort(self.ids, stable=True)
        offsets = torch.searchsorted(self.ids[order], torch.arange(num_columns))
        return SparseTable(
            rows[order], offsets, None if self.values is None else self.values[order]
        )
