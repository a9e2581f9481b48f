"""What holds for every kind, and what is particular to characters, words and bytes."""

import json
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqlab.errors import BundleError, DataError, UsageError
from seqlab.text import (
    EOS,
    KINDS,
    MASK,
    PAD,
    SEP,
    SOS,
    SPECIALS,
    UNK,
    Normaliser,
    from_json,
    learn,
    learn_words,
    vocabulary_text,
)

CORPUS = [
    "The dog's bone (old) isn't here.",
    "Where is the dog?",
    "Café crème, naïve: 3 €\t!",
    "the the\nthe",
]
ANY = st.text(st.characters(exclude_categories=()))
NORMALISERS = st.builds(
    Normaliser,
    form=st.sampled_from(["NFC", "NFKC", "none"]),
    lower=st.booleans(),
    letters_only=st.booleans(),
)
TOKENIZERS = {kind: learn(kind, CORPUS, normaliser=Normaliser(), size=400) for kind in KINDS}
every_kind = pytest.mark.parametrize("tokenizer", TOKENIZERS.values(), ids=TOKENIZERS)


def through_json(tokenizer):
    return from_json(json.loads(json.dumps(tokenizer.to_json())))


@every_kind
def test_special_ids_are_the_same_everywhere(tokenizer):
    assert (PAD, UNK, SOS, EOS, SEP, MASK) == (0, 1, 2, 3, 4, 5)
    assert tuple(tokenizer.vocabulary[:6]) == SPECIALS
    assert tokenizer.pieces(range(6)) == list(SPECIALS)
    assert len(tokenizer) == len(tokenizer.vocabulary) <= 400


@every_kind
def test_decoding_drops_what_frames_a_text_and_shows_the_rest(tokenizer):
    ids = tokenizer.encode("dog")
    assert tokenizer.decode([SOS, *ids, EOS, PAD, PAD]) == "dog"
    shown = tokenizer.decode([SOS, UNK, *ids, SEP, MASK, EOS])
    assert shown.replace(" ", "") == "<unk>dog[SEP][MASK]"


@every_kind
@given(text=ANY)
def test_no_text_spells_a_special_token(tokenizer, text):
    for name in SPECIALS:
        assert not set(tokenizer.encode(f"{text}{name}{name} {text}")) & {PAD, SOS, EOS, SEP, MASK}


@every_kind
def test_empty_text(tokenizer):
    assert tokenizer.encode("") == []
    assert tokenizer.decode([]) == ""
    assert tokenizer.encode_all([]) == []
    assert tokenizer.encode_all(["", "dog", ""]) == [[], tokenizer.encode("dog"), []]


@every_kind
@given(texts=st.lists(ANY, max_size=4))
def test_many_texts_are_encoded_as_one_by_one(tokenizer, texts):
    assert tokenizer.encode_all(texts) == [tokenizer.encode(text) for text in texts]


@every_kind
@given(text=ANY)
def test_json_and_back_behaves_the_same(tokenizer, text):
    copy = through_json(tokenizer)
    ids = tokenizer.encode(text)
    assert copy.kind == tokenizer.kind
    assert copy.normaliser == tokenizer.normaliser
    assert copy.vocabulary == tokenizer.vocabulary
    assert copy.encode(text) == ids
    assert copy.decode(ids) == tokenizer.decode(ids)
    assert copy.pieces(ids) == tokenizer.pieces(ids)


@pytest.mark.parametrize("kind", KINDS)
def test_normalisation_is_stored_with_the_tokenizer(kind):
    normaliser = Normaliser(form="NFKC", lower=True)
    tokenizer = through_json(learn(kind, CORPUS, normaliser=normaliser))
    assert tokenizer.normaliser == normaliser
    assert tokenizer.encode("THE DOG") == tokenizer.encode("the dog")
    assert UNK not in tokenizer.encode("CAFE\u0301")


@pytest.mark.parametrize("kind", ["bytes", "bpe"])
@given(text=ANY, normaliser=NORMALISERS)
def test_any_text_comes_back(kind, text, normaliser):
    tokenizer = TOKENIZERS[kind]
    expected = Normaliser()(text)
    assert tokenizer.decode(tokenizer.encode(text)) == expected

    other = from_json(tokenizer.to_json() | {"normaliser": normaliser.to_json()})
    assert other.decode(other.encode(text)) == normaliser(text)


@given(text=st.text(), normaliser=NORMALISERS)
def test_seen_characters_come_back(text, normaliser):
    if not normaliser(text):
        return
    tokenizer = learn("characters", [text], normaliser=normaliser)
    assert tokenizer.decode(tokenizer.encode(text)) == normaliser(text)


@every_kind
def test_a_very_long_line(tokenizer):
    line = "the dog " * 50_000 + "a" * 200_000
    ids = tokenizer.encode(line)
    assert len(tokenizer.decode(ids)) > 200_000


@every_kind
def test_the_vocabulary_is_readable(tokenizer):
    lines = vocabulary_text(tokenizer).splitlines()
    assert len(lines) == len(tokenizer)
    assert lines[3] == "3\t<eos>"
    assert all(
        line.isprintable() for line in vocabulary_text(tokenizer).replace("\t", "").split("\n")
    )
    assert not any(" " in line for line in lines)


def test_pieces_are_visible():
    text = "a \n\t\u00a0\u0301\u200d"
    tokenizer = learn("characters", [text], normaliser=Normaliser(form="none"))
    assert tokenizer.pieces(tokenizer.encode(text)) == [
        "a",
        "␣",
        "↵",
        "⇥",
        "\\xa0",
        "◌\u0301",
        "\\u200d",
    ]


