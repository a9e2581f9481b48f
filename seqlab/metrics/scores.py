"""Scores of labels and of spans, how sure a score is, and how scores, times and counts are written for people.

A tagger of entities is judged by the spans it gets whole, not by its labels one by one. Labels of spans are BIO, its
older form IOB1 (B- only between neighbours of one type), BIOES = IOBES, or BILOU. Broken sequences are read as
conlleval reads them (Tjong Kim Sang & Buchholz 2000), so that scores compare with published ones.

Each example contributes a few sums (right and all, or right, predicted and gold spans, or BLEU's counts), and a score
is a function of the totals. Drawing the examples again with replacement, and scoring each draw, shows how much the
score would move with another test set of the same size (Efron 1979; for BLEU, Koehn 2004). Forecasts from moments that
follow each other have most of what they forecast in common, so runs of moments are drawn (Politis & Romano 1992).
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Num

DRAWS = 1000
LEVEL = 0.95
DEVIATIONS = 1.96  # of a normal variable on either side, which hold that level
FEWEST_RUNS = 4  # of examples that share what they are judged by: fewer show nothing
SEED = 1
Totals = Float[np.ndarray, "D S"]
Span = tuple[int, int, str]
"""Where it begins, where it has ended, and its type."""

_LABEL = re.compile(r"([BIESLU])-(.+)", re.DOTALL)

SHARES = {
    *(
        "exact",
        "accuracy",
        "token_accuracy",
        "macro_f1",
        "accuracy_on_unseen_words",
        "whole_sentences",
    ),
    *("entity_precision", "entity_recall", "entity_f1", "coverage", "coverage_uncalibrated"),
    *("attention_on_object", "hop_overlap", "calibration_error", "set_coverage"),
}
"""Scores that are written in percent."""


def accuracy(predicted: Sequence[str], gold: Sequence[str]) -> float:
    """The share of predictions that equal their reference to the letter."""
    right = sum(p == g for p, g in zip(predicted, gold, strict=True))
    return right / len(gold) if gold else 0.0


def macro_f1(predicted: Sequence[str], gold: Sequence[str]) -> float:
    """The mean over the gold labels of F1 = 2 right / (predicted + gold): each label counts the same, however rare."""
    num_predicted, num_gold = Counter(predicted), Counter(gold)
    right = Counter(g for p, g in zip(predicted, gold, strict=True) if p == g)
    scores = [2 * right[label] / (num_predicted[label] + num_gold[label]) for label in num_gold]
    return sum(scores) / len(scores) if scores else 0.0


def spans(labels: Sequence[str]) -> set[Span]:
    """The spans that labels spell. I- and E- (or L-) go on only in a span of their own type; elsewhere they begin one.

    Whatever is no label of a span lies outside, as O does.
    """
    complete: set[Span] = set()
    start, inside = 0, ""  # the type of the span that is open; "" outside
    for place, label in enumerate(labels):
        match = _LABEL.fullmatch(label)
        prefix, kind = match.groups() if match else ("O", "")
        if inside and (kind != inside or prefix in "BSU"):
            complete.add((start, place, inside))
            inside = ""
        if not inside:
            start, inside = place, kind
        if prefix in "ELSU":
            complete.add((start, place + 1, kind))
            inside = ""
    return complete | ({(start, len(labels), inside)} if inside else set())


def looks_like_spans(names: Iterable[str]) -> bool:
    """Whether a label set spells spans: all of it O or a prefix and a type, and something that can stand alone."""
    inside = [_LABEL.fullmatch(name) for name in names if name != "O"]
    return all(inside) and any(match is not None and match[1] in "BISU" for match in inside)


def span_scores(
    predicted: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]
) -> dict[str, float]:
    """Precision, recall and F1 = 2 right / (predicted + gold) over the spans of all sentences; 0 where undefined."""
    num_predicted = num_gold = num_right = 0
    for ours, theirs in zip(map(spans, predicted), map(spans, gold), strict=True):
        num_predicted, num_gold = num_predicted + len(ours), num_gold + len(theirs)
        num_right += len(
            ours & theirs
        )  # where it begins, where it ends and its type: all three, or nothing
    return {
        "entity_precision": num_right / max(num_predicted, 1),
        "entity_recall": num_right / max(num_gold, 1),
        "entity_f1": 2 * num_right / max(num_predicted + num_gold, 1),
    }


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


def figure(name: str, value: float) -> str:
    """A score by the name of its measure: what is a share is in percent."""
    return f"{100 * value:.1f} %" if name in SHARES else f"{value:.4g}"


def figure_between(name: str, value: float, limits: Sequence[float] | None) -> str:
    """A score with its interval, where it has one: 87.4 % (84.1 to 90.2)."""
    if limits is None:
        return figure(name, value)
    low, high = (figure(name, limit).removesuffix(" %") for limit in limits)
    return f"{figure(name, value)} ({low} to {high})"


def duration(seconds: float) -> str:
    """A time as people say it."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def count(number: int) -> str:
    """A large number with three figures."""
    for limit, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= limit:
            return f"{number / limit:.3g} {unit}"
    return str(number)
