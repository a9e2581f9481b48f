"""Windows over a series: what was, what was to come, and what was known of both."""

from collections.abc import Iterator
from typing import final

import numpy as np
import torch
from jaxtyping import Float, Int

from seqlab.padded import Batch, Padded, tensor_of


@final
class Windows:
    """Every window of a table whose `horizon` lies in rows `begin` to `end`; it looks back into what comes before.

    It holds the `history` rows before its horizon, of which the last `look_back` are what a model must have seen whole.
    Where a window reaches back beyond the first row, what it would hold there is missing.

    The first columns of the table are the variables, missing where they are not a number; the others are known for all
    rows. Window r is of variable r % C, and its horizon begins at row begin + r // C.
    """

    def __init__(
        self,
        table: Float[np.ndarray, "T F"],
        num_variables: int,
        *,
        look_back: int,
        horizon: int,
        begin: int,
        end: int,
        history: int = 0,
    ) -> None:
        self.table, self.num_variables = table, num_variables
        self.look_back, self.horizon, self.begin, self.end = look_back, horizon, begin, end
        self.history = max(look_back, history)
        self.num_origins = max(0, end - horizon - begin + 1)

    def __len__(self) -> int:
        return self.num_origins * self.num_variables

    @property
    def lengths(self) -> Int[np.ndarray, "N 1"]:
        """How much of a batch's budget each window takes."""
        return np.full((len(self), 1), max(self.look_back, self.horizon), dtype=np.int64)

    def batch(self, rows: Int[np.ndarray, " B"]) -> Batch:
        """The windows at these places, side by side."""
        steps = self.origins(rows)[:, None] + np.arange(-self.history, self.horizon)
        values = np.array(
            self.table[np.maximum(steps, 0), (rows % self.num_variables)[:, None]], dtype=np.float32
        )
        values[steps < 0] = np.nan
        covariates = None
        if self.table.shape[1] > self.num_variables:
            covariates = _padded(
                np.asarray(
                    self.table[:, self.num_variables :][np.maximum(steps, 0)], dtype=np.float32
                )
            )
        past, future = values[:, : self.history], values[:, self.history :]
        return Batch(tensor_of(rows.copy()), _padded(past), _padded(future), covariates)

    def origins(self, rows: Int[np.ndarray, " B"]) -> Int[np.ndarray, " B"]:
        """The row of the table at which each window's horizon begins."""
        return self.begin + rows // self.num_variables

    def in_order(self, *, budget: int, most: int | None = None) -> Iterator[Int[np.ndarray, " B"]]:
        """All windows in batches, or of many `most` moments that lie evenly among them, each for all variables."""
        origins = np.arange(self.num_origins)
        if most is not None and most < len(origins):
            origins = origins[np.linspace(0, len(origins) - 1, most).astype(np.int64)]
        rows = (origins[:, None] * self.num_variables + np.arange(self.num_variables)).ravel()
        size = max(1, budget // (self.history + self.horizon))
        return (rows[start : start + size] for start in range(0, len(rows), size))

    def whole(self, *, most: int) -> Batch:
        """Each variable as one long row that ends where this part ends, and has `most` steps at the most."""
        part = np.asarray(self.table[max(0, self.end - most) : self.end], dtype=np.float32)
        values, others = part[:, : self.num_variables].T, part[:, self.num_variables :]
        covariates = (
            _padded(np.repeat(others[None], self.num_variables, 0)) if others.shape[1] else None
        )
        return Batch(torch.arange(self.num_variables), _padded(values), None, covariates)


def _padded(values: Float[np.ndarray, "B T *F"]) -> Padded:
    """Zeros where a value is missing, and the mask that says so."""
    missing = np.isnan(values)
    filled = tensor_of(np.where(missing, np.float32(0), values))
    observed = tensor_of(~missing) if values.ndim == 2 else None
    return Padded(filled, torch.full((len(values),), values.shape[1]), observed)
