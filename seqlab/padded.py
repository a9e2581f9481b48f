"""Padded batches: rows of unequal length in one tensor, with their lengths and missing values.

A *pad* is outside the sequence: no state change, no attention, no loss. A *missing value* is inside it: time
passes, but nothing is observed. All masks of the package are derived from this class.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from jaxtyping import Bool, Shaped
from torch import Tensor

from seqlab.types import Mask, RowIds


@dataclass(frozen=True)
class Padded:
    """Rows of unequal length, padded on the right; `observed` marks the real positions that have a value.

    For vectors it may mark single features; a position without any observed feature has no value.
    """

    values: Shaped[Tensor, "B T *F"]
    lengths: RowIds
    observed: Bool[Tensor, "B T *D"] | None = None

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[int] | Tensor]) -> "Padded":
        """Pad rows of ids, or of feature vectors as tensors."""
        tensors = [
            torch.as_tensor(row, dtype=None if isinstance(row, Tensor) else torch.long)
            for row in rows
        ]
        lengths = torch.tensor([len(row) for row in tensors], dtype=torch.long)
        if not tensors:
            return cls(torch.zeros(0, 0, dtype=torch.long), lengths)
        return cls(torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True), lengths)

    @classmethod
    def full(cls, values: Shaped[Tensor, "B T *F"]) -> "Padded":
        """Wrap rows without pads."""
        return cls(values, torch.full(values.shape[:1], values.shape[1]))

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def real(self) -> Mask:
        """True where a position is inside its sequence."""
        return torch.arange(self.values.shape[1], device=self.values.device) < self.lengths[:, None]

    @property
    def scored(self) -> Mask:
        """True where a position is inside its sequence and has a value: there the loss is computed."""
        if self.observed is None:
            return self.real
        return self.real & (self.observed if self.observed.dim() == 2 else self.observed.any(-1))

    def rows(self) -> list[Tensor]:
        """Return the sequences without their pads."""
        return [
            row[:length] for row, length in zip(self.values, self.lengths.tolist(), strict=True)
        ]

    def rows_at(self, indices: RowIds) -> "Padded":
        """Return these rows, in this order."""
        return Padded(
            self.values[indices],
            self.lengths[indices],
            None if self.observed is None else self.observed[indices],
        )

    def with_values(self, values: Shaped[Tensor, "B T *F"]) -> "Padded":
        """Return other values with the same lengths and missing values."""
        return replace(self, values=values)

    def masked(self) -> "Padded":
        """Return a copy with zeros at the pads, so that their values have no effect."""
        shape = self.real.shape + (1,) * (self.values.dim() - 2)
        return self.with_values(self.values.masked_fill(~self.real.view(shape), 0))

    def last(self) -> Shaped[Tensor, "B *F"]:
        """Return the value at the last real position of each row, or zeros for an empty row."""
        if self.values.shape[1] == 0:
            return self.values.new_zeros(len(self), *self.values.shape[2:])
        rows = torch.arange(len(self), device=self.values.device)
        values = self.values[rows, (self.lengths - 1).clamp(min=0)]
        empty = (self.lengths == 0).view(-1, *[1] * (values.dim() - 1))
        return values.masked_fill(empty, 0)

    def reversed(self) -> "Padded":
        """Reverse each row and keep its pads on the right; applied twice, this is the identity."""
        position = torch.arange(self.values.shape[1], device=self.values.device)
        source = torch.where(self.real, self.lengths[:, None] - 1 - position, position)
        rows = torch.arange(len(self), device=self.values.device)[:, None]
        observed = None if self.observed is None else self.observed[rows, source]
        return Padded(self.values[rows, source], self.lengths, observed)


@dataclass(frozen=True)
class Batch:
    """A batch for a model: named parts, each a `Padded` with the same rows.

    The `target` of a decoder includes SOS and EOS: all but its last token are read, all but its first are predicted.
    One label for a whole sequence is a target of length one. The `covariates` of a forecast are known for the source
    and the target, concatenated in time. `rows` are the numbers of the examples in the data set: they key the
    randomness of dropout, and error messages name them.
    """

    rows: RowIds
    source: Padded | None = None
    target: Padded | None = None
    covariates: Padded | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def rows_at(self, numbers: Sequence[int]) -> "Batch":
        """Return these rows, in this order."""
        indices = torch.as_tensor(numbers, dtype=torch.long)
        parts = {name: part.rows_at(indices) for name, part in self.parts().items()}
        return replace(self, rows=self.rows[indices], **parts)

    def require(self, name: str) -> Padded:
        """Return a part, or raise an error if the batch does not have it."""
        part = self.parts().get(name)
        if part is None:
            raise ValueError(f"this batch has no {name}")
        return part

    def parts(self) -> dict[str, Padded]:
        """Return the parts that are not None, by name."""
        values = {
            field.name: getattr(self, field.name) for field in fields(self) if field.name != "rows"
        }
        return {name: part for name, part in values.items() if part is not None}


@dataclass(frozen=True)
class Tokens:
    """An input of token ids; if `num_letters` is not 0, each position also has the ids of its letters."""

    num_tokens: int
    num_letters: int = 0


@dataclass(frozen=True)
class Measured:
    """An input of real vectors, with the mean and the standard deviation of each feature."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]


def tensor_of(array: np.ndarray) -> Tensor:
    """Return an array as a tensor on the default device; on the CPU they share their memory."""
    return torch.from_numpy(array).to(torch.get_default_device())
