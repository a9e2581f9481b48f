"""The baseline of language models: an interpolated n-gram model (Witten and Bell 1991).

    p(w | h) = (c(hw) + n(h) p(w | h')) / (c(h) + n(h))

c are the counts, n(h) is the number of different tokens after h, h' is the history without its oldest token, and below
the empty history is the uniform distribution. For a history that never occurred, p(w | h) = p(w | h').
"""

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float, Int, Integer

Tokens = Integer[np.ndarray, " T"]
Ints = Int[np.ndarray, " T"]


@dataclass(frozen=True)
class _Level:
    """The n-grams of one order. A history is stored as its index among the n-grams of the next lower order.

    An n-gram (history, token) is therefore one integer below tokens x vocabulary, whatever its order.
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
        """Count the n-grams of one long sequence, in place of earlier counts."""
        tokens = self._checked(tokens)
        self._levels = []
        history = np.zeros(len(tokens), dtype=np.int64)
        num_histories = 1
        for _ in range(min(self.order, len(tokens))):
            follower = tokens[len(tokens) - len(history) :]
            ngrams, places, counts = np.unique(
                history * self.vocabulary_size + follower, return_inverse=True, return_counts=True
            )
            histories = ngrams // self.vocabulary_size
            kinds = np.bincount(histories, minlength=num_histories)
            totals = np.bincount(history, minlength=num_histories)
            self._levels.append(_Level(ngrams, counts, totals, kinds))
            # an n-gram is the history of the next token
            history = places[:-1]
            num_histories = len(ngrams)
        return self

    def log_probabilities(self, tokens: Tokens) -> Float[np.ndarray, " T"]:
        """Return log p of each token given those before it in this array, in nats."""
        tokens = self._checked(tokens)
        probability = np.full(len(tokens), 1.0 / self.vocabulary_size)
        history = np.zeros(
            len(tokens), dtype=np.int64
        )  # -1: not counted, or before the first token
        for level in self._levels:
            places, counts = self._look_up(level, history, tokens)
            counted = history >= 0
            totals, kinds = level.totals[history[counted]], level.kinds[history[counted]]
            # A history at the end of the counted text may have no next token: then c and n are 0.
            total = totals + kinds
            interpolated = (counts[counted] + kinds * probability[counted]) / np.maximum(total, 1)
            probability[counted] = np.where(total > 0, interpolated, probability[counted])
            history = np.concatenate([np.full(min(1, len(tokens)), -1), places[:-1]])
        return np.log(probability)

    def _look_up(self, level: _Level, history: Ints, tokens: Tokens) -> tuple[Ints, Ints]:
        """Return the index of each n-gram in the level, -1 if it never occurred, and its count."""
        grams = history * self.vocabulary_size + tokens
        places = np.minimum(np.searchsorted(level.ngrams, grams), len(level.ngrams) - 1)
        occurs = (history >= 0) & (level.ngrams[places] == grams)
        return np.where(occurs, places, -1), np.where(occurs, level.counts[places], 0)

    def _checked(self, tokens: Tokens) -> Ints:
        tokens = np.asarray(tokens, dtype=np.int64)
        if len(tokens) and not 0 <= tokens.min() <= tokens.max() < self.vocabulary_size:
            raise ValueError(
                f"token ids from {tokens.min()} to {tokens.max()}, but they must be below {self.vocabulary_size}"
            )
        return tokens
