"""Text as byte pairs merged by frequency, learnt and run by the `tokenizers` library (its oracle: equations/bpe)."""

import json
import os
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, final

from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, pre_tokenizers, trainers

from seqlab.errors import UsageError, shorten
from seqlab.text import vocabulary as vocabularies
from seqlab.text.vocabulary import SPECIALS, Normaliser, odd, parts, readable, special_bytes

Merge = tuple[str, str]

SMALLEST = len(SPECIALS) + 256


@final
class BPETokenizer:
    """Frequent words are one id, rare ones several, and any text at all can be spelled: all 256 bytes are ids."""

    kind: str = "bpe"

    def __init__(self, library: Library, normaliser: Normaliser) -> None:
        self.normaliser = normaliser
        self._library = library
        ids = library.get_vocab()
        spellings = sorted(ids, key=ids.__getitem__)
        self._bytes = [*special_bytes(), *(_to_bytes(spelling) for spelling in spellings[len(SPECIALS) :])]
        self.vocabulary = [*SPECIALS, *(readable(piece) for piece in self._bytes[len(SPECIALS) :])]

    @classmethod
    def learn(cls, texts: Iterable[str], *, normaliser: Normaliser, size: int, min_count: int) -> "BPETokenizer":
        """Merges until there are `size` ids, or no pair is left that was seen `min_count` times."""
        if size < SMALLEST:
            raise UsageError(
                f"a byte-level vocabulary cannot be as small as {size}: 256 bytes and {len(SPECIALS)} special tokens",
                hint=f"choose a size of at least {SMALLEST}, or the kind 'characters'.",
            )
        survive_forks()
        library = Library(models.BPE())
        library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(
            vocab_size=size,
            min_frequency=min_count,
            special_tokens=list(SPECIALS),
            initial_alphabet=sorted(_byte_of()),
            show_progress=False,
        )
        library.train_from_iterator((normaliser(text) for text in texts), trainer)
        learnt = json.loads(library.to_str())["model"]
        return cls(_assemble(learnt["vocab"], [(left, right) for left, right in learnt["merges"]]), normaliser)

    def encode(self, text: str) -> list[int]:
        return self._library.encode(self.normaliser(text), add_special_tokens=False).ids

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        rows = self._library.encode_batch_fast([self.normaliser(text) for text in texts], add_special_tokens=False)
        return [row.ids for row in rows]

    def decode(self, ids: Sequence[int]) -> str:
        return b"".join(self._bytes[index] for index in ids).decode("utf-8", errors="replace")

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [vocabularies.visible(self.vocabulary[index]) for index in ids]

    @property
    def merges(self) -> list[Merge]:
        """The merges in the order in which they were learnt, spelled as the library spells bytes."""
        return [(left, right) for left, right in json.loads(self._library.to_str())["model"]["merges"]]

    def spelled(self, text: str) -> list[tuple[str, ...]]:
        """The words that merges stay within, each as its bytes, spelled as the library spells them."""
        splitter = self._library.pre_tokenizer
        assert splitter is not None
        return [tuple(word) for word, _ in splitter.pre_tokenize_str(self.normaliser(text))]

    def __len__(self) -> int:
        return len(self.vocabulary)

    def to_json(self) -> dict[str, Any]:
        """The library's own JSON inside ours, so that other programs can read that part."""
        return {
            "kind": self.kind,
            "normaliser": self.normaliser.to_json(),
            "library": json.loads(self._library.to_str()),
        }

    @classmethod
    def from_json(cls, data: object) -> "BPETokenizer":
        """Takes vocabulary and merges and builds the rest anew: a file cannot bring its own rules for splitting."""
        stored = parts(data, "the BPE tokenizer", {"kind": str, "normaliser": dict, "library": dict})
        normaliser = Normaliser.from_json(stored["normaliser"])
        _check_rules(stored["library"])
        vocabulary = _read_vocabulary(stored["library"]["model"].get("vocab"))
        merges = _read_merges(stored["library"]["model"].get("merges"), vocabulary)
        survive_forks()
        try:
            return cls(_assemble(vocabulary, merges), normaliser)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic inside the library is no Exception
            raise odd(f"the tokenizers library refuses the stored merges: {error}") from error


