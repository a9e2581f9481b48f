"""Text as a sequence of words and punctuation marks.

Unknown words can be encoded by a class of their spelling: their shape and their ending. The class "<Aa…ing>" has words
like "Reading". The shapes are 0 (has a digit), # (no letter), AA (capitals), Aa (a capital first), a-a (a hyphen) and
a. Within a shape, longer endings are finer classes than shorter ones, down to the shape alone, "<Aa…>". Classes are
learnt from rare words only, which unknown words resemble (Brants 2000).
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, final

from seqlab.text import vocabulary as vocabularies
from seqlab.text.vocabulary import SILENT, SPECIALS, UNK, Normaliser, strings

CLOSING = frozenset(".,!?;:)]}'")
OPENING = frozenset("([{")
RARE = 10  # a word seen at most as often is rare
LEAST = 2  # rare words that a class needs


@final
class WordTokenizer:
    """One id per frequent word; the others are UNK, or with `endings` the class of their spelling.

    The classes come after the words in the vocabulary; no text can spell one.
    """

    kind = "words"
    encode_all = vocabularies.encode_all
    pieces = vocabularies.pieces
    __len__ = vocabularies.length

    def __init__(
        self, vocabulary: list[str], normaliser: Normaliser, endings: Sequence[str] = ()
    ) -> None:
        self.num_words = len(vocabulary)
        self.vocabulary = [*vocabulary, *endings]
        self.normaliser = normaliser
        self._ids = vocabularies.ids(vocabulary)
        self._classes = {name: index for index, name in enumerate(endings, start=len(vocabulary))}
        self._longest = max((len(name.partition("…")[2]) - 1 for name in endings), default=0)

    @classmethod
    def learn(
        cls, texts: Iterable[str], *, normaliser: Normaliser, size: int, min_count: int
    ) -> "WordTokenizer":
        counts = Counter(word for text in texts for word in split(normaliser(text)))
        return cls(vocabularies.from_counts(counts, size=size, min_count=min_count), normaliser)

    def encode(self, text: str) -> list[int]:
        return self._ids_of(split(self.normaliser(text)))

    def encode_words(self, words: Sequence[str]) -> list[int]:
        """Return one id per given word without splitting it: a tagger has one label for each word of the file."""
        return self._ids_of([self.normaliser(word) for word in words])

    def parents(self) -> list[int]:
        """Return the id that each id backs off to: a word to its class, a class to a coarser one, the last to UNK."""
        words = [self._class(word) for word in self.vocabulary[: self.num_words]]
        return (
            [UNK] * len(SPECIALS)
            + words[len(SPECIALS) :]
            + [self._classes.get(coarser(name) or "", UNK) for name in self._classes]
        )

    def _ids_of(self, words: Sequence[str]) -> list[int]:
        if not self._classes:
            return [self._ids.get(word, UNK) for word in words]
        return [self._spelled(word, first=not place) for place, word in enumerate(words)]

    def _spelled(self, word: str, *, first: bool) -> int:
        """Return the id of a word, or of its lower case if it begins a sentence or is in capitals."""
        for spelling in (word, word.lower()) if first or word.isupper() else (word,):
            if spelling in self._ids:
                return self._ids[spelling]
        return self._class(word)

    def _class(self, word: str) -> int:
        finest = classes(word, self._longest) if self._classes else ()
        return next((self._classes[name] for name in finest if name in self._classes), UNK)

    def decode(self, ids: Sequence[int]) -> str:
        """Join words with spaces, but not before punctuation."""
        return join([self.vocabulary[index] for index in ids if index not in SILENT])

    def to_json(self) -> dict[str, Any]:
        words, endings = self.vocabulary[: self.num_words], self.vocabulary[self.num_words :]
        return vocabularies.as_json(
            self, vocabulary=words, **({"endings": endings} if endings else {})
        )

    @classmethod
    def from_json(cls, data: object) -> "WordTokenizer":
        types = {"endings": list} if isinstance(data, dict) and "endings" in data else {}
        normaliser, stored = vocabularies.from_parts(data, "words", vocabulary=list, **types)
        words = vocabularies.from_stored(stored["vocabulary"])
        return cls(words, normaliser, strings(stored.get("endings", []), "the endings"))


def learn_words(
    counts: Mapping[str, int],
    *,
    normaliser: Normaliser,
    size: int,
    min_count: int,
    endings: int = 0,
) -> WordTokenizer:
    """Learn a vocabulary of words that are already split, as for tagging.

    `endings` is the length of the longest endings by which unknown words are classified; 0: all are UNK.
    """
    merged: Counter[str] = Counter()
    for word, count in counts.items():
        merged[normaliser(word)] += count
    words = vocabularies.from_counts(merged, size=size, min_count=min_count)
    return WordTokenizer(
        words, normaliser, learn_endings(merged, longest=endings) if endings else ()
    )


def learn_endings(counts: Mapping[str, int], *, longest: int) -> list[str]:
    """Return the classes of rare words by endings of up to `longest` characters, coarser ones first."""
    members = Counter(
        name for word, count in counts.items() if count <= RARE for name in classes(word, longest)
    )
    return sorted(
        (name for name, count in members.items() if count >= LEAST),
        key=lambda name: (len(name), name),
    )


def classes(word: str, longest: int) -> Iterator[str]:
    """Yield all classes of a word, the finest first. An ending is shorter than the word; all digits become 0."""
    shape = _shape(word)
    letters = "".join("0" if c.isdigit() else c for c in word.lower())
    for length in range(min(longest, len(letters) - 1), -1, -1):
        yield f"<{shape}…{letters[len(letters) - length :]}>"


def coarser(name: str) -> str | None:
    """Return the next coarser class, or None for a shape alone."""
    shape, _, ending = name.partition("…")
    return f"{shape}…{ending[1:]}" if len(ending) > 1 else None


def _shape(word: str) -> str:
    if any(c.isdigit() for c in word):
        return "0"
    if not any(c.isalpha() for c in word):
        return "#"
    if len(word) > 1 and word.isupper():
        return "AA"
    if word[0].isupper():
        return "Aa"
    return "a-a" if "-" in word else "a"


def split(text: str) -> list[str]:
    """Split a text into words, with inner apostrophes, and single symbols."""
    return _pattern().findall(text)


def join(words: Sequence[str]) -> str:
    """Join words with spaces, but not before a closing mark or after an opening one."""
    text: list[str] = []
    for position, word in enumerate(words):
        if position and word not in CLOSING and words[position - 1] not in OPENING:
            text.append(" ")
        text.append(word)
    return "".join(text)


@cache
def _pattern() -> re.Pattern[str]:
    """Compile the pattern of a word, with combining marks: `\\w` would split a Hindi or Thai word at its vowel signs.

    All marks are below U+1F000, except selectors of glyph variants. The two zero-width joiners are included.
    """
    marks = "".join(
        chr(c) for c in range(0x300, 0x1F000) if unicodedata.category(chr(c)).startswith("M")
    )
    mark = f"{marks}\u200c\u200d"
    return re.compile(rf"\w[\w{mark}]*(?:['’]\w[\w{mark}]*)*|[^\w\s][{mark}]*")
