"""Strings <-> ids: five kinds of tokenizer with the same special ids, their normalisation, and label names.

What every tokenizer is to the rest of the package: text in, ids out, and back.

vocabulary            the piece of each id, 0 to len - 1; the first are the special ones, in every kind
learn                 a vocabulary of at most `size` ids, the special ones included, of what was seen `min_count` times
to_json, from_json    all that is stored, as plain JSON; and the tokenizer again, or a BundleError
encode, encode_all    the ids of normalised text; no special token is added, and none is read out of the text
decode                the text again: PAD, SOS and EOS are left out; UNK, SEP and MASK are shown by name
pieces                one readable string per id, for pictures
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
    odd,
    visible,
)
from seqlab.text.wordpiece import WordPieceTokenizer
from seqlab.text.words import WordTokenizer, learn_words

Tokenizer = CharacterTokenizer | WordTokenizer | ByteTokenizer | BPETokenizer | WordPieceTokenizer
KINDS: dict[str, type[Tokenizer]] = {kind.kind: kind for kind in get_args(Tokenizer)}


def learn(
    kind: str, texts: Iterable[str], *, normaliser: Normaliser, size: int = 8000, min_count: int = 1
) -> Tokenizer:
    """A tokenizer of this kind for texts like these; `size` counts the special tokens too."""
    if kind not in KINDS:
        raise UsageError(
            f"there is no kind of tokenizer called {shorten(kind)}", hint=nearest(kind, KINDS)
        )
    return KINDS[kind].learn(texts, normaliser=normaliser, size=size, min_count=min_count)


def from_json(data: object) -> Tokenizer:
    """The tokenizer that `to_json` described."""
    kind = data.get("kind") if isinstance(data, dict) else None
    if not isinstance(kind, str):
        raise odd("a tokenizer must be an object with named parts, one of them its 'kind'")
    if kind not in KINDS:
        raise odd(f"there is no kind of tokenizer called {shorten(kind)}; {nearest(kind, KINDS)}")
    return KINDS[kind].from_json(data)


def vocabulary_text(tokenizer: Tokenizer) -> str:
    """The vocabulary for people: a line per id, with what it stands for after a tab, spaces made visible."""
    return "".join(
        f"{index}\t{visible(piece)}\n" for index, piece in enumerate(tokenizer.vocabulary)
    )
