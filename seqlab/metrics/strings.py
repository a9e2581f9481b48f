"""Scores of generated text against references."""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any


def exact_match(outputs: Sequence[str], references: Sequence[str]) -> float:
    """The share of outputs that equal their reference to the letter."""
    return sum(o == r for o, r in zip(outputs, references, strict=True)) / len(references) if references else 0.0


def corpus_scores(outputs: Sequence[str], references: Sequence[str], *, lower: bool = False) -> dict[str, float | str]:
    """BLEU and chrF of sacreBLEU, each with the signature that makes it comparable."""
    return _scores(outputs, [list(references)], lower=lower)


def caption_scores(
    outputs: Sequence[str], references: Sequence[Sequence[str]], *, lower: bool = False
) -> dict[str, float | str]:
    """The same with several references for each output, and BLEU-1, which counts words alone."""
    from sacrebleu.metrics import BLEU

    streams = [list(stream) for stream in zip_longest(*references)]  # where one has fewer, sacreBLEU takes None
    words = BLEU(lowercase=lower, max_ngram_order=1).corpus_score(list(outputs), streams).score
    return {"bleu_1": words, **_scores(outputs, streams, lower=lower)}


def _scores(outputs: Sequence[str], streams: Any, *, lower: bool) -> dict[str, float | str]:
    from sacrebleu.metrics import BLEU, CHRF

    bleu, chrf = BLEU(lowercase=lower), CHRF(lowercase=lower)
    return {
        "bleu": bleu.corpus_score(list(outputs), streams).score,
        "bleu_signature": str(bleu.get_signature()),
        "chrf": chrf.corpus_score(list(outputs), streams).score,
        "chrf_signature": str(chrf.get_signature()),
    }
