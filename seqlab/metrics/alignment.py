"""The distance of two sequences of frames with different timing, by dynamic time warping."""

import numpy as np
from jaxtyping import Float


def aligned_distance(one: Float[np.ndarray, "S D"], other: Float[np.ndarray, "T D"]) -> float:
    """Return the mean distance of aligned frames under the best alignment (dynamic time warping).

    Each step of an alignment advances in one sequence or in both; the sum of distances is divided by T, the length of
    the reference `other`.
    """
    costs = np.linalg.norm(one[:, None] - other[None], axis=-1)
    best = np.full((len(one) + 1, len(other) + 1), np.inf)
    best[0, 0] = 0.0
    for s in range(len(one)):
        for t in range(len(other)):
            best[s + 1, t + 1] = costs[s, t] + min(best[s, t], best[s, t + 1], best[s + 1, t])
    return float(best[-1, -1] / len(other))
