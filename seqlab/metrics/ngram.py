"""The baseline under every language model: an n-gram that backs off smoothly (Witten and Bell 1991).

    p(w | h) = (c(hw) + n(h) p(w | h')) / (c(h) + n(h))

with c the counts, n(h) how many different tokens followed h, h' the history without its oldest token, and below
the empty history the uniform distribution. A history that never occurred leaves p(w | h') as it is.
"""

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float, Int, Integer

Tokens = Integer[np.ndarray, " T"]
Ints = Int[np.ndarray, " T"]


@dataclass(frozen=True)
class _Level:
    """The n-grams of one length. A history is named by a small number: its place among the n-grams one shorter.

    So an n-gram is (history, token), one integer below tokens x vocabulary, however long it is.
    """

    ngrams: Int[np.ndarray, " n"]  # history x vocabulary + token, sorted
    counts: Int[np.ndarray, " n"]  # c(hw)
    totals: Int[np.ndarray, " h"]  # c(h)
    kinds: Int[np.ndarray, " h"]  # n(h)


@final
class WittenBell:
    """Interpolated n-grams of token ids up to `order`; before `fit` it is the uniform distribution."""

    def __init__(self, order: int, vocabulary_size: int) -> None:
        if order < 1 or vocabulary_size < 1:
            raise ValueError(
                f"order {order} over {vocabulary_size} tokens: both must be at least 1"
            )
        self.order, self.vocabulary_size = order, vocabulary_size
        self._levels: list[_Level] = []

    def fit(self, tokens: Tokens) -> "WittenBell":
        """Count one long sequence; what was counted before is forgotten."""
        tokens = self._checked(tokens)
        self._levels = []
        history, num_histories = np.zeros(len(tokens), dtype=np.int64), 1
        for _ in range(min(self.order, len(tokens))):
            follower = tokens[len(tokens) - len(history) :]
            ngrams, places, counts = np.unique(
                history * self.vocabulary_size + follower, return_inverse=True, return_counts=True
            )
            histories = ngrams // self.vocabulary_size
            kinds = np.bincount(histories, minlength=num_histories)
            totals = np.bincount(history, minlength=num_histories)
            self._levels.append(_Level(ngrams, counts, totals, kinds))
            history, num_histories = (
                places[:-1],
                len(ngrams),
            )  # an n-gram is the history of the token after it
        return self

    def log_probabilities(self, tokens: Tokens) -> Float[np.ndarray, " T"]:
        """log p of each token given those before it in this array, in nats."""
        tokens = self._checked(tokens)
        probability = np.full(len(tokens), 1.0 / self.vocabulary_size)
        history = np.zeros(len(tokens), dtype=np.int64)  # -1: never seen, or before the beginning
        for level in self._levels:
            places, counts = self._look_up(level, history, tokens)
            counted = history >= 0
            totals, kinds = level.totals[history[counted]], level.kinds[history[counted]]
            # A history can end the text it was counted in, with no follower: then c and n are 0 and nothing changes.
            total = totals + kinds
            interpolated = (counts[counted] + kinds * probability[counted]) / np.maximum(total, 1)
            probability[counted] = np.where(total > 0, interpolated, probability[counted])
            history = np.concatenate([np.full(min(1, len(tokens)), -1), places[:-1]])
        return np.log(probability)

    def _look_up(self, level: _Level, history: Ints, tokens: Tokens) -> tuple[Ints, Ints]:
        """Where each n-gram stands in the level (-1 where it never occurred), and its count."""
        grams = history * self.vocabulary_size + tokens
        places = np.minimum(np.searchsorted(level.ngrams, grams), len(level.ngrams) - 1)
        occurs = (history >= 0) & (level.ngrams[places] == grams)
        return np.where(occurs, places, -1), np.where(occurs, level.counts[places], 0)

    def _checked(self, tokens: Tokens) -> Ints:
        tokens = np.asarray(tokens, dtype=np.int64)
        if len(tokens) and not 0 <= tokens.min() <= tokens.max() < self.vocabulary_size:
            raise ValueError(
                f"ids from {tokens.min()} to {tokens.max()} in a vocabulary of {self.vocabulary_size}"
            )
        return tokens
