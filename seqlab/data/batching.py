"""Which rows go into one batch: rows of like length, up to a budget of tokens. A pure function of (seed, epoch)."""

from collections.abc import Sequence
from typing import final

import numpy as np
from jaxtyping import Int

from seqlab.data.store import Places, TokenStore
from seqlab.errors import DataError
from seqlab.padded import Batch, Padded, tensor_of

Lengths = Int[np.ndarray, "N parts"]  # of each row, in each part that there is
_POOL = (
    200  # batches that are sorted together: more means fewer pads, less means more varied batches
)


def plan(lengths: Lengths, *, budget: int, seed: int, epoch: int) -> list[Places]:
    """The batches of one epoch, each as the indices of its rows; every row occurs once.

    Rows are shuffled, sorted by length within large pools, and cut so that rows x longest <= budget, where longest
    is the larger of the parts. A row longer than the budget is a batch of its own. The batches are shuffled in turn.
    """
    random = np.random.default_rng((seed, epoch))
    order = random.permutation(len(lengths))
    width = float(_widths(lengths).mean() if len(lengths) else 1)
    pool = max(1, int(_POOL * budget / width))
    batches: list[np.ndarray] = []
    for start in range(0, len(order), pool):
        batches += _by_length(order[start : start + pool], lengths, budget)
    return [batches[i] for i in random.permutation(len(batches))]


def plan_in_order(lengths: Lengths, *, budget: int) -> list[Places]:
    """The batches of an evaluation: all rows from short to long, nothing shuffled."""
    return _by_length(np.arange(len(lengths)), lengths, budget)


@final
class Rows:
    """A data set of parallel stores, of ids or of vectors, from which batches are made."""

    def __init__(
        self, *, source: TokenStore | None = None, target: TokenStore | None = None
    ) -> None:
        self.source, self.target = source, target
        self._parts = [part for part in (source, target) if part is not None]
        counts = {len(part) for part in self._parts}
        if len(counts) != 1:
            raise DataError(
                f"a source of {len(source or ())} rows beside a target of {len(target or ())}",
                hint="both stores must come from the same examples: prepare the data again.",
            )

    def __len__(self) -> int:
        return len(self._parts[0])

    @property
    def lengths(self) -> Lengths:
        """How long each row is in each part that is there."""
        return np.stack([part.lengths for part in self._parts], axis=1)

    def batch(self, indices: Places | Sequence[int]) -> Batch:
        """The rows at these places, side by side."""
        rows = np.asarray(indices, dtype=np.int64)
        return Batch(
            rows=tensor_of(rows.copy()),
            source=None if self.source is None else _padded(self.source, rows),
            target=None if self.target is None else _padded(self.target, rows),
        )


def _padded(store: TokenStore, rows: Places) -> Padded:
    values, lengths = store.gather(rows)
    return Padded(tensor_of(values), tensor_of(lengths))


def _widths(lengths: Lengths) -> Places:
    return lengths.max(axis=1, initial=1)


def _by_length(rows: Places, lengths: Lengths, budget: int) -> list[Places]:
    """Rows sorted by their longer part, cut where the next one would burst the budget.

    Among equals by how much longer the first part is than the last, so that both have few pads: up for even widths and
    down for odd ones, so that a batch across two widths meets like with like.
    """
    widths, excess = _widths(lengths[rows]), lengths[rows, 0] - lengths[rows, -1]
    order = np.lexsort((np.where(widths % 2, -excess, excess), widths))
    rows, widths = rows[order], widths[order]
    batches, start = [], 0
    while start < len(rows):
        most = max(
            1, budget // int(widths[start])
        )  # the first row is the shortest: no more than this can fit
        window = widths[start : start + most]
        sizes = np.arange(1, len(window) + 1) * window
        count = max(1, int(np.searchsorted(sizes, budget, side="right")))
        batches.append(rows[start : start + count])
        start += count
    return batches
