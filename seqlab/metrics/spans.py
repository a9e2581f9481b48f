"""Scores of entities and chunks: a tagger is as good as the spans it finds whole, not as its labels one by one.

Labels are BIO, its older form IOB1 (B- only between neighbours of one type), BIOES = IOBES, or BILOU. Broken sequences
are read as conlleval reads them (Tjong Kim Sang & Buchholz 2000), so that scores compare with published ones.
"""

import re
from collections.abc import Iterable, Sequence

Span = tuple[int, int, str]
"""Where it begins, where it has ended, and its type."""

_LABEL = re.compile(r"([BIESLU])-(.+)", re.DOTALL)


def spans(labels: Sequence[str]) -> set[Span]:
    """The spans that labels spell. I- and E- (or L-) go on only in a span of their own type; elsewhere they begin one.

    Whatever is no label of a span lies outside, as O does.
    """
    found: set[Span] = set()
    start, inside = 0, ""  # the type of the span that is open; "" outside
    for place, label in enumerate(labels):
        match = _LABEL.fullmatch(label)
        prefix, kind = match.groups() if match else ("O", "")
        if inside and (kind != inside or prefix in "BSU"):
            found.add((start, place, inside))
            inside = ""
        if not inside:
            start, inside = place, kind
        if prefix in "ELSU":
            found.add((start, place + 1, kind))
            inside = ""
    return found | ({(start, len(labels), inside)} if inside else set())


def looks_like_spans(names: Iterable[str]) -> bool:
    """Whether a label set spells spans: all of it O or a prefix and a type, and something that can stand alone."""
    inside = [_LABEL.fullmatch(name) for name in names if name != "O"]
    return all(inside) and any(match is not None and match[1] in "BISU" for match in inside)


def span_scores(predicted: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]) -> dict[str, float]:
    """Precision, recall and F1 = 2 right / (predicted + gold) over the spans of all sentences; 0 where undefined."""
    num_predicted = num_gold = num_right = 0
    for ours, theirs in zip(map(spans, predicted), map(spans, gold), strict=True):
        num_predicted, num_gold = num_predicted + len(ours), num_gold + len(theirs)
        num_right += len(ours & theirs)  # where it begins, where it ends and its type: all three, or nothing
    return {
        "entity_precision": num_right / max(num_predicted, 1),
        "entity_recall": num_right / max(num_gold, 1),
        "entity_f1": 2 * num_right / max(num_predicted + num_gold, 1),
    }
