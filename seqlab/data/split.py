"""Which examples are held out: decided by the source text alone.

A source that occurs twice, with two targets, is on one side both times, so nothing leaks; and the order of a file
changes nothing.
"""

from collections.abc import Iterable
from hashlib import blake2b

import numpy as np


def source_key(source: str | tuple[str, ...] | np.ndarray, *, seed: int) -> int:
    """A number from 0 to 2**64 that depends on the source and on the seed."""
    if isinstance(source, np.ndarray):
        content = source.tobytes()
    else:
        content = (source if isinstance(source, str) else "\t".join(source)).encode("utf-8", "surrogatepass")
    digest = blake2b(content, digest_size=8, key=str(seed).encode()).digest()
    return int.from_bytes(digest, "big")


def border(keys: Iterable[int], *, fraction: float, most: int) -> int | None:
    """The key below or at which a source is held out: the smallest `fraction` of them, at least one, up to `most`.

    None where holding out would leave nothing to train on: all sources are the same one.
    """
    ranked = np.sort(np.fromiter(keys, dtype=np.uint64))
    if len(ranked) == 0 or ranked[0] == ranked[-1]:
        return None
    count = max(1, min(int(len(ranked) * fraction), most))
    below = int(ranked[count - 1])
    return below if below < int(ranked[-1]) else int(ranked[ranked < ranked[-1]][-1])
