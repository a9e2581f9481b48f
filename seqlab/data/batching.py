"""Batches of rows of similar length, up to a budget of tokens; and the choice of the held-out examples.

Batches depend on (seed, epoch), the held-out examples on the seed and their sources.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import final

import numpy as np
from jaxtyping import Int, UInt64

from seqlab.data.store import Places, TokenStore
from seqlab.errors import DataError
from seqlab.padded import Batch, Padded, tensor_of

Lengths = Int[np.ndarray, "N parts"]  # of each row in source and target, if it has both
Keys = UInt64[np.ndarray, " N"]
Strata = Int[np.ndarray, " N"]  # the label of each example as a number, in the order of the names
_POOL = (
    200  # batches that are sorted together: more give fewer pads, fewer give more varied batches
)


def plan(lengths: Lengths, *, budget: int, seed: int, epoch: int) -> list[Places]:
    """Return the batches of one epoch, each as the indices of its rows; every row occurs once.

    Rows are shuffled, sorted by length within large pools, and cut so that rows x longest <= budget, where longest
    is over source and target. A row longer than the budget is a batch of its own. The batches are shuffled too.
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
    """Return the batches for evaluation: all rows from short to long, without shuffling."""
    return _by_length(np.arange(len(lengths)), lengths, budget)


@final
class Rows:
    """A data set of a source store and a target store, from which batches are made."""

    def __init__(
        self, *, source: TokenStore | None = None, target: TokenStore | None = None
    ) -> None:
        self.source, self.target = source, target
        self._parts = [part for part in (source, target) if part is not None]
        counts = {len(part) for part in self._parts}
        if len(counts) != 1:
            raise DataError(
                f"the source has {len(source or ())} rows and the target {len(target or ())}",
                hint="both stores must come from the same examples: prepare the data again.",
            )

    def __len__(self) -> int:
        return len(self._parts[0])

    @property
    def lengths(self) -> Lengths:
        """The length of each row in source and target."""
        return np.stack([part.lengths for part in self._parts], axis=1)

    def batch(self, indices: Places | Sequence[int]) -> Batch:
        """Return the rows of these indices as a batch."""
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
    """Sort rows by the longer of source and target, and start a new batch where the next row would exceed the budget.

    Rows of equal width are sorted by how much longer the source is than the target, so that both have few pads:
    ascending for even widths and descending for odd ones, so that rows of adjacent widths are similar as well.
    """
    widths = _widths(lengths[rows])
    excess = lengths[rows, 0] - lengths[rows, -1]
    order = np.lexsort((np.where(widths % 2, -excess, excess), widths))
    rows, widths = rows[order], widths[order]
    batches: list[Places] = []
    start = 0
    while start < len(rows):
        # The first row is the shortest, so no more rows than this can fit.
        most = max(1, budget // int(widths[start]))
        window = widths[start : start + most]
        sizes = np.arange(1, len(window) + 1) * window
        count = max(1, int(np.searchsorted(sizes, budget, side="right")))
        batches.append(rows[start : start + count])
        start += count
    return batches


def source_key(source: str | tuple[str, ...] | np.ndarray, *, seed: int) -> int:
    """Return a hash of the source, keyed by the seed, from 0 to 2**64: it decides whether an example is held out.

    A source that occurs with two targets is in the same part both times, so nothing leaks; and the order of the file
    does not matter.
    """
    if isinstance(source, np.ndarray):
        content = source.tobytes()
    else:
        text = source if isinstance(source, str) else "\t".join(source)
        content = text.encode("utf-8", "surrogatepass")
    digest = blake2b(content, digest_size=8, key=str(seed).encode()).digest()
    return int.from_bytes(digest, "big")


def held_out_keys(
    keys: Keys, strata: Strata, *, fraction: float, most: int, fold: int = 1
) -> set[int]:
    """Return the keys of the examples held out in a fold: the smallest of each stratum after those of earlier folds.

    At least one source is held out and one is left, up to `most`; of a stratum with two sources, one is left. A source
    that occurs with several labels belongs to the first of them. If all sources are equal, nothing is held out.
    """
    if not len(keys):
        return set()
    order = np.lexsort((strata, keys))
    keys, strata = keys[order], strata[order]
    is_first = np.append(True, keys[1:] != keys[:-1])
    strata = strata[is_first][np.cumsum(is_first) - 1]
    sizes = np.bincount(strata)
    counts = _in_proportion(sizes, max(1, min(int(len(keys) * fraction), most)))
    by_stratum = np.split(keys[np.argsort(strata, kind="stable")], np.cumsum(sizes)[:-1])
    chosen = {
        key
        for own, count in zip(by_stratum, counts, strict=True)
        for key in _slice(own, count, fold)
    }
    if not chosen and fold == 1 and len(sizes) > 1:  # no label has two sources
        return held_out_keys(keys, np.zeros_like(strata), fraction=fraction, most=most)
    return chosen


def _in_proportion(sizes: Int[np.ndarray, " K"], total: int) -> list[int]:
    """Divide the total among strata in proportion to their sizes; rounding favours strata that would get none."""
    counts, remainders = np.divmod(sizes * total, sizes.sum())
    order = np.lexsort((-remainders, counts > 0))
    order = order[(sizes[order] > 1) & (remainders[order] > 0)]
    counts[order[: total - counts.sum()]] += 1
    return [int(count) for count in counts]


def _slice(ranked: Keys, count: int, fold: int) -> Sequence[int]:
    """Return `count` keys of a stratum after those of earlier folds; a source that occurs twice is in one fold."""
    begin = (fold - 1) * count
    chosen = ranked[begin : begin + count]
    if not len(chosen):
        return []
    in_fold = ranked <= chosen[-1]
    if begin:
        in_fold &= ranked > ranked[begin - 1]
    elif chosen[-1] == ranked[-1]:  # leave one source to learn from
        in_fold = ranked < ranked[-1]
    return [int(key) for key in ranked[in_fold]]
