"""Calibration of probabilities: temperature scaling, the calibration error, and conformal sets of labels.

Temperature scaling divides all logits by one number, fitted on held-out labels (Guo et al. 2017): it changes the
probabilities, but not which label is the likeliest. A conformal set has every label above a probability limit, which is
chosen so that the sets contain the true label with a given frequency (Vovk et al. 2005; Angelopoulos & Bates 2021).
"""

import math

import numpy as np
from jaxtyping import Bool, Float, Int

BINS = 15
STEPS = 60
PRIOR = (
    4.0  # weight of the prior that the temperature is one, in examples, for small held-out parts
)
RANGE = (math.log(0.2), math.log(10.0))

Logits = Float[np.ndarray, "N K"]
Likelihoods = Float[np.ndarray, " N"]  # the probability of the true label of each example
Labels = Int[np.ndarray, " N"]


def fit_temperature(logits: Logits, labels: Labels) -> float:
    """Return the temperature that maximises the likelihood of the labels, by golden-section search."""
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
    """ECE: the mean difference between confidence and accuracy over 15 bins of confidence."""
    bins = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    counts, confidences, num_right = (
        np.bincount(bins, weights=w, minlength=BINS) for w in (None, confidence, right)
    )
    return float(np.abs(confidences - num_right).sum() / max(1, counts.sum()))


def conformal_limit(likelihoods: Likelihoods, *, coverage: float) -> float:
    """Return the smallest probability of a label in a conformal set with this coverage."""
    ordered = np.sort(likelihoods)
    rank = math.floor(round((1 - coverage) * (len(ordered) + 1), 6)) - 1
    return float(ordered[rank]) if rank >= 0 else 0.0


def _cost(logits: Logits, labels: Labels, log_temperature: float) -> float:
    """Return the loss of the labels in nats, plus that of the prior for a temperature of one."""
    scaled = logits / math.exp(log_temperature)
    scaled = scaled - scaled.max(1, keepdims=True)
    log_total = np.log(np.exp(scaled).sum(1))
    losses = log_total - scaled[np.arange(len(labels)), labels]
    return float(losses.sum() + PRIOR * log_temperature**2)
