"""Conformal prediction: for each text, a set of labels that contains the true one with a chosen probability.

Split conformal prediction (Vovk et al. 2005; Sadinle et al. 2019): a label is in the set if its probability reaches a
limit. The limits are quantiles of the probabilities of true labels in the held-out part. They are stored with the
metrics of the model.
"""

import math
from collections.abc import Sequence

from seqlab.bundle import Bundle
from seqlab.errors import UsageError, warn
from seqlab.metrics.calibration import Likelihoods, conformal_limit

# the key of the limits in the metrics of a bundle
CONFORMAL = "conformal"
# percent
COVERAGES = range(50, 100)


def keep_limits(bundle: Bundle, likelihoods: Likelihoods) -> None:
    """Store the limit of each coverage; `likelihoods` are the probabilities of the true labels of held-out examples."""
    limits = {
        f"{percent}": conformal_limit(likelihoods, coverage=percent / 100) for percent in COVERAGES
    }
    bundle.metrics[CONFORMAL] = {"examples": len(likelihoods), "limits": limits}


def check_limits(bundle: Bundle) -> None:
    """Raise an error if a model has no limits: older classifiers, and models of other tasks."""
    if CONFORMAL not in bundle.metrics:
        raise UsageError(
            f"this '{bundle.recipe.task}' model has no limits for conformal sets",
            hint="only classifiers have limits, which are set at the end of a training: train it again.",
        )


def limit_of(bundle: Bundle, coverage: float) -> float:
    """Return the minimum probability of a label that belongs to a set."""
    check_limits(bundle)
    stored = bundle.metrics[CONFORMAL]
    limit = float(stored["limits"][f"{math.ceil(round(100 * coverage, 6))}"])
    if limit == 0.0:
        warn(
            f"{stored['examples']} held-out examples are too few for sets of {100 * coverage:.3g} %: "
            "each set contains all labels"
        )
    return limit


def label_set(names: Sequence[str], probabilities: Sequence[float], limit: float) -> list[str]:
    """Return the labels that reach the limit, the most probable first; the set contains at least this one."""
    ranked = sorted(range(len(names)), key=lambda label: -probabilities[label])
    others = [names[label] for label in ranked[1:] if probabilities[label] >= limit]
    return [names[ranked[0]], *others]
