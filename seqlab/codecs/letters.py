"""The spelling of words beside their ids: a word that training never saw still has letters."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Int

from seqlab.codecs.codec import Ids, Json
from seqlab.data.store import Column
from seqlab.text import PAD, CharacterTokenizer, Normaliser

LONGEST_WORD = 24  # letters of a spelling: of a longer word its two ends, which say most about it


def spelled(letters: CharacterTokenizer, ids: Ids, words: Sequence[str]) -> Int[np.ndarray, "T W"]:
    """Each position's id, then its letters; ids that precede the words, as of a frame, have none."""
    table = np.full((len(ids), 1 + LONGEST_WORD), PAD, dtype=np.int64)
    table[:, 0] = ids
    half = LONGEST_WORD // 2
    first = int(len(ids) > len(words))
    for place, spelling in enumerate(letters.encode_all(words), start=first):
        kept = spelling if len(spelling) <= LONGEST_WORD else spelling[:half] + spelling[-half:]
        table[place, 1 : 1 + len(kept)] = kept
    return table


def letters_column(path: Path, size: int, letters: CharacterTokenizer | None) -> Column:
    if letters is None:
        return Column(path, size)
    return Column(path, max(size, len(letters)), width=1 + LONGEST_WORD)


def learn_letters(words: Callable[[], Iterable[str]]) -> CharacterTokenizer:
    """The letters that occur twice or more; of a tiny file, in which none does, all."""
    counts = Counter(letter for word in words() for letter in word)
    least = 2 if counts and counts.most_common(1)[0][1] > 1 else 1
    return CharacterTokenizer.learn(
        words(), normaliser=Normaliser("NFC", False, False), size=1000, min_count=least
    )


def letters_json(letters: CharacterTokenizer | None) -> Json:
    return {} if letters is None else {"letters": letters.to_json()}


def read_letters(table: Json) -> CharacterTokenizer | None:
    return CharacterTokenizer.from_json(table["letters"]) if "letters" in table else None
