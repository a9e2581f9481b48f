"""Scores of generated text against references."""

from collections.abc import Sequence


def exact_match(outputs: Sequence[str], references: Sequence[str]) -> float:
    """The share of outputs that equal their reference to the letter."""
    return sum(o == r for o, r in zip(outputs, references, strict=True)) / len(references) if references else 0.0


def corpus_scores(outputs: Sequence[str], references: Sequence[str], *, lower: bool = False) -> dict[str, float | str]:
    """BLEU and chrF of sacreBLEU, each with the signature that makes it comparable."""
    from sacrebleu.metrics import BLEU, CHRF

    bleu, chrf = BLEU(lowercase=lower), CHRF(lowercase=lower)
    return {
        "bleu": bleu.corpus_score(list(outputs), [list(references)]).score,
        "bleu_signature": str(bleu.get_signature()),
        "chrf": chrf.corpus_score(list(outputs), [list(references)]).score,
        "chrf_signature": str(chrf.get_signature()),
    }
