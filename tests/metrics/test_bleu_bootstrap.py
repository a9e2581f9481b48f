from seqlab.metrics.scores import difference
from seqlab.metrics.text_scores import bleu, caption_scores, corpus_scores

REFERENCES = [[f"the number {n} is a good number", f"{n} is good"] for n in range(30)]
RIGHT = [f"the number {n} is a good number" for n in range(30)]
WRONG = [RIGHT[(n + 1) % 30] for n in range(30)]


def p(ours, theirs, *, lower=False):
    return difference(*(bleu(outputs, REFERENCES, lower=lower) for outputs in (ours, theirs))).p


def test_a_better_system_is_significant():
    assert p(RIGHT, WRONG) == 1 / 1001
    assert p(WRONG, RIGHT) == 1
    assert p(RIGHT, RIGHT) == 1  # no better than itself, on any draw


def test_a_small_difference_is_not_enough():
    nearly = [*WRONG[:1], *RIGHT[1:]]
    assert (
        0.2 < p(RIGHT, nearly) < 0.5
    )  # the sentence in which they differ is often not drawn at all: (29/30)³⁰
    assert p(RIGHT, nearly) == p(RIGHT, nearly)


def test_case_matters_unless_lowercased():
    shouted = [text.upper() for text in RIGHT]
    assert p(shouted, WRONG) == 1
    assert p(shouted, WRONG, lower=True) == 1 / 1001


def test_any_of_several_references_counts():
    scores = caption_scores(
        ["a cat", "two dogs run", "a bird"], [["the cat", "a cat"], ["two dogs run"], ["a fish"]]
    )
    assert 80 < scores["bleu_1"] < 90  # six words of seven
    assert scores["bleu_signature"].startswith("nrefs:")


def test_one_reference_each_equals_the_scores_of_translations():
    ours, theirs = (
        corpus_scores(RIGHT[:5], WRONG[:5]),
        caption_scores(RIGHT[:5], [[w] for w in WRONG[:5]]),
    )
    assert ours.items() <= theirs.items()


def test_the_score_of_all_examples_is_that_of_sacrebleu():
    assert abs(bleu(WRONG, REFERENCES).value() - caption_scores(WRONG, REFERENCES)["bleu"]) < 1e-9
