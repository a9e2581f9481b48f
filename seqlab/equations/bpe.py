"""Byte-pair encoding: the most frequent pair of adjacent symbols is merged into one, repeatedly.

This is the slow and readable version, which counts all pairs again after each merge. Words are tuples of symbols with
their counts.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

Pair = tuple[str, str]
Symbols = tuple[str, ...]


def pair_counts(words: Mapping[Symbols, int]) -> dict[Pair, int]:
    """E62: the count of each pair of adjacent symbols, in the order of first occurrence."""
    counts: dict[Pair, int] = {}
    for symbols, count in words.items():
        for pair in pairwise(symbols):
            counts[pair] = counts.get(pair, 0) + count
    return counts


def merge(words: Mapping[Symbols, int], pair: Pair) -> dict[Symbols, int]:
    """E63: the words with every occurrence of `pair` merged into one symbol."""
    merged: dict[Symbols, int] = {}
    for symbols, count in words.items():
        joined = _join(symbols, pair)
        merged[joined] = merged.get(joined, 0) + count
    return merged


def learn(
    word_counts: Mapping[str, int], num_merges: int, *, end_of_word: str | None = None
) -> list[Pair]:
    """E62, E63: learn the merges, in order; among equally frequent pairs, the one that occurs first.

    There may be fewer than `num_merges`: once every word is one symbol, no pair is left.
    """
    words = {_symbols(word, end_of_word): count for word, count in word_counts.items()}
    merges: list[Pair] = []
    while len(merges) < num_merges and (counts := pair_counts(words)):
        best = max(counts, key=counts.__getitem__)  # the first, if several are equally frequent
        words = merge(words, best)
        merges.append(best)
    return merges


def segment(word: str, merges: Sequence[Pair], *, end_of_word: str | None = None) -> Symbols:
    """E63: split a word, which may be unknown, into symbols by applying `merges` in order."""
    symbols = _symbols(word, end_of_word)
    for pair in merges:
        symbols = _join(symbols, pair)
    return symbols


def _symbols(word: str, end_of_word: str | None) -> Symbols:
    return (*word, end_of_word) if end_of_word is not None else tuple(word)


def _join(symbols: Symbols, pair: Pair) -> Symbols:
    """Merge every occurrence of `pair` into one symbol, from the left."""
    joined: list[str] = []
    at = 0
    while at < len(symbols):
        matches = symbols[at : at + 2] == pair
        joined.append(pair[0] + pair[1] if matches else symbols[at])
        at += 2 if matches else 1
    return tuple(joined)
