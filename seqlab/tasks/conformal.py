"""Conformal sets: with each text the labels that hold the true one as often as asked, whatever the model is like.

Split conformal prediction (Vovk et al. 2005; Sadinle et al. 2019): a label is in the set if its probability reaches a
limit. The limits are quantiles of what the true labels of the held-out part had, and lie with the model's metrics.
"""

import math
from collections.abc import Sequence

from seqlab.bundle import Bundle
from seqlab.errors import UsageError, warn
from seqlab.metrics.calibration import Likelihoods, conformal_limit

CONFORMAL = "conformal"  # in a bundle's metrics: the limit of each coverage
COVERAGES = range(50, 100)  # percent


def keep_limits(bundle: Bundle, likelihoods: Likelihoods) -> None:
    """Store the limits; `likelihoods` are the probabilities that held-out examples' true labels have."""
    limits = {
        f"{percent}": conformal_limit(likelihoods, coverage=percent / 100) for percent in COVERAGES
    }
    bundle.metrics[CONFORMAL] = {"examples": len(likelihoods), "limits": limits}


def check_limits(bundle: Bundle) -> None:
    """Refuse sets of a model that was trained before there were any, or that is no classifier."""
    if CONFORMAL not in bundle.metrics:
        raise UsageError(
            f"this '{bundle.recipe.task}' model has no limits for conformal sets",
            hint="they are chosen at the end of the training of a classifier: train it again.",
        )


def limit_of(bundle: Bundle, coverage: float) -> float:
    """The least probability of a label that is in a set."""
    check_limits(bundle)
    kept = bundle.metrics[CONFORMAL]
    limit = float(kept["limits"][f"{math.ceil(round(100 * coverage, 6))}"])
    if limit == 0.0:
        many = f"{kept['examples']} held-out examples"
        warn(f"{many} are too few for sets of {100 * coverage:.3g} %: each set holds all labels")
    return limit


def label_set(names: Sequence[str], probabilities: Sequence[float], limit: float) -> list[str]:
    """The labels that reach the limit, the likeliest first; that one is always there."""
    ranked = sorted(range(len(names)), key=lambda label: -probabilities[label])
    return [
        names[label]
        for place, label in enumerate(ranked)
        if not place or probabilities[label] >= limit
    ]
