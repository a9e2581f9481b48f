"""Scores of labels: one a text or one a word."""

from collections import Counter
from collections.abc import Sequence


def accuracy(predicted: Sequence[str], gold: Sequence[str]) -> float:
    """The share of predictions that are right."""
    right = sum(p == g for p, g in zip(predicted, gold, strict=True))
    return right / len(gold) if gold else 0.0


def macro_f1(predicted: Sequence[str], gold: Sequence[str]) -> float:
    """The mean over the gold labels of F1 = 2 right / (predicted + gold): each label counts the same, however rare."""
    num_predicted, num_gold = Counter(predicted), Counter(gold)
    right = Counter(g for p, g in zip(predicted, gold, strict=True) if p == g)
    scores = [2 * right[label] / (num_predicted[label] + num_gold[label]) for label in num_gold]
    return sum(scores) / len(scores) if scores else 0.0
