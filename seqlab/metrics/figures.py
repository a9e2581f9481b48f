"""Figures as people read them."""

SHARES = {"exact", "accuracy", "token_accuracy", "macro_f1", "accuracy_on_unseen_words", "whole_sentences"}
SHARES |= {"entity_precision", "entity_recall", "entity_f1", "coverage", "coverage_uncalibrated", "attention_on_object"}
SHARES |= {"hop_overlap"}


def figure(name: str, value: float) -> str:
    """A score by the name of its measure: what is a share is in percent."""
    return f"{100 * value:.1f} %" if name in SHARES else f"{value:.4g}"


def duration(seconds: float) -> str:
    """A time as people say it."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def count(number: int) -> str:
    """A large number with three figures."""
    for limit, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= limit:
            return f"{number / limit:.3g} {unit}"
    return str(number)
