"""Which examples are held out: of each label its share, chosen by keys, so that the order of a file changes nothing."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int, UInt64

Keys = UInt64[np.ndarray, " N"]
Strata = Int[
    np.ndarray, " N"
]  # the label of each example as a number from 0, in the order of their names


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
