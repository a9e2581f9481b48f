"""Strings <-> ids: five kinds of tokenizer with the same special ids, their normalisation, and label names.

The interface of all tokenizers:

vocabulary            the piece of each id, 0 to len - 1; the special tokens come first in every kind
learn                 a vocabulary of at most `size` ids with the special ones, of pieces seen `min_count` times
to_json, from_json    the tokenizer as plain JSON, and back; invalid JSON is a BundleError
encode, encode_all    the ids of normalised text; no special token is added, and none is recognised in the text
decode                the text of ids: PAD, SOS and EOS are left out; UNK, SEP and MASK are shown by name
pieces                one readable string per id, for figures
"""

from collections.abc import Iterable
from typing import get_args

from seqlab.errors import UsageError, nearest, shorten
from seqlab.text.bpe import BPETokenizer
from seqlab.text.characters import ByteTokenizer, CharacterTokenizer
from seqlab.text.labels import UNSEEN, Labels
from seqlab.text.vocabulary import (
    EOS,
    MASK,
    PAD,
    SEP,
    SOS,
    SPECIALS,
    UNK,
    Normaliser,
    malformed,
    visible,
)
from seqlab.text.wordpiece import WordPieceTokenizer
from seqlab.text.words import WordTokenizer, learn_words

Tokenizer = CharacterTokenizer | WordTokenizer | ByteTokenizer | BPETokenizer | WordPieceTokenizer
KINDS: dict[str, type[Tokenizer]] = {kind.kind: kind for kind in get_args(Tokenizer)}


def learn(
    kind: str, texts: Iterable[str], *, normaliser: Normaliser, size: int = 8000, min_count: int = 1
) -> Tokenizer:
    """Learn a tokenizer of this kind from texts; `size` includes the special tokens."""
    if kind not in KINDS:
        raise UsageError(
            f"there is no kind of tokenizer named {shorten(kind)}", hint=nearest(kind, KINDS)
        )
    return KINDS[kind].learn(texts, normaliser=normaliser, size=size, min_count=min_count)


def from_json(data: object) -> Tokenizer:
    """Read a tokenizer from the JSON of `to_json`."""
    kind = data.get("kind") if isinstance(data, dict) else None
    if not isinstance(kind, str):
        raise malformed("a tokenizer must be an object with named parts, one of them its 'kind'")
    if kind not in KINDS:
        raise malformed(
            f"there is no kind of tokenizer named {shorten(kind)}; {nearest(kind, KINDS)}"
        )
    return KINDS[kind].from_json(data)


def vocabulary_text(tokenizer: Tokenizer) -> str:
    """Return the vocabulary as readable text: a line per id, with its piece after a tab, spaces made visible."""
    return "".join(
        f"{index}\t{visible(piece)}\n" for index, piece in enumerate(tokenizer.vocabulary)
    )