def test_characters_are_ranked_by_count_and_then_by_code_point():
    tokenizer = learn("characters", ["cabbba", "c\u00e9"], normaliser=Normaliser())
    assert tokenizer.vocabulary[6:] == ["b", "a", "c", "é"]
    assert learn("characters", ["cabbba"], normaliser=Normaliser(), min_count=2).vocabulary[6:] == [
        "b",
        "a",
    ]
    assert learn("characters", ["cabbba"], normaliser=Normaliser(), size=7).vocabulary[6:] == ["b"]


def test_a_character_never_seen_is_unknown():
    tokenizer = learn("characters", ["abc"], normaliser=Normaliser())
    assert tokenizer.decode(tokenizer.encode("a😀c")) == "a<unk>c"


def test_words_and_punctuation():
    tokenizer = TOKENIZERS["words"]
    ids = tokenizer.encode("The dog's bone (old) isn't here.")
    assert tokenizer.pieces(ids) == ["The", "dog's", "bone", "(", "old", ")", "isn't", "here", "."]
    assert tokenizer.decode(ids) == "The dog's bone (old) isn't here."
    assert tokenizer.decode(tokenizer.encode("  the \n cat , old")) == "the <unk>, old"


def test_words_stay_whole_in_scripts_with_marks_and_joiners():
    text = "हिन्दी भाषा, می‌خواهم ❤️ l’été"
    tokenizer = learn("words", [text], normaliser=Normaliser())
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert len(tokenizer.encode(text)) == 6


@given(st.text())
def test_splitting_loses_only_spaces(text):
    tokenizer = learn("words", [text, "."], normaliser=Normaliser(form="none"))
    words = [tokenizer.vocabulary[index] for index in tokenizer.encode(text)]
    assert "".join(words) == "".join(text.split())


def test_ready_made_words_are_not_split():
    """A tagger's file has cut its words already: one id each, whatever they look like."""
    words = ["do", "n't", "10 000", "[MASK]", "...", "New-York", "do"]
    tokenizer = through_json(
        learn_words(Counter(words), normaliser=Normaliser(), size=100, min_count=1)
    )
    ids = tokenizer.encode_words(words)
    assert [tokenizer.vocabulary[index] for index in ids] == words
    assert min(ids) >= len(SPECIALS)
    assert tokenizer.encode_words(["never seen", "<pad>", ""]) == [UNK, UNK, UNK]


def test_ready_made_words_are_counted_after_normalisation():
    counts = Counter({"Dog": 1, "dog": 1, "Cat": 1})
    tokenizer = learn_words(counts, normaliser=Normaliser(lower=True), size=100, min_count=2)
    assert tokenizer.vocabulary[6:] == ["dog"]
    assert tokenizer.encode_words(["DOG", "cat"]) == [6, UNK]


def test_bytes_that_are_no_text_are_replaced():
    tokenizer = TOKENIZERS["bytes"]
    ids = tokenizer.encode("a😀")
    assert len(ids) == 5
    assert tokenizer.decode(ids[:-1]) == "a\ufffd"
    assert tokenizer.pieces(ids) == ["a", "\\xf0", "\\x9f", "\\x98", "\\x80"]


def test_an_unknown_kind_gets_the_nearest_name():
    with pytest.raises(UsageError, match="'byts'") as caught:
        learn("byts", CORPUS, normaliser=Normaliser())
    assert "'bytes'" in caught.value.hint


@pytest.mark.parametrize("kind", ["characters", "words"])
def test_nothing_to_learn_from(kind):
    with pytest.raises(DataError, match="the vocabulary would be empty"):
        learn(kind, ["", ""], normaliser=Normaliser())
    with pytest.raises(DataError, match="none seen 9 times"):
        learn(kind, CORPUS[:1], normaliser=Normaliser(), min_count=9)
    with pytest.raises(UsageError, match="no room besides its 6 special tokens"):
        learn(kind, CORPUS, normaliser=Normaliser(), size=6)


NORMALISER = Normaliser().to_json()


def stored(kind, *pieces, specials=SPECIALS):
    return {"kind": kind, "normaliser": NORMALISER, "vocabulary": [*specials, *pieces]}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "its 'kind'"),
        ({}, "its 'kind'"),
        ({"kind": 3}, "its 'kind'"),
        ({"kind": "wordss"}, "named 'wordss'; did you mean 'words'"),
        ({"kind": "words", "normaliser": NORMALISER}, "lacks its part 'vocabulary'"),
        ({"kind": "bytes"}, "lacks its part 'normaliser'"),
        ({"kind": "bytes", "normaliser": {}}, "lacks its part 'form'"),
        (
            {"kind": "bytes", "normaliser": NORMALISER, "vocabulary": []},
            "does not belong to it: 'vocabulary'",
        ),
        (stored("words") | {"vocabulary": "abc"}, "'vocabulary' must be a list"),
        (stored("words") | {"normaliser": None}, "'normaliser' must be an object"),
        (stored("words", "a", specials=SPECIALS[1:]), "does not begin with <pad>"),
        (stored("words", "a", specials=SPECIALS[::-1]), "does not begin with <pad>"),
        (stored("characters", "a", "b", "a"), "entry 2 is repeated: 'a'"),
        (stored("characters", "a", "bc"), "not one character: 'bc'"),
        (stored("characters", "a", ""), "empty piece, with id 7"),
        (stored("words", "a", 5), "entry 1 is not text"),
        (stored("words", "a", ["b"]), "entry 1 is not text"),
    ],
)
def test_malformed_tokenizers_are_refused(data, message):
    with pytest.raises(BundleError, match=message) as caught:
        from_json(data)
    assert "train again" in caught.value.hint


def test_text_needs_no_torch():
    code = "import sys, seqlab.text; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
