import json

import pytest

from seqlab.errors import BundleError
from seqlab.text import SPECIALS, UNK, Normaliser, WordTokenizer, from_json, learn_words
from seqlab.text.words import classes, coarser, learn_endings

WORDS = {
    "walking": 1,
    "talking": 2,
    "Peking": 1,
    "Viking": 1,
    "the": 50,
    "walked": 1,
    "talked": 1,
    "1984": 1,
    "2001": 1,
}


@pytest.fixture
def tokenizer():
    return learn_words(WORDS, normaliser=Normaliser(), size=100, min_count=1, endings=3)


def spelled(tokenizer, *words):
    return tokenizer.pieces(tokenizer.encode_words(words))


@pytest.mark.parametrize(
    ("word", "finest", "coarsest"),
    [
        ("walking", "<a…ing>", "<a…>"),
        ("Viking", "<Aa…ing>", "<Aa…>"),
        ("NATO", "<AA…ato>", "<AA…>"),
        ("A", "<Aa…>", "<Aa…>"),
        ("well-known", "<a-a…own>", "<a-a…>"),
        ("B2B", "<0…0b>", "<0…>"),
        ("1984", "<0…000>", "<0…>"),
        ("?!", "<#…!>", "<#…>"),
        ("…", "<#…>", "<#…>"),
        ("Łódź", "<Aa…ódź>", "<Aa…>"),
    ],
)
def test_shapes_and_endings(word, finest, coarsest):
    found = list(classes(word, 3))
    assert (found[0], found[-1]) == (finest, coarsest)
    assert [coarser(name) for name in found] == [*found[1:], None]


def test_nothing_has_no_class():
    assert list(classes("", 3)) == []


def test_two_rare_words_make_a_class_and_finer_ones_come_later():
    names = learn_endings(WORDS, longest=3)
    assert {"<a…ing>", "<a…ked>", "<Aa…ing>", "<0…000>", "<a…>"} <= set(names)
    assert not any("he>" in name for name in names)  # "the" is not rare
    assert all(
        coarser(name) is None or names.index(coarser(name)) < names.index(name) for name in names
    )
    assert learn_endings({"walking": 1, "king": 11}, longest=3) == []


def test_an_unseen_word_is_the_finest_class_that_is_known(tokenizer):
    said = spelled(tokenizer, "the", "walking", "jumping", "jumped", "Boeing", "10,660", "?")
    assert said == ["the", "walking", "<a…ing>", "<a…ed>", "<Aa…ing>", "<0…000>", "<unk>"]
    assert tokenizer.encode("the jumping") == tokenizer.encode_words(["the", "jumping"])
    assert tokenizer.decode(tokenizer.encode_words(["the", "jumping"])) == "the <a…ing>"


def test_capitals_of_a_first_word_or_of_a_whole_one_may_be_left_out(tokenizer):
    assert spelled(tokenizer, "The", "The", "THE") == ["the", "<Aa…>", "the"]
    assert spelled(tokenizer, "Viking") == ["Viking"]


def test_each_id_falls_back_on_what_is_coarser(tokenizer):
    parents, pieces = tokenizer.parents(), tokenizer.vocabulary
    assert len(parents) == len(tokenizer)
    above = {
        piece: pieces[parent]
        for piece, parent in zip(pieces[len(SPECIALS) :], parents[len(SPECIALS) :], strict=True)
    }
    assert above["walking"] == "<a…ing>"
    assert above["<a…ing>"] == "<a…ng>"
    assert above["<a…>"] == above["<0…>"] == "<unk>"
    assert parents[UNK] == UNK


def test_a_text_cannot_spell_a_class(tokenizer):
    assert spelled(tokenizer, "<a…ing>") == ["<a…>"]  # a word like others that end in ">"


def test_what_was_stored_comes_back(tokenizer):
    again = from_json(json.loads(json.dumps(tokenizer.to_json())))
    words = ["The", "walking", "Boeing", "jumped", "x", "1066"]
    assert again.encode_words(words) == tokenizer.encode_words(words)
    assert again.vocabulary == tokenizer.vocabulary
    assert again.to_json() == tokenizer.to_json()


def test_without_endings_nothing_changes():
    plain = learn_words(WORDS, normaliser=Normaliser(), size=100, min_count=1)
    assert set(plain.to_json()) == {"kind", "normaliser", "vocabulary"}  # as older bundles have it
    assert plain.encode_words(["The", "THE", "jumping", "1066"]) == [UNK] * 4
    assert WordTokenizer.from_json(plain.to_json()).parents() == [UNK] * len(plain)


def test_a_changed_list_of_endings_is_refused(tokenizer):
    stored = tokenizer.to_json()
    with pytest.raises(BundleError, match="the endings: entry 1 is not text: '3'"):
        from_json(stored | {"endings": ["<a…>", 3]})
    with pytest.raises(BundleError, match="'endings' must be a list"):
        from_json(stored | {"endings": "ing"})
