"""Text as a bag of word n-grams and character n-grams, the features of linear models and nearest neighbours.

Words are runs of letters and digits; other symbols are words of their own, and so are letters of scripts without
spaces. N-grams of characters do not cross spaces, but may begin or end with one. An n-gram is identified by a 64-bit
hash of its characters, so that all n-grams of many texts are computed at once.
"""

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple, final

import numpy as np
from jaxtyping import Bool, Int, UInt64

from seqlab.errors import DataError
from seqlab.text.vocabulary import Normaliser, parts, strings

LONGEST = 5  # characters of an n-gram
BLOCK = 4000  # texts whose n-grams are computed at once
Hashes = UInt64[np.ndarray, " _"]
Places = Int[np.ndarray, " _"]


class _Ngrams(NamedTuple):
    """N-grams of a block of texts: the hash of each, its text, and the positions of its characters."""

    hashes: Hashes
    rows: Places
    starts: Places
    ends: Places
    middles: Places  # the start of the second of two words; 0 for a single word or for characters


@final
class NgramVocabulary:
    """The n-grams that are features, words first; a text is encoded as the ids and counts of those it contains."""

    def __init__(self, words: list[str], characters: list[str], normaliser: Normaliser) -> None:
        self.words, self.characters, self.normaliser = words, characters, normaliser
        both = np.concatenate([_word_hashes(words), _hashes(characters) * _MULTIPLIERS[3]])
        self._ids = np.argsort(both)
        self._sorted = both[self._ids]

    @classmethod
    def learn(
        cls,
        texts: Callable[[], Iterable[str]],
        *,
        normaliser: Normaliser,
        size: int,
        min_count: int,
    ) -> "NgramVocabulary":
        """Learn the `size` most frequent n-grams that occur in at least `min_count` texts; `texts` are read twice."""
        counted = [_shared(_ngrams(block)) for block in _blocks(texts(), normaliser)]
        hashes, counts = (
            (np.concatenate(each) for each in zip(*counted, strict=True)) if counted else _NOTHING
        )
        hashes, place = np.unique(hashes, return_inverse=True)
        counts = np.bincount(place, counts).astype(np.int64)
        kept = np.flatnonzero(counts >= min_count)
        hashes = np.sort(hashes[kept[np.argsort(-counts[kept], kind="stable")[:size]]])
        names: tuple[dict[int, str], dict[int, str]] = ({}, {})
        for block in _blocks(texts(), normaliser):
            for parts_of, name in zip(_ngrams(block), names, strict=True):
                _name(parts_of, block, hashes, name)
        words, characters = (sorted(name.values()) for name in names)
        if not words and not characters:
            raise DataError(
                f"no word or letter occurs in {min_count} texts, which is needed for a feature",
                hint="check that the right column is read as the text; `seqlab data FILE` shows it.",
            )
        return cls(words, characters, normaliser)

    def encode_all(self, texts: Sequence[str]) -> list[Int[np.ndarray, "_ 2"]]:
        """Return the ids of the n-grams in each text, in order, each with its count."""
        bags: list[np.ndarray] = []
        for block in _blocks(texts, self.normaliser):
            bag = [np.zeros(0, dtype=np.int64)]
            for ngrams in _ngrams(block):
                places = np.minimum(
                    np.searchsorted(self._sorted, ngrams.hashes), len(self._sorted) - 1
                )
                is_feature = self._sorted[places] == ngrams.hashes
                bag.append(ngrams.rows[is_feature] * len(self) + self._ids[places[is_feature]])
            codes, counts = np.unique(np.concatenate(bag), return_counts=True)
            table = np.stack([codes % len(self), np.minimum(counts, len(self) - 1)], axis=1)
            bags += np.split(table, np.searchsorted(codes // len(self), np.arange(1, len(block))))
        return bags

    def name(self, feature: int) -> str:
        """Return a readable n-gram: words as they are, characters in quotes."""
        if feature < len(self.words):
            return self.words[feature]
        return f"“{self.characters[feature - len(self.words)].replace(' ', '␣')}”"

    def __len__(self) -> int:
        return len(self.words) + len(self.characters)

    def to_json(self) -> dict[str, Any]:
        return {
            "normaliser": self.normaliser.to_json(),
            "words": self.words,
            "characters": self.characters,
        }

    @classmethod
    def from_json(cls, data: object) -> "NgramVocabulary":
        stored = parts(
            data,
            "the vocabulary of n-grams",
            {"normaliser": dict, "words": list, "characters": list},
        )
        words, characters = (
            strings(stored[name], f"its {name}") for name in ("words", "characters")
        )
        return cls(words, characters, Normaliser.from_json(stored["normaliser"]))


_MULTIPLIERS = np.array(
    [0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0xD6E8FEB86659FD93],
    dtype=np.uint64,
)
_NOTHING = (np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.int64))


def _blocks(texts: Iterable[str], normaliser: Normaliser) -> Iterable[list[str]]:
    """Normalise texts and their spaces, a block at a time."""
    remaining = iter(texts)
    while block := list(islice(remaining, BLOCK)):
        yield [f" {' '.join(normaliser(text).split())} " for text in block]


def _ngrams(texts: list[str]) -> tuple[_Ngrams, _Ngrams]:
    """Return all n-grams of words, and all of characters."""
    codes = _codes("".join(texts))
    rows = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
    return _of_words(codes, rows), _of_characters(codes, rows)


def _of_characters(codes: Places, rows: Places) -> _Ngrams:
    blank, mixed = codes == ord(" "), _mixed(codes)
    of_length, hashes = [], mixed.copy()
    for length in range(1, LONGEST + 1):
        last = len(codes) - length + 1
        if last < 1:
            break
        inside = ~blank[:last] if length == 1 else ~(blank[:last] & blank[length - 1 :])
        if length > 1:
            hashes = hashes[:last] + mixed[length - 1 :] * _power(length - 1)
            for middle in range(1, length - 1):
                inside &= ~blank[middle : middle + last]
        starts = np.flatnonzero(inside)
        nowhere = np.zeros_like(starts)
        of_length.append(
            _Ngrams(
                hashes[starts] * _MULTIPLIERS[3], rows[starts], starts, starts + length, nowhere
            )
        )
    return _Ngrams(*(np.concatenate(each) for each in zip(*of_length, strict=True)))


def _of_words(codes: Places, rows: Places) -> _Ngrams:
    """Return single words, then pairs of neighbours."""
    letter, blank = _is_letter(codes), codes == ord(" ")
    before, after = np.append(False, letter[:-1]), np.append(letter[1:], False)
    letter |= np.isin(codes, _APOSTROPHES) & before & after
    begins = ~blank & ~(letter & np.append(False, letter[:-1]))
    starts = np.flatnonzero(begins)
    solid = np.flatnonzero(~blank)
    first = np.flatnonzero(begins[solid])
    lengths = np.diff(np.append(first, len(solid)))
    hashes = _summed(codes[solid], first, lengths)
    ends, rows = starts + lengths, rows[starts]
    pairs = np.flatnonzero(rows[1:] == rows[:-1])
    both = _paired(hashes[pairs], hashes[pairs + 1])
    return _Ngrams(
        np.concatenate([hashes * _MULTIPLIERS[1], both]),
        np.concatenate([rows, rows[pairs]]),
        np.concatenate([starts, starts[pairs]]),
        np.concatenate([ends, ends[pairs + 1]]),
        np.concatenate([np.zeros_like(starts), starts[pairs + 1]]),
    )


def _shared(both: tuple[_Ngrams, _Ngrams]) -> tuple[Hashes, Places]:
    """Return each n-gram of a block, and the number of texts in which it occurs."""
    hashes, rows = (
        np.concatenate([getattr(each, name) for each in both]) for name in ("hashes", "rows")
    )
    order = np.lexsort((rows, hashes))
    hashes, rows = hashes[order], rows[order]
    new = np.append(True, (hashes[1:] != hashes[:-1]) | (rows[1:] != rows[:-1]))[: len(hashes)]
    return np.unique(hashes[new], return_counts=True)


def _name(ngrams: _Ngrams, block: list[str], features: Hashes, names: dict[int, str]) -> None:
    """Add the texts of those n-grams that are features and have no name yet."""
    hashes, where = np.unique(ngrams.hashes, return_index=True)
    text = "".join(block)
    for place in where[np.isin(hashes, features)].tolist():
        start = int(ngrams.starts[place])
        middle = int(ngrams.middles[place])
        end = int(ngrams.ends[place])
        key = int(ngrams.hashes[place])
        if key in names:
            continue
        names[key] = text[start:end]
        if middle:
            names[key] = f"{text[start:middle].strip()} {text[middle:end]}"


def _word_hashes(words: list[str]) -> Hashes:
    """Return the hashes of words, and of pairs of words separated by a space."""
    if not words:
        return _NOTHING[0]
    parts_of_words = [word.partition(" ") for word in words]
    first = _hashes([first for first, _, _ in parts_of_words])
    second = _hashes([second for _, _, second in parts_of_words])
    is_single = np.array([not second for _, _, second in parts_of_words])
    return np.where(is_single, first * _MULTIPLIERS[1], _paired(first, second))


def _paired(first: Hashes, second: Hashes) -> Hashes:
    return (first * _MULTIPLIERS[0] ^ (first >> np.uint64(29))) + second * _MULTIPLIERS[2]


def _hashes(texts: list[str]) -> Hashes:
    """Return Σ_j mix(c_j) P^j of each text."""
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    hashes = np.zeros(len(texts), dtype=np.uint64)
    filled = np.flatnonzero(lengths)
    if len(filled):
        firsts = np.append(0, np.cumsum(lengths[filled])[:-1])
        hashes[filled] = _summed(_codes("".join(texts)), firsts, lengths[filled])
    return hashes


def _summed(codes: Places, firsts: Places, lengths: Places) -> Hashes:
    if not len(firsts):
        return _NOTHING[0]
    place = np.arange(len(codes)) - np.repeat(firsts, lengths)
    powers = np.cumprod(
        np.append(np.uint64(1), np.full(int(lengths.max()), _MULTIPLIERS[2])), dtype=np.uint64
    )
    return np.add.reduceat(_mixed(codes) * powers[place], firsts)


def _power(exponent: int) -> np.uint64:
    return np.cumprod(np.full(exponent, _MULTIPLIERS[2]), dtype=np.uint64)[-1]


def _mixed(codes: Places) -> Hashes:
    """Return a number of 64 pseudorandom bits for each character."""
    mixed = (codes.astype(np.uint64) + np.uint64(1)) * _MULTIPLIERS[0]
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _MULTIPLIERS[1]
    return mixed ^ (mixed >> np.uint64(27))


def _codes(text: str) -> Places:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32).astype(
        np.int64
    )


def _is_letter(codes: Places) -> Bool[np.ndarray, " _"]:
    """Whether each character is a letter, a digit or a combining mark of a script with spaces between words."""
    kinds, where = np.unique(codes, return_inverse=True)
    return np.array([_joins(chr(code)) for code in kinds.tolist()], dtype=bool)[where]


def _joins(character: str) -> bool:
    if character.isalnum() or character == "_":
        return unicodedata.name(character, "").split(" ")[0] not in _WITHOUT_SPACES
    return unicodedata.category(character) in _MARKS


_APOSTROPHES = np.array([ord("'"), ord("’")])
_MARKS = ("Mn", "Mc", "Me", "Cf")
_WITHOUT_SPACES = {
    "CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "THAI", "LAO", "KHMER", "MYANMAR",
    "TIBETAN",
}  # fmt: skip
