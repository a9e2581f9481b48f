"""The one currency between data and models: rows of unequal length in one tensor, and what is real in it.

A *pad* is outside the sequence: no state change, no attention, no loss. A *missing value* is inside it: time
passes and nothing is observed. Every mask in the package is derived from here.
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
    """Rows of unequal length, padded on the right; `observed` marks which real positions carry a value.

    Of vectors it may mark single features: a position that has none of them carries no value.
    """

    values: Shaped[Tensor, "B T *F"]
    lengths: RowIds
    observed: Bool[Tensor, "B T *D"] | None = None

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[int] | Tensor]) -> "Padded":
        """Rows of ids, or of feature vectors as tensors, side by side."""
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
        """Rows that are all as long as the tensor."""
        return cls(values, torch.full(values.shape[:1], values.shape[1]))

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def real(self) -> Mask:
        """True where a position is inside its sequence."""
        return torch.arange(self.values.shape[1], device=self.values.device) < self.lengths[:, None]

    @property
    def scored(self) -> Mask:
        """True where a position is inside its sequence and carries a value: where a loss counts."""
        if self.observed is None:
            return self.real
        return self.real & (self.observed if self.observed.dim() == 2 else self.observed.any(-1))

    def rows(self) -> list[Tensor]:
        """The sequences again, without their pads."""
        return [
            row[:length] for row, length in zip(self.values, self.lengths.tolist(), strict=True)
        ]

    def rows_at(self, places: RowIds) -> "Padded":
        """Some of the rows, in this order."""
        return Padded(
            self.values[places],
            self.lengths[places],
            None if self.observed is None else self.observed[places],
        )

    def with_values(self, values: Shaped[Tensor, "B T *F"]) -> "Padded":
        """Other values at the same positions."""
        return replace(self, values=values)

    def masked(self) -> "Padded":
        """The same, with zeros at the pads, so that whatever lies there cannot leak."""
        shape = self.real.shape + (1,) * (self.values.dim() - 2)
        return self.with_values(self.values.masked_fill(~self.real.view(shape), 0))

    def last(self) -> Shaped[Tensor, "B *F"]:
        """The value at each row's last real position; zeros for an empty row."""
        if self.values.shape[1] == 0:
            return self.values.new_zeros(len(self), *self.values.shape[2:])
        rows = torch.arange(len(self), device=self.values.device)
        values = self.values[rows, (self.lengths - 1).clamp(min=0)]
        empty = (self.lengths == 0).view(-1, *[1] * (values.dim() - 1))
        return values.masked_fill(empty, 0)

    def reversed(self) -> "Padded":
        """Each row read backwards, its pads staying on the right. Its own inverse."""
        position = torch.arange(self.values.shape[1], device=self.values.device)
        source = torch.where(self.real, self.lengths[:, None] - 1 - position, position)
        rows = torch.arange(len(self), device=self.values.device)[:, None]
        observed = None if self.observed is None else self.observed[rows, source]
        return Padded(self.values[rows, source], self.lengths, observed)


@dataclass(frozen=True)
class Batch:
    """What a model is given at once: named parts, each a `Padded` with the same rows.

    `target` of a decoder runs from SOS to EOS: all but its last token are read, all but its first are predicted.
    One label for a whole sequence is a target of length one. `covariates` of a forecast are known for the source and
    the target, one after the other. `rows` are the examples' places in the data set:
    they key the randomness of dropout and name the culprits when something goes wrong.
    """

    rows: RowIds
    source: Padded | None = None
    target: Padded | None = None
    covariates: Padded | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def rows_at(self, places: Sequence[int]) -> "Batch":
        """Some of its rows, in this order."""
        at = torch.as_tensor(places, dtype=torch.long)
        return replace(
            self,
            rows=self.rows[at],
            **{name: part.rows_at(at) for name, part in self.parts().items()},
        )

    def require(self, name: str) -> Padded:
        """A part that must be there."""
        part = self.parts().get(name)
        if part is None:
            raise ValueError(f"this batch has no {name}")
        return part

    def parts(self) -> dict[str, Padded]:
        """The parts that are there, by name."""
        named = {
            field.name: getattr(self, field.name) for field in fields(self) if field.name != "rows"
        }
        return {name: part for name, part in named.items() if part is not None}


@dataclass(frozen=True)
class Tokens:
    """Positions that enter a network as ids, each with the ids of its letters where `num_letters` is not 0."""

    num_tokens: int
    num_letters: int = 0


@dataclass(frozen=True)
class Measured:
    """Positions that enter a network as numbers, with the mean and the deviation of each feature."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]


def tensor_of(array: np.ndarray) -> Tensor:
    """An array as a tensor where tensors live; on the CPU they share their memory."""
    return torch.from_numpy(array).to(torch.get_default_device())
