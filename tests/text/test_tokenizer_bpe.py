import copy
import json
import os
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library
from tokenizers.pre_tokenizers import ByteLevel

from seqlab.equations import bpe as equations
from seqlab.errors import BundleError, UsageError
from seqlab.text import SPECIALS, BPETokenizer, Normaliser, from_json, learn
from seqlab.text.bpe import SMALLEST, _byte_of

LOWEST = Counter({"low": 5, "lower": 2, "newest": 6, "widest": 3})
TEXTS = [
    "the cat sat on the mat, the cat",
    "der Hund läuft, die Hündin läuft",
    "日本語 😀 e\u0301 é",
]
ENOUGH = 10_000


def train(texts, size=ENOUGH, **options):
    return BPETokenizer.learn(
        texts, **{"normaliser": Normaliser(), "size": size, "min_count": 1} | options
    )


def test_the_first_merges_are_those_of_the_lecture():
    """W5: e+s, es+t, l+o, lo+w."""
    expected = [("e", "s"), ("es", "t"), ("l", "o"), ("lo", "w")]
    merges = train(LOWEST.elements(), SMALLEST + 4).merges
    assert merges == expected == equations.learn(LOWEST, 4)


@given(
    st.dictionaries(
        st.text("abcd", min_size=1, max_size=8), st.integers(1, 5), min_size=1, max_size=6
    )
)
def test_every_merge_is_of_a_most_frequent_pair_and_words_are_cut_as_by_the_equations(counts):
    """Library and equations break ties differently, so each merge is compared by its count."""
    tokenizer = train(Counter(counts).elements())
    words = {tuple(word): count for word, count in counts.items()}
    for pair in tokenizer.merges:
        pairs = equations.pair_counts(words)
        assert pairs[pair] == max(pairs.values())
        words = equations.merge(words, pair)
    assert not equations.pair_counts(words)

    for word in [*counts, "abcd", "ddcc"]:
        assert tuple(tokenizer.pieces(tokenizer.encode(word))) == equations.segment(
            word, tokenizer.merges
        )


def test_size_and_smallest_count_are_kept():
    assert len(train(TEXTS, SMALLEST)) == SMALLEST
    assert len(train(TEXTS, SMALLEST + 5)) == SMALLEST + 5
    assert len(train(TEXTS, min_count=99)) == SMALLEST
    with pytest.raises(UsageError, match="cannot be as small as 261"):
        train(TEXTS, SMALLEST - 1)


def test_pieces_are_readable():
    tokenizer = train(["the cat"] * 3)
    assert tokenizer.pieces(tokenizer.encode("the cat")) == ["the", "␣cat"]
    assert tokenizer.pieces(tokenizer.encode("\n€")) == ["↵", "\\xe2", "\\x82", "\\xac"]


def test_the_letters_for_bytes_are_the_librarys():
    assert set(_byte_of()) == set(ByteLevel.alphabet())
    assert sorted(_byte_of().values()) == list(range(256))


@given(st.text())
def test_our_decoding_is_the_librarys(text):
    tokenizer = train(TEXTS)
    library = Library.from_str(json.dumps(tokenizer.to_json()["library"]))
    ids = tokenizer.encode(text)
    assert library.encode(Normaliser()(text)).ids == ids
    assert library.decode(ids) == tokenizer.decode(ids)


def test_names_of_special_tokens_are_text_even_where_they_are_frequent():
    tokenizer = train(["<eos> [MASK]<pad>[SEP]<unk><sos>"] * 50)
    text = "x<eos>[MASK] <pad>"
    for each in (tokenizer, from_json(json.loads(json.dumps(tokenizer.to_json())))):
        assert min(each.encode(text)) >= len(SPECIALS)
        assert each.decode(each.encode(text)) == text


