"""Are probabilities what they say? Temperature scaling, the calibration error, and sets that hold the right label.

Temperature scaling divides all logits by one number that makes the held-out labels likeliest (Guo et al. 2017): it
changes no answer, only how sure the model says it is. A conformal set holds every label that is not too unlikely, with
the limit chosen so that the right one is in it as often as asked for (Vovk et al. 2005; Angelopoulos & Bates 2021).
"""

import math

import numpy as np
from jaxtyping import Bool, Float, Int

BINS = 15
STEPS = 60
PRIOR = 4.0  # examples' worth of belief that the temperature is one, so that a handful of labels does not move it far
RANGE = (math.log(0.2), math.log(10.0))

Logits = Float[np.ndarray, "N K"]
Likelihoods = Float[np.ndarray, " N"]  # the probability that the right label of each example has
Labels = Int[np.ndarray, " N"]


def fit_temperature(logits: Logits, labels: Labels) -> float:
    """The temperature under which the labels are likeliest; the loss has one minimum, found by golden section."""
    if not len(labels):
        return 1.0
    low, high = RANGE
    golden = (math.sqrt(5) - 1) / 2
    for _ in range(STEPS):
        left, right = high - golden * (high - low), low + golden * (high - low)
        if _cost(logits, labels, left) < _cost(logits, labels, right):
            high = right
        else:
            low = left
    return math.exp((low + high) / 2)


def calibration_error(confidence: Float[np.ndarray, " N"], right: Bool[np.ndarray, " N"]) -> float:
    """ECE: the mean distance between how sure the answers are and how many are right, over 15 bins of confidence."""
    place = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    counts, sure, good = (
        np.bincount(place, weights=w, minlength=BINS) for w in (None, confidence, right)
    )
    return float(np.abs(sure - good).sum() / max(1, counts.sum()))


def conformal_limit(likelihoods: Likelihoods, *, coverage: float) -> float:
    """The least probability that a label needs to be in a set, so that sets hold the right one that often."""
    own = np.sort(likelihoods)
    place = math.floor(round((1 - coverage) * (len(own) + 1), 6)) - 1
    return float(own[place]) if place >= 0 else 0.0


def _cost(logits: Logits, labels: Labels, log_temperature: float) -> float:
    """The loss of the labels in nats, plus the prior's pull towards a temperature of one."""
    scaled = logits / math.exp(log_temperature)
    scaled = scaled - scaled.max(1, keepdims=True)
    log_total = np.log(np.exp(scaled).sum(1))
    losses = log_total - scaled[np.arange(len(labels)), labels]
    return float(losses.sum() + PRIOR * log_temperature**2)
