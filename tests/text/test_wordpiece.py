import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library
from tokenizers import models
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from seqlab.errors import BundleError, DataError, UsageError
from seqlab.text import (
    EOS,
    MASK,
    PAD,
    SEP,
    SOS,
    SPECIALS,
    UNK,
    Normaliser,
    WordPieceTokenizer,
    from_json,
    learn,
)

TEXTS = [
    "the cat sat on the mat, the cat",
    "un chat noir, café crème",
    "walking talking walked talked",
    "日本語 日本",
]
LEARNT = learn("wordpiece", TEXTS, normaliser=Normaliser("none", lower=True), size=200)


def tokenizer_of(*pieces, lower=False, **flags):
    return WordPieceTokenizer([*SPECIALS, *pieces], Normaliser("none", lower), **flags)


def pieces_of(tokenizer, text):
    return tokenizer.pieces(tokenizer.encode(text))


def longest_first(word, pieces):
    """The rule of WordPiece in its plainest form: the longest piece that fits, or the word is unknown as a whole."""
    cut, start = [], 0
    while start < len(word):
        for end in range(len(word), start, -1):
            piece = ("##" if start else "") + word[start:end]
            if piece in pieces:
                cut, start = [*cut, piece], end
                break
        else:
            return [SPECIALS[UNK]]
    return cut


def test_the_longest_piece_comes_first():
    tokenizer = tokenizer_of("un", "##aff", "##able", "##a", "a", "affable")
    assert pieces_of(tokenizer, "unaffable affable una") == [
        "un",
        "##aff",
        "##able",
        "affable",
        "un",
        "##a",
    ]
    assert pieces_of(tokenizer, "unb una") == ["<unk>", "un", "##a"]


@given(
    st.sets(
        st.builds(str.__add__, st.sampled_from(["", "##"]), st.text("abc", min_size=1, max_size=3)),
        min_size=1,
    ),
    st.text("abcd", min_size=1, max_size=8),
)
def test_words_are_cut_by_the_rule(pieces, word):
    assert pieces_of(tokenizer_of(*sorted(pieces)), word) == longest_first(word, pieces)


def test_a_word_beyond_a_hundred_characters_is_unknown():
    tokenizer = tokenizer_of("a", "##a")
    assert tokenizer.encode("a" * 100) == [6, *[7] * 99]
    assert tokenizer.encode("a" * 101) == [UNK]


def test_a_name_of_a_special_token_is_cut_like_any_text():
    """Even where a vocabulary has such a piece, as BERT's have: punctuation always stands by itself."""
    tokenizer = tokenizer_of("[CLS]", "<unk>", "[", "]", "CLS", "<", ">", "unk", "MASK")
    assert pieces_of(tokenizer, "[CLS]<unk>[MASK]") == [
        "[",
        "CLS",
        "]",
        "<",
        "unk",
        ">",
        "[",
        "MASK",
        "]",
    ]


def test_bert_cleans_up_after_our_normaliser():
    pieces = ("cafe", "café", "日", "本", "日本", "ab", "a", "b")
    assert pieces_of(tokenizer_of(*pieces, lower=True), "CAFÉ 日本 a\u200bb") == [
        "cafe",
        "日",
        "本",
        "ab",
    ]
    assert pieces_of(tokenizer_of(*pieces), "café") == ["café"]
    assert pieces_of(tokenizer_of(*pieces, lower=True, strip_accents=False), "CAFÉ") == ["café"]
    assert pieces_of(tokenizer_of(*pieces, strip_accents=True), "café") == ["cafe"]
    assert pieces_of(tokenizer_of(*pieces, space_ideographs=False), "日本") == ["日本"]
    assert pieces_of(tokenizer_of(*pieces, clean=False), "a\u200bb") == ["<unk>"]


