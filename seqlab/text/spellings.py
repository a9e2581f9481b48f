"""The features of a word in its sentence: its spelling, and that of its neighbours.

Each position has one id in each column: the word, its lower case, its first and last letters, its shape; some of these
for its neighbours; and its pairs with the word before and the word after. The id 0 is an unknown value. The features
of a word are computed once for each different word.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, final

import numpy as np
from jaxtyping import Int

from seqlab.errors import DataError
from seqlab.text.vocabulary import Normaliser, parts, strings

AFFIXES = 4  # letters at each end
FORMS = (
    "word",
    "lower",
    *(f"prefix {n}" for n in range(1, AFFIXES + 1)),
    *(f"suffix {n}" for n in range(1, AFFIXES + 1)),
    "shape",
    "outline",
)
NEAR = ("lower", "suffix 3", "shape")  # features of a neighbour
OFFSETS = {-2: "second before", -1: "before", 1: "after", 2: "second after"}
PAIRS = {-1: "with the word before", 0: "with the word after"}
RARE = 2  # pairs seen less often are not features
_EDGE = max(OFFSETS)
Row = Int[np.ndarray, "_ _"]


@final
class SpellingVocabulary:
    """The values of each form, and the pairs of words; neighbours have the same values with other ids."""

    def __init__(
        self, forms: dict[str, list[str]], pairs: list[str], normaliser: Normaliser
    ) -> None:
        self.forms, self.pairs, self.normaliser = forms, pairs, normaliser
        self._ids = {
            name: {value: place for place, value in enumerate(values, 1)}
            for name, values in forms.items()
        }
        self._pairs = {pair: place for place, pair in enumerate(pairs, 1)}
        self.columns = [
            *((name, name) for name in FORMS),
            *((f"{where}, {name}", name) for where in OFFSETS.values() for name in NEAR),
            *((where, "pair") for where in PAIRS.values()),
        ]
        sizes = [len(pairs) if form == "pair" else len(forms[form]) for _, form in self.columns]
        self.firsts = np.cumsum([0, *sizes])  # ids of a column begin after this

    @classmethod
    def learn(
        cls, sentences: Callable[[], Iterable[Sequence[str]]], *, normaliser: Normaliser, size: int
    ) -> "SpellingVocabulary":
        """Learn the forms of the `size` most frequent words, and the pairs of words seen more than once."""
        words, pairs = Counter[str](), Counter[str]()
        for sentence in sentences():
            row = [normaliser(word) for word in sentence]
            words.update(row)
            lower = ["", *(word.lower() for word in row), ""]
            pairs.update(f"{one}\t{other}" for one, other in pairwise(lower))
        if not words:
            raise DataError(
                "there are no words to learn from",
                hint="`seqlab data FILE` shows how the file is read.",
            )
        kept = ["", *(word for word, _ in words.most_common(size))]
        table = zip(*map(_forms, kept), strict=True)
        forms = {name: sorted(set(values)) for name, values in zip(FORMS, table, strict=True)}
        often = [pair for pair, count in pairs.most_common(size) if count >= RARE]
        return cls(forms, sorted(often), normaliser)

    def encode_all(self, sentences: Sequence[Sequence[str]]) -> list[Row]:
        """Return the features of each word of each sentence."""
        different: dict[str, int] = {"": 0}
        flat, lengths = [0] * _EDGE, []
        for sentence in sentences:
            flat += [
                different.setdefault(self.normaliser(word), len(different)) for word in sentence
            ]
            flat += [0] * _EDGE
            lengths.append(len(sentence))
        words, places = list(different), np.asarray(flat)
        table = zip(*map(_forms, words), strict=True)
        ids = {
            name: np.asarray([self._ids[name].get(value, 0) for value in values])
            for name, values in zip(FORMS, table, strict=True)
        }
        starts = np.cumsum([_EDGE, *(length + _EDGE for length in lengths)])[:-1]
        begins = np.cumsum([0, *lengths])[:-1]
        inside = np.arange(sum(lengths)) + np.repeat(starts - begins, lengths)
        columns = [ids[name][places[inside]] for name in FORMS]
        columns += [ids[name][places[inside + offset]] for offset in OFFSETS for name in NEAR]
        lower = [word.lower() for word in words]
        for offset in PAIRS:
            both = zip(
                places[inside + offset].tolist(), places[inside + offset + 1].tolist(), strict=True
            )
            columns.append(
                np.asarray(
                    [self._pairs.get(f"{lower[a]}\t{lower[b]}", 0) for a, b in both], dtype=np.int64
                )
            )
        rows = np.stack(columns, axis=1).reshape(-1, len(self.columns))
        rows = np.where(rows > 0, rows + self.firsts[:-1], 0)
        return np.split(rows, np.cumsum(lengths)[:-1]) if lengths else []

    def name(self, feature: int) -> str:
        """Return the readable name of a feature."""
        place = int(np.searchsorted(self.firsts, feature, side="left")) - 1
        column, form = self.columns[place]
        value = (self.pairs if form == "pair" else self.forms[form])[
            feature - int(self.firsts[place]) - 1
        ]
        return f"{column}: {value.replace(chr(9), ' ') or '(edge)'}"

    def __len__(self) -> int:
        """Return the number of ids, including 0."""
        return int(self.firsts[-1]) + 1

    @property
    def width(self) -> int:
        """The number of ids of a position."""
        return len(self.columns)

    def to_json(self) -> dict[str, Any]:
        return {"normaliser": self.normaliser.to_json(), "forms": self.forms, "pairs": self.pairs}

    @classmethod
    def from_json(cls, data: object) -> "SpellingVocabulary":
        stored = parts(
            data, "the vocabulary of spellings", {"normaliser": dict, "forms": dict, "pairs": list}
        )
        tables = parts(stored["forms"], "its forms", dict.fromkeys(FORMS, list))
        forms = {name: strings(tables[name], f"its forms '{name}'") for name in FORMS}
        return cls(
            forms, strings(stored["pairs"], "its pairs"), Normaliser.from_json(stored["normaliser"])
        )


def _forms(word: str) -> tuple[str, ...]:
    """Return the value of each of FORMS for a word."""
    shape = "".join(map(_kind, word))
    affixes = [word[:n] for n in range(1, AFFIXES + 1)] + [word[-n:] for n in range(1, AFFIXES + 1)]
    return (word, word.lower(), *affixes, shape, re.sub(r"(.)\1+", r"\1", shape))


def _kind(character: str) -> str:
    if character.isdigit():
        return "0"
    if character.isalpha():
        return "A" if character.isupper() else "a"
    return character
