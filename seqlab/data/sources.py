"""Files -> examples, one at a time: pairs and labelled texts; and which of them are held out.

The format follows from the file's name (.tsv .csv .jsonl .parquet; text also .gz) and from what is in it; two files are
parallel. Every reader is a generator that holds one example in memory, and every example knows where it stands.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import zip_longest
from typing import Any

import numpy as np
from jaxtyping import Float32, Int, Shaped, UInt64

from seqlab.data.lines import display_name, extension, lines
from seqlab.data.tables import TABLES, Columns, Layout, two_columns
from seqlab.errors import DataError, UsageError, shorten

Text = str | tuple[str, ...]
Vectors = Float32[np.ndarray, "_ _"]
_PAIRS = Layout(names=("source", "target"), positions=(0, 1))
_LABELLED = Layout(names=("text", "label"), positions=(1, 0), few_labels=True)


@dataclass(frozen=True)
class Picture:
    """A picture by its name: rows of pixel values, or vectors that another network made of it.

    `place` is its row in the store of all pictures, where it has one: several captions share a picture.
    """

    name: str
    values: Shaped[np.ndarray, "_ _"]
    place: int | None = None

    def __len__(self) -> int:
        return len(self.values)


Box = tuple[
    str, float, float, float, float
]  # a word, and where what it names lies: left, top, right, bottom, of 1


@dataclass(frozen=True)
class Example:
    """One source with its target, as strings, tuples of words, feature vectors or a picture, and the "file:line" it
    came from. `boxes` say where in a picture the things are that the target names, where that is known."""

    source: Any  # Text, Vectors or a Picture
    target: Any  # Text, or Vectors where a target is measured
    where: str
    boxes: tuple[Box, ...] = ()


def read_pairs(
    paths: Sequence[str],
    *,
    source: str | None = None,
    target: str | None = None,
    encoding: str | None = None,
) -> Iterator[Example]:
    """Pairs of texts from two columns of a table, or from two parallel files."""
    return at_least_one(two_texts(paths, (source, target), _PAIRS, encoding), paths)


def read_labelled(
    paths: Sequence[str],
    *,
    text: str | None = None,
    label: str | None = None,
    encoding: str | None = None,
) -> Iterator[Example]:
    """Texts with a label each, from two columns of a table, or from a file of texts beside a file of labels."""
    return at_least_one(_with_labels(two_texts(paths, (text, label), _LABELLED, encoding)), paths)


def at_least_one(examples: Iterator[Example], paths: Sequence[str]) -> Iterator[Example]:
    """The examples; an error where there is none."""
    empty = True
    for example in examples:
        empty = False
        yield example
    if empty:
        names = " and ".join(display_name(path) for path in paths)
        raise DataError(
            f"{names}: no example was found",
            hint="there is no line after the header, or only comments.",
        )


def two_texts(
    paths: Sequence[str], wanted: Columns, layout: Layout, encoding: str | None
) -> Iterator[Example]:
    """Two columns of a table, or two parallel files."""
    if len(paths) == 2:
        if (named := wanted[0] or wanted[1]) is not None:
            raise UsageError(
                f"the column '{named}' was asked for, but two parallel files have no columns",
                hint="give one table, or leave the columns out.",
            )
        yield from _parallel(paths[0], paths[1], encoding)
    else:
        for where, (one, other) in two_columns(only(paths), wanted, layout, encoding):
            yield Example(one, other, where)


def _with_labels(examples: Iterator[Example]) -> Iterator[Example]:
    for example in examples:
        label = str(example.target).strip()
        if not label:
            raise DataError(
                f"{example.where}: the label is empty, beside {shorten(str(example.source))}",
                hint="each text needs a label; drop the line or fill it in.",
            )
        yield Example(example.source, label, example.where)


def only(paths: Sequence[str]) -> str:
    """The one path there is."""
    if len(paths) != 1:
        raise UsageError(
            f"{len(paths)} files where one, or two parallel ones, are needed",
            hint="join them with cat.",
        )
    return paths[0]


def _parallel(one: str, other: str, encoding: str | None) -> Iterator[Example]:
    """Line by line through two files; where both are blank there is no example. Blank lines at an end do not count."""
    for path in (one, other):
        if extension(path) in TABLES:
            raise UsageError(
                f"{path}: a table where a parallel file, one text a line, is needed",
                hint="give one table at a time; tables are joined with cat.",
            )
    for number, sides in enumerate(
        zip_longest(lines(one, encoding), lines(other, encoding)), start=1
    ):
        texts = ["" if side is None else side[1] for side in sides]
        if not any(text.strip() for text in texts):
            continue
        if None in sides:
            counts = [sum(1 for _ in lines(path, encoding)) for path in (one, other)]
            raise DataError(
                f"{display_name(one)} has {counts[0]:,} lines and {display_name(other)} has {counts[1]:,}",
                hint="line n of one belongs to line n of the other, so both need the same number of lines.",
            )
        yield Example(texts[0], texts[1], f"{display_name(one)}:{number}")


def source_key(source: str | tuple[str, ...] | np.ndarray, *, seed: int) -> int:
    """A number from 0 to 2**64 that depends on the source and on the seed: it decides whether an example is held out.

    A source that occurs twice, with two targets, is on one side both times, so nothing leaks; and the order of a file
    changes nothing.
    """
    if isinstance(source, np.ndarray):
        content = source.tobytes()
    else:
        content = (source if isinstance(source, str) else "\t".join(source)).encode(
            "utf-8", "surrogatepass"
        )
    digest = blake2b(content, digest_size=8, key=str(seed).encode()).digest()
    return int.from_bytes(digest, "big")


Keys = UInt64[np.ndarray, " N"]
Strata = Int[
    np.ndarray, " N"
]  # the label of each example as a number from 0, in the order of their names


def held_out_keys(
    keys: Keys, strata: Strata, *, fraction: float, most: int, fold: int = 1
) -> set[int]:
    """The keys of a fold: of each stratum those that are smallest, or that come after the folds before.

    At least one source is held out and one is left, up to `most`; of a stratum that has two, one is left as well. A
    source that occurs with several labels belongs to the first of them. Nothing where all sources are the same.
    """
    if not len(keys):
        return set()
    order = np.lexsort((strata, keys))
    keys, strata = keys[order], strata[order]
    is_first = np.append(True, keys[1:] != keys[:-1])
    strata = strata[is_first][np.cumsum(is_first) - 1]
    sizes = np.bincount(strata)
    counts = _in_proportion(sizes, max(1, min(int(len(keys) * fraction), most)))
    by_stratum = np.split(keys[np.argsort(strata, kind="stable")], np.cumsum(sizes)[:-1])
    chosen = {
        key
        for own, count in zip(by_stratum, counts, strict=True)
        for key in _slice(own, count, fold)
    }
    if not chosen and fold == 1 and len(sizes) > 1:  # no label has two sources
        return held_out_keys(keys, np.zeros_like(strata), fraction=fraction, most=most)
    return chosen


def _in_proportion(sizes: Int[np.ndarray, " K"], total: int) -> list[int]:
    """How many of each stratum: its share of the total, rounded so that strata that would have none come first."""
    counts, remainders = np.divmod(sizes * total, sizes.sum())
    waiting = np.lexsort((-remainders, counts > 0))
    waiting = waiting[(sizes[waiting] > 1) & (remainders[waiting] > 0)]
    counts[waiting[: total - counts.sum()]] += 1
    return [int(count) for count in counts]


def _slice(ranked: Keys, count: int, fold: int) -> Sequence[int]:
    """So many keys of a stratum, after those of the folds before; a source that occurs twice is in one fold."""
    before, chosen = ranked[: (fold - 1) * count], ranked[(fold - 1) * count : fold * count]
    if not len(chosen):
        return []
    is_in = ranked <= chosen[-1]
    if len(before):
        is_in &= ranked > before[-1]
    elif chosen[-1] == ranked[-1]:  # something is left to learn from
        is_in = ranked < ranked[-1]
    return [int(key) for key in ranked[is_in]]
