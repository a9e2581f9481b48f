"""Which examples are held out, and which rows go into one batch: rows of like length, up to a budget of tokens.

The first depends on the seed and on the source alone, the second on (seed, epoch).
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import final

import numpy as np
from jaxtyping import Int, UInt64

from seqlab.data.store import Places, TokenStore
from seqlab.errors import DataError
from seqlab.padded import Batch, Padded, tensor_of

Lengths = Int[np.ndarray, "N parts"]  # of each row, in each part that there is
Keys = UInt64[np.ndarray, " N"]
Strata = Int[
    np.ndarray, " N"
]  # of each example its label, as a number from 0 in the order of their names
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


def source_key(source: str | tuple[str, ...] | np.ndarray, *, seed: int) -> int:
    """A number from 0 to 2**64 that depends on the source and on the seed: it decides whether an example is held out.

    A source that occurs twice, with two targets, is on one side both times, so nothing leaks; and the order of a file
    changes nothing.
    """
    if isinstance(source, np.ndarray):
        content = source.tobytes()
    else:
        content = (source if isinstance(source, str) else "\t".join(source)).encode(
            "utf-8", "surrogatepass"
        )
    digest = blake2b(content, digest_size=8, key=str(seed).encode()).digest()
    return int.from_bytes(digest, "big")


def held_out_keys(
    keys: Keys, strata: Strata, *, fraction: float, most: int, fold: int = 1
) -> set[int]:
    """The keys of a fold: of each stratum those that are smallest, or that come after the folds before.

    At least one source is held out and one is left, up to `most`; of a stratum that has two, one is left as well. A
    source that occurs with several labels belongs to the first of them. Nothing where all sources are the same.
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
    """How many of each stratum: its share of the total, rounded so that strata that would have none come first."""
    counts, remainders = np.divmod(sizes * total, sizes.sum())
    waiting = np.lexsort((-remainders, counts > 0))
    waiting = waiting[(sizes[waiting] > 1) & (remainders[waiting] > 0)]
    counts[waiting[: total - counts.sum()]] += 1
    return [int(count) for count in counts]


def _slice(ranked: Keys, count: int, fold: int) -> Sequence[int]:
    """So many keys of a stratum, after those of the folds before; a source that occurs twice is in one fold."""
    before, chosen = ranked[: (fold - 1) * count], ranked[(fold - 1) * count : fold * count]
    if not len(chosen):
        return []
    is_in = ranked <= chosen[-1]
    if len(before):
        is_in &= ranked > before[-1]
    elif chosen[-1] == ranked[-1]:  # something is left to learn from
        is_in = ranked < ranked[-1]
    return [int(key) for key in ranked[is_in]]
