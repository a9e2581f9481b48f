"""Parallel streams of a text for truncated backpropagation through time: each batch continues the one before.

row 0   t0  t1  t2  t3 | t3  t4  t5  t6 | ...      a chunk of T steps holds T + 1 tokens: it reads the first T
row 1   t9 t10 t11 t12 |t12 t13 t14 t15 | ...      and predicts the last T, and shares one with the next chunk
"""

from collections.abc import Iterator
from typing import final

import numpy as np
import torch
from jaxtyping import Integer

from seqlab.errors import DataError
from seqlab.padded import Batch, Padded, tensor_of

Flat = Integer[np.ndarray, " N"]  # the tokens of a text


@final
class Streams:
    """One long text cut into `rows` streams, read `steps` tokens at a time; only the tokens of a batch are copied.

    Each epoch starts at another offset, so that the borders between chunks and between rows move, and the tokens left
    over at the end (less than one batch) vary. A text that is too short gets fewer rows, then fewer steps.

    A recurrent model `carries` its state from the batch before (E35); for a Transformer each chunk is a context of its
    own.
    """

    def __init__(
        self, flat: Flat, *, rows: int, steps: int, seed: int, carries: bool = False
    ) -> None:
        _need_two_tokens(flat)
        self.flat, self.seed, self.carries = flat, seed, carries
        self.steps = min(steps, len(flat) - 1)
        self.rows = min(rows, (len(flat) - 1) // self.steps)

    def num_batches(self, epoch: int) -> int:
        return self._length(epoch) // self.steps

    def batch(self, epoch: int, index: int) -> Batch:
        """Return chunk `index` of every row; row b of each batch of an epoch continues row b of the batch before."""
        if not 0 <= index < self.num_batches(epoch):
            raise IndexError(f"batch {index} of an epoch with {self.num_batches(epoch)}")
        starts = (
            self._offset(epoch) + np.arange(self.rows) * self._length(epoch) + index * self.steps
        )
        return _batch(self.flat[starts[:, None] + np.arange(self.steps + 1)])

    def _length(self, epoch: int) -> int:
        """Return the number of predictions in one row."""
        return (len(self.flat) - 1 - self._offset(epoch)) // self.rows

    def _offset(self, epoch: int) -> int:
        if epoch == 0:
            return 0
        spare = len(self.flat) - 1 - self.rows * self.steps
        return int(
            np.random.default_rng((self.seed, epoch)).integers(0, min(self.steps - 1, spare) + 1)
        )


def in_chunks(flat: Flat, *, steps: int, rows: int) -> Iterator[Batch]:
    """Yield batches that predict every token but the first once, for evaluation: `rows` chunks, overlapping by a token.

    With one row the chunks are consecutive, so that a state can be carried from one to the next.
    """
    _need_two_tokens(flat)
    num_chunks = (len(flat) - 1) // steps
    for first in range(0, num_chunks, rows):
        starts = np.arange(first, min(first + rows, num_chunks)) * steps
        yield _batch(flat[starts[:, None] + np.arange(steps + 1)])
    if num_chunks * steps < len(flat) - 1:
        yield _batch(flat[None, num_chunks * steps :])


def _batch(tokens: Integer[np.ndarray, "B T"]) -> Batch:
    lengths = torch.full((len(tokens),), tokens.shape[1], dtype=torch.long)
    return Batch(
        rows=torch.arange(len(tokens)),
        target=Padded(tensor_of(np.asarray(tokens, dtype=np.int64)), lengths),
    )


def _need_two_tokens(flat: Flat) -> None:
    if len(flat) < 2:
        raise DataError(
            f"a text of {len(flat)} token{'s' if len(flat) != 1 else ''} has nothing to predict",
            hint="give at least two tokens of text, and better a few thousand.",
        )