def _assemble(vocabulary: dict[str, int], merges: list[Merge]) -> Library:
    """The library's tokenizer, not told of the special tokens: it would look for their names in the text."""
    library = Library(models.BPE(vocab=vocabulary, merges=merges))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    return library


def _check_rules(stored: dict[str, Any]) -> None:
    """The stored tokenizer splits and spells as ours does; otherwise its merges would mean something else."""
    model, splitter = stored.get("model"), stored.get("pre_tokenizer")
    if not isinstance(model, dict) or model.get("type") != "BPE":
        raise odd("the stored BPE tokenizer has no model of type 'BPE'")
    if not isinstance(splitter, dict) or splitter.get("type") != "ByteLevel" or splitter.get("add_prefix_space"):
        raise odd("the stored BPE tokenizer does not split into bytes, or adds a space in front")
    if splitter.get("use_regex") is False:
        raise odd("the stored BPE tokenizer merges across words")
    for key in ("normalizer", "post_processor", "added_tokens", "truncation", "padding"):
        if stored.get(key):
            raise odd(f"the stored BPE tokenizer has a rule of its own: '{key}'")
    for key in ("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "ignore_merges"):
        if model.get(key):
            raise odd(f"the stored BPE model has a rule of its own: '{key}'")


def _read_vocabulary(stored: object) -> dict[str, int]:
    """Spelling -> id: the ids without gaps, the special ones first, every byte among the others."""
    if not isinstance(stored, dict) or not all(isinstance(key, str) and type(stored[key]) is int for key in stored):
        raise odd("the vocabulary of the BPE tokenizer must give a whole number for each piece")
    if sorted(stored.values()) != list(range(len(stored))):
        raise odd(f"the ids of the BPE vocabulary are not 0 to {len(stored) - 1}, each once")
    for index, name in enumerate(SPECIALS):
        if stored.get(name) != index:
            raise odd(f"the BPE vocabulary must give {name} the id {index}, not {stored.get(name)}")
    alphabet = _byte_of()
    missing = [character for character in alphabet if character not in stored]
    if missing:
        raise odd(f"the BPE vocabulary lacks {len(missing)} of the 256 bytes")
    for piece in stored:
        if piece not in SPECIALS and not (piece and alphabet.keys() >= set(piece)):
            raise odd(f"the BPE vocabulary has a piece that spells no bytes: {shorten(piece)}")
    return stored


def _read_merges(stored: object, vocabulary: dict[str, int]) -> list[Merge]:
    """Pairs of pieces whose halves and whole are in the vocabulary, none of them special."""
    if not isinstance(stored, list):
        raise odd("the BPE tokenizer has no list of merges")
    merges: list[Merge] = []
    for position, pair in enumerate(stored):
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(half, str) for half in pair):
            raise odd(f"merge {position} of the BPE tokenizer is not a pair of pieces: {shorten(str(pair))}")
        left, right = pair
        for piece in (left, right, left + right):
            if vocabulary.get(piece, 0) < len(SPECIALS):
                raise odd(f"merge {position} of the BPE tokenizer uses {shorten(piece)}, which is no piece of text")
        merges.append((left, right))
    if len(set(merges)) != len(merges):
        raise odd("the BPE tokenizer has the same merge twice")
    return merges


@cache
def _byte_of() -> dict[str, int]:
    """The library's letter for each byte -> the byte: itself where Latin-1 can print it, else from U+0100 on."""
    printed = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [value for value in range(256) if value not in printed]
    return {chr(value): value for value in sorted(printed)} | {chr(256 + n): value for n, value in enumerate(hidden)}


def readable_spelling(piece: str) -> str:
    """A piece in the library's letters, as a person reads it."""
    return vocabularies.visible(readable(_to_bytes(piece)))


def _to_bytes(spelling: str) -> bytes:
    return bytes(_byte_of()[character] for character in spelling)


@cache
def survive_forks() -> None:
    """No threads after a fork: the library's pool is dead in the child, and would be waited for.

    Some versions of the library see to that themselves, but print a warning each time unless this variable is set.
    """
    if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
        os.register_at_fork(before=lambda: os.environ.setdefault("TOKENIZERS_PARALLELISM", "false"))
