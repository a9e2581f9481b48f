"""The features of a word in its sentence: its spelling, and that of its neighbours.

Each position has one id in each column: the word, its lower case, its first and last letters as written and in lower
case, its shape; some of these of its neighbours; and its lower case and its outline (a shape in which repetitions count
once), each joined with those of the words around it. The id 0 is an unknown value. The features
of a word are computed once for each different word.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, final

import numpy as np
from jaxtyping import Int

from seqlab.errors import DataError
from seqlab.text.vocabulary import Normaliser, parts, strings

AFFIXES = 4  # letters at each end
FIRST_FORMS = (  # of bundles without outlines
    "word",
    "lower",
    *(f"prefix {n}" for n in range(1, AFFIXES + 1)),
    *(f"suffix {n}" for n in range(1, AFFIXES + 1)),
    "shape",
    "outline",
)
FORMS = (
    *FIRST_FORMS,
    *(f"lower prefix {n}" for n in range(2, AFFIXES + 1)),
    *(f"lower suffix {n}" for n in range(2, AFFIXES + 1)),
)
NEAR = ("lower", "suffix 3", "shape")  # what is read of a neighbour
OFFSETS = {-2: "second before", -1: "before", 1: "after", 2: "second after"}
PAIRS = {"with the word before": (-1, 0), "with the word after": (0, 1)}
OUTLINES = {"outlines before": (-1, 0), "outlines after": (0, 1), "outlines around": (-1, 0, 1)}
RARE = 2  # joined values seen less often are not features
_EDGE = max(OFFSETS)
Row = Int[np.ndarray, "_ _"]


@final
class SpellingVocabulary:
    """The values of each form, and the joined values; neighbours have the same values with other ids.

    Bundles of earlier versions have fewer forms and no joined outlines: a column exists only where its values do.
    """

    def __init__(
        self,
        forms: dict[str, list[str]],
        pairs: list[str],
        normaliser: Normaliser,
        outlines: list[str] | None = None,
    ) -> None:
        self.forms, self.pairs, self.outlines, self.normaliser = forms, pairs, outlines, normaliser
        self._joined = {"pair": pairs}
        if outlines is not None:
            self._joined["outlines"] = outlines
        self._values = forms | self._joined
        self._ids = {
            name: {value: place for place, value in enumerate(values, 1)}
            for name, values in self._values.items()
        }
        self._own = [name for name in FORMS if name in forms]
        self._parts: dict[str, Mapping[str, tuple[int, ...]]] = {
            "pair": PAIRS,
            "outlines": OUTLINES,
        }
        self.columns = [
            *((name, name) for name in self._own),
            *((f"{where}, {name}", name) for where in OFFSETS.values() for name in NEAR),
            *((where, kind) for kind in self._joined for where in self._parts[kind]),
        ]
        sizes = [len(self._values[form]) for _, form in self.columns]
        self.firsts = np.cumsum([0, *sizes])  # ids of a column begin after this

    @classmethod
    def learn(
        cls, sentences: Callable[[], Iterable[Sequence[str]]], *, normaliser: Normaliser, size: int
    ) -> "SpellingVocabulary":
        """Learn the forms of the `size` most frequent words, and the joined values seen more than once."""
        words, pairs, outlines = Counter[str](), Counter[str](), Counter[str]()
        for sentence in sentences():
            row = [normaliser(word) for word in sentence]
            words.update(row)
            pairs.update(_neighbours([word.lower() for word in row], 2))
            shapes = [_outline(word) for word in row]
            outlines.update(_neighbours(shapes, 2))
            outlines.update(_neighbours(shapes, 3))
        if not words:
            raise DataError(
                "there are no words to learn from",
                hint="`seqlab data FILE` shows how the file is read.",
            )
        kept = ["", *(word for word, _ in words.most_common(size))]
        table = zip(*map(_forms, kept), strict=True)
        forms = {name: sorted(set(values)) for name, values in zip(FORMS, table, strict=True)}
        return cls(forms, _often(pairs, size), normaliser, _often(outlines, size))

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
        table = dict(zip(FORMS, zip(*map(_forms, words), strict=True), strict=True))
        ids = {
            name: np.asarray([self._ids[name].get(value, 0) for value in table[name]])
            for name in self._own
        }
        starts = np.cumsum([_EDGE, *(length + _EDGE for length in lengths)])[:-1]
        begins = np.cumsum([0, *lengths])[:-1]
        inside = np.arange(sum(lengths)) + np.repeat(starts - begins, lengths)
        columns = [ids[name][places[inside]] for name in self._own]
        columns += [ids[name][places[inside + offset]] for offset in OFFSETS for name in NEAR]
        for kind in self._joined:
            values, known = table["lower" if kind == "pair" else "outline"], self._ids[kind]
            for offsets in self._parts[kind].values():
                near = zip(*(places[inside + offset].tolist() for offset in offsets), strict=True)
                joined = ("\t".join([values[word] for word in some]) for some in near)
                columns.append(np.asarray([known.get(value, 0) for value in joined], np.int64))
        rows = np.stack(columns, axis=1).reshape(-1, len(self.columns))
        rows = np.where(rows > 0, rows + self.firsts[:-1], 0)
        return np.split(rows, np.cumsum(lengths)[:-1]) if lengths else []

    def name(self, feature: int) -> str:
        """Return the readable name of a feature."""
        place = int(np.searchsorted(self.firsts, feature, side="left")) - 1
        column, form = self.columns[place]
        value = self._values[form][feature - int(self.firsts[place]) - 1]
        return f"{column}: {value.replace(chr(9), ' ') or '(edge)'}"

    def __len__(self) -> int:
        """Return the number of ids, including 0."""
        return int(self.firsts[-1]) + 1

    @property
    def width(self) -> int:
        """The number of ids of a position."""
        return len(self.columns)

    def to_json(self) -> dict[str, Any]:
        table = {"normaliser": self.normaliser.to_json(), "forms": self.forms, "pairs": self.pairs}
        return table if self.outlines is None else {**table, "outlines": self.outlines}

    @classmethod
    def from_json(cls, data: object) -> "SpellingVocabulary":
        types: dict[str, type] = {"normaliser": dict, "forms": dict, "pairs": list}
        has_outlines = isinstance(data, dict) and "outlines" in data
        if has_outlines:
            types["outlines"] = list
        stored = parts(data, "the vocabulary of spellings", types)
        names = FORMS if has_outlines else FIRST_FORMS
        tables = parts(stored["forms"], "its forms", dict.fromkeys(names, list))
        return cls(
            {name: strings(tables[name], f"its forms '{name}'") for name in names},
            strings(stored["pairs"], "its pairs"),
            Normaliser.from_json(stored["normaliser"]),
            strings(stored["outlines"], "its outlines") if has_outlines else None,
        )


def _neighbours(values: Sequence[str], count: int) -> Iterator[str]:
    """Join each run of `count` values; an empty value precedes the first and follows the last."""
    padded = ["", *values, ""]
    return ("\t".join(padded[i : i + count]) for i in range(len(padded) - count + 1))


def _often(values: Counter[str], size: int) -> list[str]:
    return sorted(value for value, count in values.most_common(size) if count >= RARE)


def _forms(word: str) -> tuple[str, ...]:
    """Return the value of each of FORMS for a word."""
    lower = word.lower()
    affixes = [word[:n] for n in range(1, AFFIXES + 1)] + [word[-n:] for n in range(1, AFFIXES + 1)]
    lowered = [lower[:n] for n in range(2, AFFIXES + 1)]
    lowered += [lower[-n:] for n in range(2, AFFIXES + 1)]
    return (word, lower, *affixes, _shape(word), _outline(word), *lowered)


def _shape(word: str) -> str:
    return "".join(map(_kind, word))


def _outline(word: str) -> str:
    """The shape, in which a repetition counts once."""
    return re.sub(r"(.)\1+", r"\1", _shape(word))


def _kind(character: str) -> str:
    if character.isdigit():
        return "0"
    if character.isalpha():
        return "A" if character.isupper() else "a"
    return character
