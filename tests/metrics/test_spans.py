import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqlab.metrics.scores import looks_like_spans, span_scores, spans


def spell(found, length, *, single, end):
    """Labels of non-overlapping spans: B-, then I-, then `end`; or one `single`."""
    labels = ["O"] * length
    for start, stop, kind in found:
        prefixes = single if stop - start == 1 else "B" + "I" * (stop - start - 2) + end
        labels[start:stop] = [f"{prefix}-{kind}" for prefix in prefixes]
    return labels


def conlleval(labels):
    """The tables startOfChunk and endOfChunk of conlleval.pl, with S as in its later twins and L, U for E, S."""
    pairs = [(label[0].translate(str.maketrans("LU", "ES")), label[2:]) for label in labels]
    found, start = set(), None
    for place, ((before, old), (tag, new)) in enumerate(
        zip([("O", ""), *pairs], [*pairs, ("O", "")], strict=True)
    ):
        ends = before in "ES" or (before in "BI" and tag in "BSO") or (before != "O" and old != new)
        begins = tag in "BS" or (before in "ESO" and tag in "EI") or (tag != "O" and old != new)
        if ends and start is not None:
            found.add((start, place, old))
            start = None
        if begins:
            start = place
    return found


@st.composite
def sentences(draw):
    """A length and spans within it, with or without gaps between them."""
    found, place = set(), 0
    for gap, size, kind in draw(
        st.lists(
            st.tuples(
                st.integers(0, 2), st.integers(1, 4), st.sampled_from(["LOC", "PER", "work-of-art"])
            )
        )
    ):
        found.add((place + gap, place + gap + size, kind))
        place += gap + size
    return found, place + draw(st.integers(0, 2))


@given(sentences())
def test_spans_are_recovered_from_every_scheme(drawn):
    found, length = drawn
    bio, bioes, bilou = (
        spell(found, length, single=single, end=end)
        for single, end in [("B", "I"), ("S", "E"), ("U", "L")]
    )
    assert spans(bio) == spans(bioes) == spans(bilou) == found


@given(
    st.lists(st.sampled_from(["O", *(f"{prefix}-{kind}" for prefix in "BIESLU" for kind in "XY")]))
)
def test_invalid_label_sequences_are_read_as_by_conlleval(labels):
    assert spans(labels) == conlleval(labels)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ("", set()),
        ("O O", set()),
        ("B-PER I-PER O B-LOC", {(0, 2, "PER"), (3, 4, "LOC")}),
        ("B-PER B-PER", {(0, 1, "PER"), (1, 2, "PER")}),
        (
            "I-PER I-PER B-PER",
            {(0, 2, "PER"), (2, 3, "PER")},
        ),  # IOB1: B- only where two of a type touch
        ("O I-PER O", {(1, 2, "PER")}),
        ("B-PER I-LOC I-LOC", {(0, 1, "PER"), (1, 3, "LOC")}),
        ("B-PER I-PER E-PER S-LOC", {(0, 3, "PER"), (3, 4, "LOC")}),
        ("U-LOC B-PER L-PER", {(0, 1, "LOC"), (1, 3, "PER")}),
        ("E-PER E-PER", {(0, 1, "PER"), (1, 2, "PER")}),
        ("B-PER E-LOC", {(0, 1, "PER"), (1, 2, "LOC")}),
        ("B-PER S-PER I-PER", {(0, 1, "PER"), (1, 2, "PER"), (2, 3, "PER")}),
        ("B-work-of-art I-work-of-art", {(0, 2, "work-of-art")}),
        ("B-PER NOUN I-PER", {(0, 1, "PER"), (2, 3, "PER")}),
        ("B- I", set()),
    ],
)
def test_worked_examples(labels, expected):
    assert spans(labels.split()) == expected


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["O", "B-PER", "I-PER"], True),
        (["B-NP", "I-NP", "B-VP", "O"], True),
        (["I-NP"], True),
        (["O", "S-PER", "B-PER", "E-PER", "I-PER"], True),
        (["O", "U-PER", "L-PER"], True),
        (["NOUN", "VERB", "X", "O"], False),
        (["B-PER", "NOUN"], False),
        (["NN", "-LRB-", "PRP$"], False),
        (["O", "E-PER"], False),
        (["O"], False),
        (["B-"], False),
        ([], False),
    ],
)
def test_label_sets_that_describe_spans(names, expected):
    assert looks_like_spans(names) is expected
    assert looks_like_spans(iter(names)) is expected


def test_scores_worked_by_hand():
    """Gold has 3 spans, 4 are predicted, 2 of them are right; a span cut short is wrong."""
    gold = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-PER", "I-PER"]]
    predicted = [["B-PER", "I-PER", "O", "B-LOC"], ["B-LOC", "B-PER", "O"]]
    scores = span_scores(predicted, gold)
    assert scores == pytest.approx(
        {"entity_precision": 2 / 4, "entity_recall": 2 / 3, "entity_f1": 4 / 7}
    )


def test_equal_spans_of_different_sentences_are_different():
    assert span_scores([["B-PER"], ["O"]], [["O"], ["B-PER"]])["entity_f1"] == 0.0
    assert span_scores([["B-PER"], ["B-PER"]], [["B-PER"], ["O"]])["entity_precision"] == 0.5


@pytest.mark.parametrize(
    ("predicted", "gold"), [([], []), ([["O"]], [["O"]]), ([["O"]], [["B-X"]])]
)
def test_undefined_scores_are_zero(predicted, gold):
    scores = span_scores(predicted, gold)
    assert scores == {"entity_precision": 0.0, "entity_recall": 0.0, "entity_f1": 0.0}
    assert all(isinstance(score, float) for score in scores.values())


def test_different_numbers_of_sentences_are_refused():
    with pytest.raises(ValueError):
        span_scores([["O"]], [])


def test_the_chunks_of_conll2000(shared_data):
    """23,852 phrases in the test part, as every conlleval output on it says."""
    with gzip.open(shared_data("conll2000/test.txt.gz"), "rt", encoding="utf-8") as lines:
        sentences = lines.read().strip().split("\n\n")
    labels = [[line.split()[2] for line in sentence.splitlines()] for sentence in sentences]
    assert looks_like_spans({label for sentence in labels for label in sentence})
    assert sum(len(spans(sentence)) for sentence in labels) == 23_852
