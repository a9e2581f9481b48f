"""Scores of labels and of spans, their confidence intervals, and the format of scores, times and counts.

A tagger of entities is scored by complete spans, not by single labels. Labels of spans are BIO, its older form IOB1
(B- only between neighbours of one type), BIOES = IOBES, or BILOU. Invalid sequences are read as by conlleval (Tjong Kim
Sang & Buchholz 2000), so that scores are comparable with published ones.

Each example contributes a few sums (right and all, or right, predicted and gold spans, or the counts of BLEU), and a
score is a function of the totals. The bootstrap draws examples with replacement and scores each draw, which shows the
variation of the score over test sets of this size (Efron 1979; for BLEU, Koehn 2004). Forecasts from consecutive times
overlap, so blocks of them are drawn (Politis & Romano 1992).
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Num

DRAWS = 1000
LEVEL = 0.95
DEVIATIONS = 1.96  # of a normal variable on either side, for that level
MIN_RUNS = 4  # blocks of overlapping examples that an interval needs
SEED = 1
Totals = Float[np.ndarray, "D S"]
Span = tuple[int, int, str]  # first position, position after the last, type

_LABEL = re.compile(r"([BIESLU])-(.+)", re.DOTALL)

# scores that are written in percent
SHARES = {
    *("exact", "accuracy", "token_accuracy", "macro_f1"),
    *("accuracy_on_unseen_words", "whole_sentences"),
    *("entity_precision", "entity_recall", "entity_f1", "coverage", "coverage_uncalibrated"),
    *("attention_on_object", "hop_overlap", "calibration_error", "set_coverage"),
}


def accuracy(predicted: Sequence[str], gold: Sequence[str]) -> float:
    """Return the share of predictions that equal their reference exactly."""
    right = sum(p == g for p, g in zip(predicted, gold, strict=True))
    return right / len(gold) if gold else 0.0


def macro_f1(predicted: Sequence[str], gold: Sequence[str]) -> float:
    """Return the mean of F1 = 2 right / (predicted + gold) over the gold labels, whatever their frequency."""
    num_predicted, num_gold = Counter(predicted), Counter(gold)
    right = Counter(g for p, g in zip(predicted, gold, strict=True) if p == g)
    scores = [2 * right[label] / (num_predicted[label] + num_gold[label]) for label in num_gold]
    return sum(scores) / len(scores) if scores else 0.0


def spans(labels: Sequence[str]) -> set[Span]:
    """Return the spans of a sequence of labels.

    I- and E- (or L-) continue a span of their own type; otherwise they begin one. Any other label is outside, like O.
    """
    complete: set[Span] = set()
    start = 0
    inside = ""  # the type of the open span; "" outside
    for place, label in enumerate(labels):
        match = _LABEL.fullmatch(label)
        prefix, kind = match.groups() if match else ("O", "")
        if inside and (kind != inside or prefix in "BSU"):
            complete.add((start, place, inside))
            inside = ""
        if not inside:
            start = place
            inside = kind
        if prefix in "ELSU":
            complete.add((start, place + 1, kind))
            inside = ""
    return complete | ({(start, len(labels), inside)} if inside else set())


def looks_like_spans(names: Iterable[str]) -> bool:
    """Return whether labels describe spans: each is O or a prefix and a type, and one can begin a span."""
    inside = [_LABEL.fullmatch(name) for name in names if name != "O"]
    return all(inside) and any(match is not None and match[1] in "BISU" for match in inside)


def span_scores(
    predicted: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]
) -> dict[str, float]:
    """Precision, recall and F1 = 2 right / (predicted + gold) over the spans of all sentences, 0 if undefined."""
    num_predicted = num_gold = num_right = 0
    for ours, theirs in zip(map(spans, predicted), map(spans, gold), strict=True):
        num_predicted += len(ours)
        num_gold += len(theirs)
        num_right += len(ours & theirs)  # both ends and the type must be right
    return {
        "entity_precision": num_right / max(num_predicted, 1),
        "entity_recall": num_right / max(num_gold, 1),
        "entity_f1": 2 * num_right / max(num_predicted + num_gold, 1),
    }


@dataclass(frozen=True)
class ExampleScores:
    """The contribution of each example to a score, and the formula from totals to the score."""

    score: str  # its name, as in a report
    sums: Num[np.ndarray, "N S"]
    formula: Callable[[Totals], Float[np.ndarray, " D"]]
    lower_is_better: bool = False
    run: int = 1  # number of consecutive examples that overlap

    @property
    def has_interval(self) -> bool:
        """Return whether there are enough independent examples for a confidence interval."""
        return len(self.sums) > 1 and (self.run == 1 or len(self.sums) >= MIN_RUNS * self.run)

    def value(self) -> float:
        return float(self.formula(self.sums.sum(0, keepdims=True, dtype=np.float64))[0])

    def draws(self, *, seed: int = SEED) -> Float[np.ndarray, " D"]:
        """Return the score of each bootstrap sample of the examples."""
        weights = (
            _weights(len(self.sums), seed)
            if self.run == 1
            else _runs(len(self.sums), self.run, seed)
        )
        return self.formula(weights @ self.sums.astype(np.float64))


def interval(scores: ExampleScores) -> tuple[float, float]:
    """Return the 95 % confidence interval of a score.

    If all examples are right, or all wrong, all bootstrap samples are equal; then it is Wilson's interval of a share of
    so many examples (1927).
    """
    low, high = np.quantile(scores.draws(), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    if (
        low == high
        and low in (0.0, 1.0)
        and scores.formula is _ratio
        and not scores.lower_is_better
    ):
        width = DEVIATIONS**2 / (len(scores.sums) + DEVIATIONS**2)
        return (0.0, width) if low == 0.0 else (1 - width, 1.0)
    return float(low), float(high)


@dataclass(frozen=True)
class Difference:
    """The difference of two systems on the same examples; above zero, the first is better."""

    gain: float
    low: float
    high: float
    p: float  # share of the bootstrap samples on which it is not better; never zero
    enough: bool = True  # whether there are enough examples

    @property
    def clear(self) -> bool:
        """Return whether the interval excludes zero."""
        return self.enough and (self.low > 0 or self.high < 0)


def difference(ours: ExampleScores, theirs: ExampleScores) -> Difference:
    """Compare two systems by the paired bootstrap, on the same samples."""
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
    """Return an accuracy from the number of right parts of each example, and of all its parts (default: one)."""
    totals = np.ones(len(right)) if counts is None else np.asarray(counts)
    sums = np.stack([np.asarray(right, dtype=np.float64), totals], axis=1)
    return ExampleScores(name, sums, _ratio)


def f1(
    name: str, right: Sequence[int], predicted: Sequence[int], gold: Sequence[int]
) -> ExampleScores:
    """Return F1 = 2 right / (predicted + gold) from the counts of spans of each example."""
    both = np.asarray(predicted) + np.asarray(gold)
    return ExampleScores(name, np.stack([2 * np.asarray(right), both], axis=1), _ratio)


def mean(name: str, values: Sequence[float], *, lower_is_better: bool) -> ExampleScores:
    """Return the mean of one number for each example, such as a loss or an absolute error."""
    numbers = np.asarray(values, dtype=np.float64)
    return ExampleScores(
        name, np.stack([numbers, np.ones(len(numbers))], axis=1), _ratio, lower_is_better
    )


def _ratio(totals: Totals) -> Float[np.ndarray, " D"]:
    return totals[:, 0] / np.maximum(totals[:, 1], 1e-12)


def _weights(count: int, seed: int) -> Float[np.ndarray, "D N"]:
    """Return how often each example is in each bootstrap sample."""
    draws = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=DRAWS)
    return draws.astype(np.float64)


def _runs(count: int, length: int, seed: int) -> Float[np.ndarray, "D N"]:
    """Return how often each example is in each sample of blocks; the last example is followed by the first."""
    random = np.random.default_rng(seed)
    length = min(length, count)
    starts = random.integers(count, size=(DRAWS, -(-count // length), 1))
    drawn = ((starts + np.arange(length)) % count).reshape(DRAWS, -1)[:, :count]
    return np.stack([np.bincount(row, minlength=count) for row in drawn]).astype(np.float64)


def figure(name: str, value: float) -> str:
    """Format a score by its name: shares are in percent."""
    return f"{100 * value:.1f} %" if name in SHARES else f"{value:.4g}"


def figure_between(name: str, value: float, limits: Sequence[float] | None) -> str:
    """Format a score with its interval, if it has one: 87.4 % (84.1 to 90.2)."""
    if limits is None:
        return figure(name, value)
    low, high = (figure(name, limit).removesuffix(" %") for limit in limits)
    return f"{figure(name, value)} ({low} to {high})"


def duration(seconds: float) -> str:
    """Format a time in seconds, minutes or hours."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def count(number: int) -> str:
    """Format a large number with three significant digits."""
    for limit, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= limit:
            return f"{number / limit:.3g} {unit}"
    return str(number)
