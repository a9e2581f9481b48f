import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqlab.equations.bpe import learn, merge, pair_counts, segment

LECTURE = {"low": 5, "lower": 2, "newest": 6, "widest": 3}
END = "</w>"

corpora = st.dictionaries(st.text("abc", min_size=1, max_size=8), st.integers(1, 9), max_size=6)


def counts_at_each_merge(word_counts, merges, end_of_word=None):
    """How frequent each pair was at the moment when it was merged."""
    words = {
        (*word, end_of_word) if end_of_word else tuple(word): count
        for word, count in word_counts.items()
    }
    found = []
    for pair in merges:
        found.append(pair_counts(words)[pair])
        words = merge(words, pair)
    return found


def test_the_lectures_pairs():
    """W5: at the start es 9, st 9, we 8, lo 7, ow 7."""
    counts = pair_counts({tuple(word): count for word, count in LECTURE.items()})
    assert sorted(counts.values(), reverse=True)[:5] == [9, 9, 8, 7, 7]
    assert {"".join(pair): count for pair, count in counts.items() if count >= 7} == {
        "es": 9,
        "st": 9,
        "we": 8,
        "lo": 7,
        "ow": 7,
    }
    assert list(counts)[:4] == [("l", "o"), ("o", "w"), ("w", "e"), ("e", "r")]


def test_the_lectures_merges():
    """W5: e+s (9), es+t (9), l+o (7), lo+w (7)."""
    merges = learn(LECTURE, 4)
    assert merges == [("e", "s"), ("es", "t"), ("l", "o"), ("lo", "w")]
    assert counts_at_each_merge(LECTURE, merges) == [9, 9, 7, 7]


def test_with_an_end_of_word_the_third_merge_is_est_and_the_end():
    merges = learn(LECTURE, 3, end_of_word=END)
    assert merges == [("e", "s"), ("es", "t"), ("est", END)]
    assert counts_at_each_merge(LECTURE, merges, END) == [9, 9, 9]


def test_an_unknown_word_is_split_into_known_symbols():
    assert segment("lowest", learn(LECTURE, 4)) == ("low", "est")
    assert segment("lowest", learn(LECTURE, 5, end_of_word=END), end_of_word=END) == (
        "low",
        "est" + END,
    )
    assert segment("", learn(LECTURE, 4)) == ()


def test_pairs_are_merged_from_the_left_without_overlap():
    assert merge({("a",) * 5: 2}, ("a", "a")) == {("aa", "aa", "a"): 2}


def test_words_that_become_the_same_are_counted_together():
    assert merge({("a", "b"): 2, ("ab",): 3}, ("a", "b")) == {("ab",): 5}


def test_learning_stops_when_every_word_is_one_symbol():
    assert learn({"abc": 1}, 100) == [("a", "b"), ("ab", "c")]
    assert learn({"a": 1}, 100) == []
    assert learn({}, 100) == []


@given(corpora, st.integers(0, 10), st.sampled_from([None, END]))
def test_segments_spell_the_word_and_equal_those_of_learning(word_counts, num_merges, end_of_word):
    merges = learn(word_counts, num_merges, end_of_word=end_of_word)
    left = {
        (*word, end_of_word) if end_of_word else tuple(word): count
        for word, count in word_counts.items()
    }
    for pair in merges:
        left = merge(left, pair)
    segmented = {
        segment(word, merges, end_of_word=end_of_word): count for word, count in word_counts.items()
    }
    assert segmented == left
    assert ["".join(symbols) for symbols in segmented] == [
        word + (end_of_word or "") for word in word_counts
    ]


@given(corpora.filter(lambda corpus: any(len(word) > 1 for word in corpus)))
def test_each_merge_takes_a_most_frequent_pair(word_counts):
    counts = pair_counts({tuple(word): count for word, count in word_counts.items()})
    (best,) = learn(word_counts, 1)
    assert counts[best] == max(counts.values())
    assert best == next(pair for pair, count in counts.items() if count == max(counts.values()))


@pytest.mark.parametrize("order", [["ab", "cd"], ["cd", "ab"]])
def test_among_equally_frequent_pairs_the_first_is_merged(order):
    assert learn(dict.fromkeys(order, 1), 1) == [tuple(order[0])]
