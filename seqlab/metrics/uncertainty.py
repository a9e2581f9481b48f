"""How sure a score is: intervals by the bootstrap, and whether one system is better than another on the same examples.

Each example contributes a few sums (right and all, or right, predicted and gold spans, or BLEU's counts), and a score
is a function of the totals. Drawing the examples again with replacement, and scoring each draw, shows how much the
score would move with another test set of the same size (Efron 1979; for BLEU, Koehn 2004). Forecasts from moments that
follow each other have most of what they forecast in common, so runs of moments are drawn (Politis & Romano 1992).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Num

from seqlab.scripts import bleu_tokenizer

DRAWS = 1000
LEVEL = 0.95
DEVIATIONS = 1.96  # of a normal variable on either side, which hold that level
FEWEST_RUNS = 4  # of examples that share what they are judged by: fewer show nothing
SEED = 1
Totals = Float[np.ndarray, "D S"]


@dataclass(frozen=True)
class ExampleScores:
    """What each example contributes to a score, and how totals become the score."""

    score: str  # its name, as in a report
    sums: Num[np.ndarray, "N S"]
    formula: Callable[[Totals], Float[np.ndarray, " D"]]
    lower_is_better: bool = False
    run: int = 1  # so many that follow each other share what they are judged by

    @property
    def has_interval(self) -> bool:
        """Whether there are enough examples that do not overlap for an interval to mean anything."""
        return len(self.sums) > 1 and (self.run == 1 or len(self.sums) >= FEWEST_RUNS * self.run)

    def value(self) -> float:
        return float(self.formula(self.sums.sum(0, keepdims=True, dtype=np.float64))[0])

    def draws(self, *, seed: int = SEED) -> Float[np.ndarray, " D"]:
        """The score on each of many test sets that are drawn from the examples with replacement."""
        weights = (
            _weights(len(self.sums), seed)
            if self.run == 1
            else _runs(len(self.sums), self.run, seed)
        )
        return self.formula(weights @ self.sums.astype(np.float64))


def interval(scores: ExampleScores) -> tuple[float, float]:
    """Between these two the score lies with 95 % confidence.

    Where all examples are right, or all wrong, each draw is the same, and few examples would seem to prove it: there
    it is the interval of a share of so many examples (Wilson 1927).
    """
    low, high = np.quantile(scores.draws(), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    if (
        low == high
        and low in (0.0, 1.0)
        and scores.formula is _ratio
        and not scores.lower_is_better
    ):
        unsure = DEVIATIONS**2 / (len(scores.sums) + DEVIATIONS**2)
        return (0.0, unsure) if low == 0.0 else (1 - unsure, 1.0)
    return float(low), float(high)


@dataclass(frozen=True)
class Difference:
    """How much better one system is than another on the same examples; above zero, it is better."""

    gain: float
    low: float
    high: float
    p: float  # share of the draws on which it is no better; never zero
    enough: bool = True  # examples to say anything

    @property
    def clear(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.enough and (self.low > 0 or self.high < 0)


def difference(ours: ExampleScores, theirs: ExampleScores) -> Difference:
    """Paired bootstrap: both systems are scored on the same draws."""
    if len(ours.sums) != len(theirs.sums):
        raise ValueError(f"{len(ours.sums)} and {len(theirs.sums)} examples cannot be paired")
    sign = -1.0 if ours.lower_is_better else 1.0
    gains = sign * (ours.draws() - theirs.draws())
    low, high = np.quantile(gains, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    p = (1 + int((gains <= 0).sum())) / (1 + len(gains))
    gain = sign * (ours.value() - theirs.value())
    return Difference(gain, float(low), float(high), p, ours.has_interval)


def share(
    name: str, right: Sequence[bool] | Sequence[int], counts: Sequence[int] | None = None
) -> ExampleScores:
    """An accuracy: how much is right of each example, and how much there is of it (one, unless said)."""
    of = np.ones(len(right)) if counts is None else np.asarray(counts)
    return ExampleScores(name, np.stack([np.asarray(right, dtype=np.float64), of], axis=1), _ratio)


def f1(
    name: str, right: Sequence[int], predicted: Sequence[int], gold: Sequence[int]
) -> ExampleScores:
    """F1 = 2 right / (predicted + gold), from each example's counts of spans."""
    both = np.asarray(predicted) + np.asarray(gold)
    return ExampleScores(name, np.stack([2 * np.asarray(right), both], axis=1), _ratio)


def mean(name: str, values: Sequence[float], *, lower_is_better: bool) -> ExampleScores:
    """The mean of one number for each example, such as a loss or an absolute error."""
    numbers = np.asarray(values, dtype=np.float64)
    return ExampleScores(
        name, np.stack([numbers, np.ones(len(numbers))], axis=1), _ratio, lower_is_better
    )


def bleu(
    outputs: Sequence[str], references: Sequence[Sequence[str]], *, lower: bool = False
) -> ExampleScores:
    """BLEU over all outputs, from what each contributes: right n-grams of each order, all of them, both lengths."""
    from sacrebleu.metrics import BLEU

    tokenizer = bleu_tokenizer("\n".join(texts[0] for texts in references[:1000] if texts))
    metric = BLEU(
        lowercase=lower, tokenize=tokenizer, effective_order=True
    )  # of one sentence: counts are the same

    def formula(totals: Totals) -> Float[np.ndarray, " D"]:
        return np.asarray([_bleu(row) for row in totals.round().astype(np.int64).tolist()])

    parts = [
        metric.sentence_score(output, list(known))
        for output, known in zip(outputs, references, strict=True)
    ]
    sums = [[*part.counts, *part.totals, part.sys_len, part.ref_len] for part in parts]
    return ExampleScores("bleu", np.asarray(sums, dtype=np.int64).reshape(len(sums), 10), formula)


def _bleu(totals: list[int]) -> float:
    from sacrebleu.metrics import BLEU

    *counts, sys_len, ref_len = totals
    # a draw of short answers may hold no four words in a row: it is scored by the orders that it has
    score = BLEU.compute_bleu(
        counts[:4], counts[4:], sys_len, ref_len, smooth_method="exp", effective_order=True
    )
    return float(score.score)


def _ratio(totals: Totals) -> Float[np.ndarray, " D"]:
    return totals[:, 0] / np.maximum(totals[:, 1], 1e-12)


def _weights(count: int, seed: int) -> Float[np.ndarray, "D N"]:
    """How often each example is drawn, in each of the draws."""
    draws = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=DRAWS)
    return draws.astype(np.float64)


def _runs(count: int, length: int, seed: int) -> Float[np.ndarray, "D N"]:
    """The same where runs of examples are drawn: the last is followed by the first."""
    random, length = np.random.default_rng(seed), min(length, count)
    starts = random.integers(count, size=(DRAWS, -(-count // length), 1))
    drawn = ((starts + np.arange(length)) % count).reshape(DRAWS, -1)[:, :count]
    return np.stack([np.bincount(row, minlength=count) for row in drawn]).astype(np.float64)
