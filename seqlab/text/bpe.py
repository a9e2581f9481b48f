"""Text as byte pairs merged by frequency, learnt and run by the `tokenizers` library (its oracle: equations/bpe)."""

import json
from collections.abc import Iterable
from functools import cache
from typing import Any, final

from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, pre_tokenizers, trainers

from seqlab.errors import UsageError, shorten
from seqlab.text import vocabulary as vocabularies
from seqlab.text.vocabulary import SPECIALS, Normaliser, odd, readable

Merge = tuple[str, str]

SMALLEST = len(SPECIALS) + 256


@final
class BPETokenizer:
    """Frequent words are one id, rare ones several, and any text at all can be spelled: all 256 bytes are ids."""

    kind = "bpe"
    encode = vocabularies.library_encode
    encode_all = vocabularies.library_encode_all
    decode = vocabularies.decode_bytes
    pieces = vocabularies.pieces
    __len__ = vocabularies.length

    def __init__(self, library: Library, normaliser: Normaliser) -> None:
        self.normaliser = normaliser
        self._library = library
        ids = library.get_vocab()
        spellings = sorted(ids, key=ids.__getitem__)[len(SPECIALS) :]
        self._bytes, self.vocabulary = vocabularies.with_specials(map(_to_bytes, spellings))

    @classmethod
    def learn(
        cls, texts: Iterable[str], *, normaliser: Normaliser, size: int, min_count: int
    ) -> "BPETokenizer":
        """Merges until there are `size` ids, or no pair is left that was seen `min_count` times."""
        if size < SMALLEST:
            raise UsageError(
                f"a byte-level vocabulary cannot be as small as {size}: 256 bytes and {len(SPECIALS)} special tokens",
                hint=f"choose a size of at least {SMALLEST}, or the kind 'characters'.",
            )
        library = _assemble({}, [])
        trainer = trainers.BpeTrainer(
            vocab_size=size,
            min_frequency=min_count,
            special_tokens=list(SPECIALS),
            initial_alphabet=sorted(_byte_of()),
            show_progress=False,
        )
        library.train_from_iterator((normaliser(text) for text in texts), trainer)
        learnt = json.loads(library.to_str())["model"]
        return cls(
            _assemble(learnt["vocab"], [(left, right) for left, right in learnt["merges"]]),
            normaliser,
        )

    @property
    def merges(self) -> list[Merge]:
        """The merges in the order in which they were learnt, spelled as the library spells bytes."""
        return [(left, right) for left, right in self.to_json()["library"]["model"]["merges"]]

    def spelled(self, text: str) -> list[tuple[str, ...]]:
        """The words that merges stay within, each as its bytes, spelled as the library spells them."""
        splitter = self._library.pre_tokenizer
        assert splitter is not None
        return [tuple(word) for word, _ in splitter.pre_tokenize_str(self.normaliser(text))]

    def to_json(self) -> dict[str, Any]:
        """The library's own JSON inside ours, so that other programs can read that part."""
        return vocabularies.as_json(self, library=json.loads(self._library.to_str()))

    @classmethod
    def from_json(cls, data: object) -> "BPETokenizer":
        """Takes vocabulary and merges and builds the rest anew: a file cannot bring its own rules for splitting."""
        normaliser, stored = vocabularies.from_parts(data, "BPE", library=dict)
        model = _checked(stored["library"])
        vocabulary = _read_vocabulary(model.get("vocab"))
        merges = _read_merges(model.get("merges"), vocabulary)
        with vocabularies.library_reads("merges"):
            return cls(_assemble(vocabulary, merges), normaliser)


def _assemble(vocabulary: dict[str, int], merges: list[Merge]) -> Library:
    """The library's tokenizer, not told of the special tokens: it would look for their names in the text."""
    vocabularies.survive_forks()
    library = Library(models.BPE(vocab=vocabulary, merges=merges))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    return library


def _checked(stored: dict[str, Any]) -> dict[str, Any]:
    """The stored model; its tokenizer splits and spells as ours does, or its merges would mean something else."""
    model, splitter = stored.get("model"), stored.get("pre_tokenizer")
    if not isinstance(model, dict) or model.get("type") != "BPE":
        raise odd("the stored BPE tokenizer has no model of type 'BPE'")
    if (
        not isinstance(splitter, dict)
        or splitter.get("type") != "ByteLevel"
        or splitter.get("add_prefix_space")
    ):
        raise odd("the stored BPE tokenizer does not split into bytes, or adds a space in front")
    if splitter.get("use_regex") is False:
        raise odd("the stored BPE tokenizer merges across words")
    for key in ("normalizer", "post_processor", "added_tokens", "truncation", "padding"):
        if stored.get(key):
            raise odd(f"the stored BPE tokenizer has a rule of its own: '{key}'")
    for key in (
        "dropout",
        "unk_token",
        "continuing_subword_prefix",
        "end_of_word_suffix",
        "ignore_merges",
    ):
        if model.get(key):
            raise odd(f"the stored BPE model has a rule of its own: '{key}'")
    return model


def _read_vocabulary(stored: object) -> dict[str, int]:
    """Spelling -> id: the ids without gaps, the special ones first, every byte among the others."""
    if not isinstance(stored, dict) or not all(
        isinstance(key, str) and type(stored[key]) is int for key in stored
    ):
        raise odd("the vocabulary of the BPE tokenizer must give a whole number for each piece")
    if sorted(stored.values()) != list(range(len(stored))):
        raise odd(f"the ids of the BPE vocabulary are not 0 to {len(stored) - 1}, each once")
    for index, name in enumerate(SPECIALS):
        if stored.get(name) != index:
            raise odd(f"the BPE vocabulary must give {name} the id {index}, not {stored.get(name)}")
    alphabet = _byte_of().keys()
    if missing := alphabet - stored.keys():
        raise odd(f"the BPE vocabulary lacks {len(missing)} of the 256 bytes")
    for piece in stored:
        if piece not in SPECIALS and not (piece and alphabet >= set(piece)):
            raise odd(f"the BPE vocabulary has a piece that spells no bytes: {shorten(piece)}")
    return stored


def _read_merges(stored: object, vocabulary: dict[str, int]) -> list[Merge]:
    """Pairs of pieces whose halves and whole are in the vocabulary, none of them special."""
    if not isinstance(stored, list):
        raise odd("the BPE tokenizer has no list of merges")
    merges: list[Merge] = []
    for position, pair in enumerate(stored):
        if not isinstance(pair, list) or [type(half) for half in pair] != [str, str]:
            raise odd(
                f"merge {position} of the BPE tokenizer is not a pair of pieces: {shorten(str(pair))}"
            )
        left, right = pair
        for piece in (left, right, left + right):
            if vocabulary.get(piece, 0) < len(SPECIALS):
                raise odd(
                    f"merge {position} of the BPE tokenizer uses {shorten(piece)}, which is no piece of text"
                )
        merges.append((left, right))
    if len(set(merges)) != len(merges):
        raise odd("the BPE tokenizer has the same merge twice")
    return merges


@cache
def _byte_of() -> dict[str, int]:
    """The library's letter for each byte -> the byte: itself where Latin-1 can print it, else from U+0100 on."""
    printed = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [value for value in range(256) if value not in printed]
    return {chr(value): value for value in sorted(printed)} | {
        chr(256 + n): value for n, value in enumerate(hidden)
    }


def readable_spelling(piece: str) -> str:
    """A piece in the library's letters, as a person reads it."""
    return vocabularies.visible(readable(_to_bytes(piece)))


def _to_bytes(spelling: str) -> bytes:
    return bytes(_byte_of()[character] for character in spelling)
