"""Windows over a series: the past, the horizon to be forecast, and the covariates of both."""

from collections.abc import Iterator
from typing import final

import numpy as np
import torch
from jaxtyping import Float, Int

from seqlab.padded import Batch, Padded, tensor_of


@final
class Windows:
    """All windows of a table whose `horizon` is within rows `begin` to `end`; their past may be before `begin`.

    A window has `history` rows before its horizon, of which a model needs at least the last `look_back`. Values before
    the first row of the table are missing.

    The first columns of the table are the variables, with NaN for missing values; the others are covariates, known for
    all rows. Window r is of variable r % C, and its horizon begins at row begin + r // C.
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
        """The share of a batch's budget that each window takes."""
        return np.full((len(self), 1), max(self.look_back, self.horizon), dtype=np.int64)

    def batch(self, rows: Int[np.ndarray, " B"]) -> Batch:
        """Return the windows of these indices as a batch."""
        steps = self.origins(rows)[:, None] + np.arange(-self.history, self.horizon)
        table_rows = np.maximum(steps, 0)
        variables = (rows % self.num_variables)[:, None]
        values = np.array(self.table[table_rows, variables], dtype=np.float32)
        values[steps < 0] = np.nan
        covariates = None
        if self.table.shape[1] > self.num_variables:
            known = self.table[:, self.num_variables :][table_rows]
            covariates = _padded(np.asarray(known, dtype=np.float32))
        past, future = values[:, : self.history], values[:, self.history :]
        return Batch(tensor_of(rows.copy()), _padded(past), _padded(future), covariates)

    def origins(self, rows: Int[np.ndarray, " B"]) -> Int[np.ndarray, " B"]:
        """Return the row of the table at which each window's horizon begins."""
        return self.begin + rows // self.num_variables

    def in_order(self, *, budget: int, most: int | None = None) -> Iterator[Int[np.ndarray, " B"]]:
        """Yield the indices of all windows in batches, or of `most` origins at equal distances, for all variables."""
        origins = np.arange(self.num_origins)
        if most is not None and most < len(origins):
            origins = origins[np.linspace(0, len(origins) - 1, most).astype(np.int64)]
        rows = (origins[:, None] * self.num_variables + np.arange(self.num_variables)).ravel()
        size = max(1, budget // (self.history + self.horizon))
        return (rows[start : start + size] for start in range(0, len(rows), size))

    def whole(self, *, most: int) -> Batch:
        """Return each variable as one row that ends at row `end` and has at most `most` steps."""
        part = np.asarray(self.table[max(0, self.end - most) : self.end], dtype=np.float32)
        values = part[:, : self.num_variables].T
        known = part[:, self.num_variables :]
        covariates = None
        if known.shape[1]:
            covariates = _padded(np.repeat(known[None], self.num_variables, 0))
        return Batch(torch.arange(self.num_variables), _padded(values), None, covariates)


def _padded(values: Float[np.ndarray, "B T *F"]) -> Padded:
    """Replace missing values by zeros, and mask them."""
    missing = np.isnan(values)
    filled = tensor_of(np.where(missing, np.float32(0), values))
    observed = tensor_of(~missing) if values.ndim == 2 else None
    return Padded(filled, torch.full((len(values),), values.shape[1]), observed)
