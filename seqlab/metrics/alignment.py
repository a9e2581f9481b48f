"""How far two sequences of frames are apart when one may go faster or slower than the other."""

import numpy as np
from jaxtyping import Float


def aligned_distance(one: Float[np.ndarray, "S D"], other: Float[np.ndarray, "T D"]) -> float:
    """The mean distance of aligned frames, under the alignment for which that is least (dynamic time warping).

    Each step of an alignment moves on in one sequence or in both; the sum of distances is divided by T, the length of
    `other`, which is the reference.
    """
    costs = np.linalg.norm(one[:, None] - other[None], axis=-1)
    best = np.full((len(one) + 1, len(other) + 1), np.inf)
    best[0, 0] = 0.0
    for s in range(len(one)):
        for t in range(len(other)):
            best[s + 1, t + 1] = costs[s, t] + min(best[s, t], best[s, t + 1], best[s + 1, t])
    return float(best[-1, -1] / len(other))
