"""Text as byte pairs merged by frequency, learnt and run by the `tokenizers` library (its oracle: equations/bpe)."""

import json
from collections.abc import Iterable
from functools import cache
from typing import Any, final

from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, pre_tokenizers, trainers

from seqlab.errors import UsageError, shorten
from seqlab.text import vocabulary as vocabularies
from seqlab.text.vocabulary import SPECIALS, Normaliser, malformed, readable

Merge = tuple[str, str]

SMALLEST = len(SPECIALS) + 256


@final
class BPETokenizer:
    """Frequent words are one id, rare ones several; all 256 bytes are ids, so any text can be encoded."""

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
        """Merge pairs until there are `size` ids, or no pair is left that was seen `min_count` times."""
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
        """The merges in the order in which they were learnt, in the library's letters for bytes."""
        return [(left, right) for left, right in self.to_json()["library"]["model"]["merges"]]

    def spelled(self, text: str) -> list[tuple[str, ...]]:
        """Split a text into the words within which pairs are merged, each as the library's letters for its bytes."""
        splitter = self._library.pre_tokenizer
        assert splitter is not None
        return [tuple(word) for word, _ in splitter.pre_tokenize_str(self.normaliser(text))]

    def to_json(self) -> dict[str, Any]:
        """Return JSON that contains the library's own JSON, so that other programs can read that part."""
        return vocabularies.as_json(self, library=json.loads(self._library.to_str()))

    @classmethod
    def from_json(cls, data: object) -> "BPETokenizer":
        """Read vocabulary and merges, and build the rest anew, so that a file cannot bring its own splitting rules."""
        normaliser, stored = vocabularies.from_parts(data, "BPE", library=dict)
        model = _checked(stored["library"])
        vocabulary = _read_vocabulary(model.get("vocab"))
        merges = _read_merges(model.get("merges"), vocabulary)
        with vocabularies.library_reads("merges"):
            return cls(_assemble(vocabulary, merges), normaliser)


def _assemble(vocabulary: dict[str, int], merges: list[Merge]) -> Library:
    """Build the library's tokenizer, without the special tokens: it would recognise their names in the text."""
    vocabularies.survive_forks()
    library = Library(models.BPE(vocab=vocabulary, merges=merges))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    return library


def _checked(stored: dict[str, Any]) -> dict[str, Any]:
    """Return the stored model; refuse other rules for splitting, with which its merges have another meaning."""
    model, splitter = stored.get("model"), stored.get("pre_tokenizer")
    if not isinstance(model, dict) or model.get("type") != "BPE":
        raise malformed("the stored BPE tokenizer has no model of type 'BPE'")
    if (
        not isinstance(splitter, dict)
        or splitter.get("type") != "ByteLevel"
        or splitter.get("add_prefix_space")
    ):
        raise malformed(
            "the stored BPE tokenizer does not split into bytes, or adds a space in front"
        )
    if splitter.get("use_regex") is False:
        raise malformed("the stored BPE tokenizer merges across words")
    for key in ("normalizer", "post_processor", "added_tokens", "truncation", "padding"):
        if stored.get(key):
            raise malformed(f"the stored BPE tokenizer has a rule of its own: '{key}'")
    for key in (
        "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "ignore_merges",
    ):  # fmt: skip
        if model.get(key):
            raise malformed(f"the stored BPE model has a rule of its own: '{key}'")
    return model


def _read_vocabulary(stored: object) -> dict[str, int]:
    """Check the ids of the pieces: without gaps, the special tokens first, every byte among the others."""
    if not isinstance(stored, dict) or not all(
        isinstance(key, str) and type(stored[key]) is int for key in stored
    ):
        raise malformed(
            "the vocabulary of the BPE tokenizer must give a whole number for each piece"
        )
    if sorted(stored.values()) != list(range(len(stored))):
        raise malformed(f"the ids of the BPE vocabulary are not 0 to {len(stored) - 1}, each once")
    for index, name in enumerate(SPECIALS):
        if stored.get(name) != index:
            raise malformed(
                f"the BPE vocabulary must give {name} the id {index}, not {stored.get(name)}"
            )
    alphabet = _byte_of().keys()
    if missing := alphabet - stored.keys():
        raise malformed(f"the BPE vocabulary lacks {len(missing)} of the 256 bytes")
    for piece in stored:
        if piece not in SPECIALS and not (piece and alphabet >= set(piece)):
            raise malformed(
                f"the BPE vocabulary has a piece that spells no bytes: {shorten(piece)}"
            )
    return stored


def _read_merges(stored: object, vocabulary: dict[str, int]) -> list[Merge]:
    """Check the merges: pairs of pieces that are in the vocabulary, as is the merged piece; none of them is special."""
    if not isinstance(stored, list):
        raise malformed("the BPE tokenizer has no list of merges")
    merges: list[Merge] = []
    for position, pair in enumerate(stored):
        if not isinstance(pair, list) or [type(half) for half in pair] != [str, str]:
            raise malformed(
                f"merge {position} of the BPE tokenizer is not a pair of pieces: {shorten(str(pair))}"
            )
        left, right = pair
        for piece in (left, right, left + right):
            if vocabulary.get(piece, 0) < len(SPECIALS):
                raise malformed(
                    f"merge {position} of the BPE tokenizer uses {shorten(piece)}, which is not a piece of text"
                )
        merges.append((left, right))
    if len(set(merges)) != len(merges):
        raise malformed("the BPE tokenizer has the same merge twice")
    return merges


@cache
def _byte_of() -> dict[str, int]:
    """Map the library's letter for each byte to the byte: Latin-1 if it is printable, else letters from U+0100."""
    printed = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [value for value in range(256) if value not in printed]
    return {chr(value): value for value in sorted(printed)} | {
        chr(256 + n): value for n, value in enumerate(hidden)
    }


def readable_spelling(piece: str) -> str:
    """Return a piece in the library's letters as readable text."""
    return vocabularies.visible(readable(_to_bytes(piece)))


def _to_bytes(spelling: str) -> bytes:
    return bytes(_byte_of()[character] for character in spelling)
