"""Whether one system is better than another, or only luckier with its test set."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

DRAWS = 1000


def bleu_bootstrap(
    outputs: Sequence[str],
    others: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    seed: int,
    lower: bool = False,
) -> float:
    """p that `outputs` have no higher BLEU than `others`: the share of test sets, drawn again from the sentences with
    replacement, on which they do not (paired bootstrap, Koehn 2004). Never zero: (1 + failures) / (1 + draws)."""
    ours, theirs = (_statistics(side, references, lower=lower) for side in (outputs, others))
    random, failures = np.random.default_rng(seed), 0
    for _ in range(DRAWS):
        rows = random.integers(0, len(ours), len(ours))
        failures += _bleu(ours[rows].sum(0)) <= _bleu(theirs[rows].sum(0))
    return (1 + failures) / (1 + DRAWS)


def _statistics(
    outputs: Sequence[str], references: Sequence[Sequence[str]], *, lower: bool
) -> Int[np.ndarray, "N statistics"]:
    """What BLEU sums over sentences: right n-grams of each order, all of them, and both lengths."""
    from sacrebleu.metrics import BLEU

    bleu = BLEU(lowercase=lower, effective_order=True)  # which changes no count, only the score of one sentence
    scored = [bleu.sentence_score(output, list(possible)) for output, possible in zip(outputs, references, strict=True)]
    return np.asarray([[*s.counts, *s.totals, s.sys_len, s.ref_len] for s in scored], dtype=np.int64)


def _bleu(total: Int[np.ndarray, " statistics"]) -> float:
    from sacrebleu.metrics import BLEU

    *counts, sys_len, ref_len = total.tolist()
    return float(
        BLEU.compute_bleu(counts[:4], counts[4:], sys_len, ref_len, smooth_method="exp", effective_order=True).score
    )