@pytest.mark.parametrize("seed", ["0", "1"])
def test_training_is_deterministic(seed):
    """The same merges in another process, whatever the order of its hashes."""
    code = (
        "import json, sys; from seqlab.text import learn, Normaliser;"
        "texts = json.load(sys.stdin);"
        "print(json.dumps(learn('bpe', texts, normaliser=Normaliser(), size=330).to_json()))"
    )
    other = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(TEXTS * 3),
        env=os.environ | {"PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (
        json.loads(other.stdout)
        == learn("bpe", TEXTS * 3, normaliser=Normaliser(), size=330).to_json()
    )
    assert other.stderr == ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_neither_waits_nor_warns():
    code = """
import os
from seqlab.text import learn, Normaliser
tokenizer = learn("bpe", ["a few words", "and more"] * 500, normaliser=Normaliser())
rows = tokenizer.encode_all(["a few more"] * 1000)
child = os.fork()
if child == 0:
    os._exit(tokenizer.encode_all(["a few more"] * 1000) != rows)
assert os.waitpid(child, 0)[1] == 0
"""
    env = {name: value for name, value in os.environ.items() if name != "TOKENIZERS_PARALLELISM"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


STORED = train(LOWEST.elements(), SMALLEST + 4).to_json()


def changed(*path, value):
    """The stored tokenizer with one part replaced, or without it where the value is `...`."""
    data = copy.deepcopy(STORED)
    part = data
    for key in path[:-1]:
        part = part[key]
    if value is ...:
        del part[path[-1]]
    else:
        part[path[-1]] = value
    return data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (changed("library", value=...), "lacks its part 'library'"),
        (changed("library", value="{}"), "'library' must be an object"),
        (changed("library", value={}), "no model of type 'BPE'"),
        (changed("library", "model", "type", value="WordPiece"), "no model of type 'BPE'"),
        (changed("library", "model", value=None), "no model of type 'BPE'"),
        (changed("library", "pre_tokenizer", value=None), "does not split into bytes"),
        (
            changed("library", "pre_tokenizer", "add_prefix_space", value=True),
            "adds a space in front",
        ),
        (changed("library", "pre_tokenizer", "use_regex", value=False), "merges across words"),
        (changed("library", "normalizer", value={"type": "Lowercase"}), "'normalizer'"),
        (
            changed("library", "added_tokens", value=[{"id": 3, "content": "<eos>"}]),
            "'added_tokens'",
        ),
        (changed("library", "model", "dropout", value=0.1), "'dropout'"),
        (changed("library", "model", "vocab", value=...), "a whole number for each piece"),
        (changed("library", "model", "vocab", value=["a"]), "a whole number for each piece"),
        (changed("library", "model", "vocab", "es", value="262"), "a whole number for each piece"),
        (changed("library", "model", "vocab", "es", value=...), "not 0 to 264, each once"),
        (changed("library", "model", "vocab", "es", value=7), "each once"),
        (changed("library", "model", "vocab", "es", value=-1), "each once"),
        (changed("library", "model", "vocab", value={"a": 0}), "must give <pad> the id 0"),
        (
            changed("library", "model", "vocab", value={n: i for i, n in enumerate(SPECIALS)}),
            "lacks 256 of the 256",
        ),
        (changed("library", "model", "vocab", "e s", value=266), "spells no bytes: 'e s'"),
        (changed("library", "model", "vocab", "", value=266), "spells no bytes: ''"),
        (changed("library", "model", "merges", value=...), "no list of merges"),
        (changed("library", "model", "merges", 0, value="e s"), "merge 0 .* is not a pair"),
        (
            changed("library", "model", "merges", 0, value=["e", "s", "t"]),
            "merge 0 .* is not a pair",
        ),
        (changed("library", "model", "merges", 0, value=["e", 5]), "merge 0 .* is not a pair"),
        (changed("library", "model", "merges", 1, value=["q", "z"]), "merge 1 .* uses 'qz'"),
        (
            changed("library", "model", "merges", 1, value=["<eo", "s>"]),
            "merge 1 .* not a piece of text",
        ),
        (changed("library", "model", "merges", 1, value=["e", "s"]), "the same merge twice"),
    ],
)
def test_a_malformed_file_is_refused(data, message):
    with pytest.raises(BundleError, match=message) as caught:
        from_json(data)
    assert "train again" in caught.value.hint


class Panic(BaseException):
    """Like the library's own, which is no Exception."""


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (Panic("index out of bounds"), BundleError),
        (KeyboardInterrupt(), KeyboardInterrupt),
        (SystemExit(), SystemExit),
    ],
)
def test_a_panic_of_the_library_is_an_odd_file_but_an_interrupt_is_not(
    monkeypatch, raised, expected
):
    def fail(vocabulary, merges):
        raise raised

    monkeypatch.setattr("seqlab.text.bpe._assemble", fail)
    with pytest.raises(expected):
        from_json(STORED)