@given(st.text(st.characters(exclude_categories=("Cs",), exclude_characters="Σ")))
def test_texts_are_cut_as_by_the_library(text):
    """With BERT's own rules. Only a capital sigma that ends a word differs: ours is ς, as in the first BERT."""
    library = Library(
        models.WordPiece({piece: n for n, piece in enumerate(LEARNT.vocabulary)}, unk_token="<unk>")
    )
    library.normalizer, library.pre_tokenizer = BertNormalizer(lowercase=True), BertPreTokenizer()
    assert LEARNT.encode(text) == library.encode(text).ids


def test_pieces_are_joined_to_words_again():
    tokenizer = tokenizer_of("walk", "##ing", "##s", ",", "he", "##", "#")
    ids = tokenizer.encode("he walks, walking")
    assert tokenizer.decode([SOS, *ids, EOS, PAD]) == "he walks, walking"
    assert tokenizer.decode([MASK, 7, SEP]) == "[MASK]ing [SEP]"
    assert tokenizer.decode([7, 6]) == "ing walk"
    assert tokenizer.decode([6, 11]) == "walk ##"


def test_learning_keeps_size_and_smallest_count():
    for size in (7, 8, 9, 30, 60):
        assert len(learn("wordpiece", TEXTS, normaliser=Normaliser(), size=size)) == size
    often = learn("wordpiece", TEXTS, normaliser=Normaliser(), min_count=3)
    assert "the" in often.vocabulary
    assert "sat" not in often.vocabulary
    assert often.encode("é") == [UNK]
    assert pieces_of(learn("wordpiece", TEXTS, normaliser=Normaliser()), "the cat, walking") == [
        "the", "cat", ",", "walking",
    ]  # fmt: skip


def test_learning_gives_the_same_in_every_process():
    """The library alone does not: it numbers the characters inside of words by chance."""
    code = "import sys, json; from seqlab.text import learn, Normaliser; texts = json.load(sys.stdin); "
    code += (
        "print(json.dumps(learn('wordpiece', texts, normaliser=Normaliser(), size=150).vocabulary))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(TEXTS), capture_output=True, text=True
    )
    assert (
        json.loads(run.stdout)
        == learn("wordpiece", TEXTS, normaliser=Normaliser(), size=150).vocabulary
    )


def test_nothing_to_learn_from():
    with pytest.raises(DataError, match="the vocabulary would be empty"):
        learn("wordpiece", ["", " "], normaliser=Normaliser())
    with pytest.raises(UsageError, match="no room besides its 6 special tokens"):
        learn("wordpiece", TEXTS, normaliser=Normaliser(), size=6)


@pytest.mark.parametrize("flag", ["clean", "strip_accents", "space_ideographs"])
def test_flags_are_stored(flag):
    tokenizer = tokenizer_of("a", lower=True, **{flag: False})
    stored = json.loads(json.dumps(tokenizer.to_json()))
    assert [name for name, value in stored.items() if value is False] == [flag]
    assert getattr(from_json(stored), flag) is False


STORED = tokenizer_of("a", "##b").to_json()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clean": 1}, "'clean' must be true or false, not '1'"),
        ({"strip_accents": None}, "'strip_accents' must be true or false"),
        ({"library": {}}, "does not belong to it: 'library'"),
        ({"vocabulary": {}}, "'vocabulary' must be a list"),
        ({"vocabulary": ["a"]}, "does not begin with <pad>"),
        ({"vocabulary": [*SPECIALS, "a", "a"]}, "entry 1 is repeated"),
        ({"vocabulary": [*SPECIALS, ""]}, "empty piece, with id 6"),
        ({"vocabulary": [*SPECIALS, 3]}, "entry 0 is not text"),
        (
            {"vocabulary": [*SPECIALS, "\ud800"]},
            "the tokenizers library refuses the stored vocabulary",
        ),
        ({"normaliser": {}}, "lacks its part 'form'"),
    ],
)
def test_malformed_tokenizers_are_refused(change, message):
    with pytest.raises(BundleError, match=message) as caught:
        from_json(STORED | change)
    assert "train again" in caught.value.hint
