"""Scores of labels, of spans and of generated text, and how scores, times and counts are written for people.

A tagger of entities is judged by the spans it gets whole, not by its labels one by one. Labels of spans are BIO, its
older form IOB1 (B- only between neighbours of one type), BIOES = IOBES, or BILOU. Broken sequences are read as
conlleval reads them (Tjong Kim Sang & Buchholz 2000), so that scores compare with published ones.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any

from seqlab.scripts import bleu_tokenizer

Span = tuple[int, int, str]
"""Where it begins, where it has ended, and its type."""

_LABEL = re.compile(r"([BIESLU])-(.+)", re.DOTALL)

SHARES = {
    "exact",
    "accuracy",
    "token_accuracy",
    "macro_f1",
    "accuracy_on_unseen_words",
    "whole_sentences",
}
SHARES |= {
    "entity_precision",
    "entity_recall",
    "entity_f1",
    "coverage",
    "coverage_uncalibrated",
    "attention_on_object",
}
SHARES |= {"hop_overlap", "calibration_error", "set_coverage"}


def accuracy(predicted: Sequence[str], gold: Sequence[str]) -> float:
    """The share of predictions that equal their reference to the letter."""
    right = sum(p == g for p, g in zip(predicted, gold, strict=True))
    return right / len(gold) if gold else 0.0


def macro_f1(predicted: Sequence[str], gold: Sequence[str]) -> float:
    """The mean over the gold labels of F1 = 2 right / (predicted + gold): each label counts the same, however rare."""
    num_predicted, num_gold = Counter(predicted), Counter(gold)
    right = Counter(g for p, g in zip(predicted, gold, strict=True) if p == g)
    scores = [2 * right[label] / (num_predicted[label] + num_gold[label]) for label in num_gold]
    return sum(scores) / len(scores) if scores else 0.0


def spans(labels: Sequence[str]) -> set[Span]:
    """The spans that labels spell. I- and E- (or L-) go on only in a span of their own type; elsewhere they begin one.

    Whatever is no label of a span lies outside, as O does.
    """
    complete: set[Span] = set()
    start, inside = 0, ""  # the type of the span that is open; "" outside
    for place, label in enumerate(labels):
        match = _LABEL.fullmatch(label)
        prefix, kind = match.groups() if match else ("O", "")
        if inside and (kind != inside or prefix in "BSU"):
            complete.add((start, place, inside))
            inside = ""
        if not inside:
            start, inside = place, kind
        if prefix in "ELSU":
            complete.add((start, place + 1, kind))
            inside = ""
    return complete | ({(start, len(labels), inside)} if inside else set())


def looks_like_spans(names: Iterable[str]) -> bool:
    """Whether a label set spells spans: all of it O or a prefix and a type, and something that can stand alone."""
    inside = [_LABEL.fullmatch(name) for name in names if name != "O"]
    return all(inside) and any(match is not None and match[1] in "BISU" for match in inside)


def span_scores(
    predicted: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]
) -> dict[str, float]:
    """Precision, recall and F1 = 2 right / (predicted + gold) over the spans of all sentences; 0 where undefined."""
    num_predicted = num_gold = num_right = 0
    for ours, theirs in zip(map(spans, predicted), map(spans, gold), strict=True):
        num_predicted, num_gold = num_predicted + len(ours), num_gold + len(theirs)
        num_right += len(
            ours & theirs
        )  # where it begins, where it ends and its type: all three, or nothing
    return {
        "entity_precision": num_right / max(num_predicted, 1),
        "entity_recall": num_right / max(num_gold, 1),
        "entity_f1": 2 * num_right / max(num_predicted + num_gold, 1),
    }


def corpus_scores(
    outputs: Sequence[str], references: Sequence[str], *, lower: bool = False
) -> dict[str, float | str]:
    """BLEU and chrF of sacreBLEU, each with the signature that makes it comparable."""
    return _scores(outputs, [list(references)], lower=lower)


def caption_scores(
    outputs: Sequence[str], references: Sequence[Sequence[str]], *, lower: bool = False
) -> dict[str, float | str]:
    """The same with several references for each output, and BLEU-1, which counts words alone."""
    from sacrebleu.metrics import BLEU

    streams = [
        list(stream) for stream in zip_longest(*references)
    ]  # where one has fewer, sacreBLEU takes None
    words = BLEU(lowercase=lower, max_ngram_order=1, tokenize=_tokenizer(streams))
    return {
        "bleu_1": words.corpus_score(list(outputs), streams).score,
        **_scores(outputs, streams, lower=lower),
    }


def _scores(outputs: Sequence[str], streams: Any, *, lower: bool) -> dict[str, float | str]:
    from sacrebleu.metrics import BLEU, CHRF

    bleu, chrf = BLEU(lowercase=lower, tokenize=_tokenizer(streams)), CHRF(lowercase=lower)
    return {
        "bleu": bleu.corpus_score(list(outputs), streams).score,
        "bleu_signature": str(bleu.get_signature()),
        "chrf": chrf.corpus_score(list(outputs), streams).score,
        "chrf_signature": str(chrf.get_signature()),
    }


def _tokenizer(streams: Any) -> str:
    """What fits the script of the references; the first thousand show it."""
    return bleu_tokenizer(
        "\n".join(text for stream in streams[:1] for text in stream[:1000] if text)
    )


def figure(name: str, value: float) -> str:
    """A score by the name of its measure: what is a share is in percent."""
    return f"{100 * value:.1f} %" if name in SHARES else f"{value:.4g}"


def figure_between(name: str, value: float, limits: Sequence[float] | None) -> str:
    """A score with its interval, where it has one: 87.4 % (84.1 to 90.2)."""
    if limits is None:
        return figure(name, value)
    low, high = (figure(name, limit).removesuffix(" %") for limit in limits)
    return f"{figure(name, value)} ({low} to {high})"


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
