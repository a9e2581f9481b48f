"""Files -> examples, one at a time: pairs, labelled texts, tagged words; and which of them are held out.

The format follows from the file's name (.tsv .csv .jsonl .parquet .conll .conllu; text also .gz); two files are
parallel. Every reader is a generator that holds one example in memory, and every example knows where it stands.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain, islice, zip_longest
from typing import Any

import numpy as np
from jaxtyping import Float32, Shaped

from seqlab.data.lines import display_name, extension, lines
from seqlab.data.tables import TABLES, Columns, Layout, two_columns
from seqlab.errors import DataError, UsageError, nearest, shorten

Text = str | tuple[str, ...]
Vectors = Float32[np.ndarray, "_ _"]
_PAIRS = Layout(names=("source", "target"), positions=(0, 1), names_may_differ=True)
_LABELLED = Layout(names=("text", "label"), positions=(1, 0), names_may_differ=False)
_LOOKED_AT = 100  # rows, to see whether words or characters are tagged
_TAGGED = Layout(names=("words", "tags"), positions=(0, 1), names_may_differ=True)
_CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")


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


Box = tuple[str, float, float, float, float]  # a word, and where what it names lies: left, top, right, bottom, of 1


@dataclass(frozen=True)
class Example:
    """One source with its target, as strings, tuples of words, feature vectors or a picture, and the "file:line" it
    came from. `boxes` say where in a picture the things are that the target names, where that is known."""

    source: Any  # Text, Vectors or a Picture
    target: Any  # Text, or Vectors where a target is measured
    where: str
    boxes: tuple[Box, ...] = ()


def read_pairs(paths: Sequence[str], *, source: str | None = None, target: str | None = None) -> Iterator[Example]:
    """Pairs of texts from two columns of a table, or from two parallel files."""
    return _at_least_one(_two_texts(paths, (source, target), _PAIRS), paths)


def read_labelled(paths: Sequence[str], *, text: str | None = None, label: str | None = None) -> Iterator[Example]:
    """Texts with a label each, from two columns of a table, or from a file of texts beside a file of labels."""
    return _at_least_one(_with_labels(_two_texts(paths, (text, label), _LABELLED)), paths)


def read_tagged(paths: Sequence[str], *, words: str | None = None, tag: str | None = None) -> Iterator[Example]:
    """Sentences as tuples of words with a tag each: CoNLL-U, CoNLL, two columns of a table, or two parallel files.

    `tag` chooses the column: in CoNLL-U by name (upos unless told) or number, in CoNLL by number (else the last), in a
    table as `words` does, by either.
    """
    if len(paths) == 2 or _is_table(_only(paths), named=words is not None or not (tag or "0").isdecimal()):
        sentences = _aligned(_two_texts(paths, (words, tag), _TAGGED), paths)
    elif extension(_only(paths)) == ".conllu":
        sentences = _sentences(_conllu_words(paths[0], _conllu_column(tag)))
    else:
        sentences = _sentences(_conll_words(paths[0], _conll_column(tag)))
    return _at_least_one(sentences, paths)


def _at_least_one(examples: Iterator[Example], paths: Sequence[str]) -> Iterator[Example]:
    empty = True
    for example in examples:
        empty = False
        yield example
    if empty:
        names = " and ".join(display_name(path) for path in paths)
        raise DataError(f"{names}: no example was found", hint="there is no line after the header, or only comments.")


def _two_texts(paths: Sequence[str], wanted: Columns, layout: Layout) -> Iterator[Example]:
    if len(paths) == 2:
        _refuse_columns(wanted)
        for where, one, other in _parallel(paths[0], paths[1]):
            yield Example(one, other, where)
    else:
        for where, (one, other) in two_columns(_only(paths), wanted, layout):
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


def _only(paths: Sequence[str]) -> str:
    if len(paths) != 1:
        raise UsageError(f"{len(paths)} files where one, or two parallel ones, are needed", hint="join them with cat.")
    return paths[0]


def _refuse_columns(wanted: Sequence[str | None]) -> None:
    named = [name for name in wanted if name is not None]
    if named:
        raise UsageError(
            f"the column '{named[0]}' was asked for, but two parallel files have no columns",
            hint="give one table, or leave the columns out.",
        )


def _parallel(one: str, other: str) -> Iterator[tuple[str, str, str]]:
    """Line by line through two files; where both are blank there is no example. Blank lines at an end do not count."""
    for path in (one, other):
        if extension(path) in TABLES:
            raise UsageError(
                f"{path}: a table where a parallel file, one text a line, is needed",
                hint="give one table at a time; tables are joined with cat.",
            )
    totals, counts = [0, 0], [0, 0]  # all lines, and lines up to the last that is not blank
    for number, sides in enumerate(zip_longest(lines(one), lines(other)), start=1):
        texts = ["" if side is None else side[1] for side in sides]
        totals = [total if side is None else number for side, total in zip(sides, totals, strict=True)]
        counts = [number if text.strip() else count for text, count in zip(texts, counts, strict=True)]
        if None not in sides and any(text.strip() for text in texts):
            yield f"{display_name(one)}:{number}", texts[0], texts[1]
    if counts[0] > totals[1] or counts[1] > totals[0]:
        raise DataError(
            f"{display_name(one)} has {totals[0]:,} lines and {display_name(other)} has {totals[1]:,}",
            hint="line n of one belongs to line n of the other, so both need the same number of lines.",
        )


def _is_table(path: str, *, named: bool) -> bool:
    """Whether a row is a sentence. A .tsv may as well have a word a row: then blank lines stand between sentences."""
    if named or extension(path) != ".tsv":
        return extension(path) in TABLES
    head = [text.strip() for _, text in islice(lines(path), 10 * _LOOKED_AT)]
    while head and not head[-1]:
        head.pop()
    cells = [text.split("\t") for text in head]
    like = [len(row) > 1 and len(row[0]) == len(row[1]) > 1 for row in cells]
    return "" not in head and (any(" " in text for text in head) or 2 * sum(like) > len(like))


def _aligned(pairs: Iterator[Example], paths: Sequence[str]) -> Iterator[Example]:
    """A word is what stands between spaces, or where there are none, a character."""
    head = list(islice(pairs, _LOOKED_AT))
    cut = tuple if _spelled(head) else str.split
    for pair in chain(head, pairs):
        words, tags = str(pair.source).strip(), str(pair.target).strip()
        source, target = tuple(cut(words)), tuple(cut(tags))
        if len(source) != len(target):
            line, file = pair.where.rpartition(":")[2], display_name(paths[-1])
            what = "characters" if cut is tuple else "words"
            raise DataError(
                f"{pair.where}: {len(source)} {what} but {len(target)} tags: {shorten(words)}",
                hint=f"each word needs one tag, separated by spaces; line {line} of {file} has {shorten(tags)}.",
            )
        if source:
            yield Example(source, target, pair.where)


def _spelled(pairs: Sequence[Example]) -> bool:
    """Whether characters are tagged, as in proteins: there is no space anywhere, and the lengths agree as a rule."""
    sides = [(str(pair.source).strip(), str(pair.target).strip()) for pair in pairs]
    like = [len(words) == len(tags) > 1 for words, tags in sides]
    return 2 * sum(like) > len(like) and not any(" " in side for both in sides for side in both)


Word = tuple[str, str, str]  # "file:line", the word, its tag


def _sentences(words: Iterator[Word | None]) -> Iterator[Example]:
    """Words up to a None are a sentence."""
    sentence: list[Word] = []
    for word in words:
        if word is not None:
            sentence.append(word)
        elif sentence:
            yield _sentence(sentence)
            sentence = []
    if sentence:
        yield _sentence(sentence)


def _sentence(words: Sequence[Word]) -> Example:
    places, source, target = zip(*words, strict=True)
    return Example(source, target, places[0])


def _conll_column(tag: str | None) -> int | None:
    """The place of the tag's column, None for the last one."""
    if tag is None:
        return None
    if not tag.isdecimal() or int(tag) < 2:
        raise UsageError(
            f"'{tag}' is not a column of tags in a CoNLL file",
            hint="its columns have no names: give a number from 2 (the word is column 1), or nothing for the last.",
        )
    return int(tag) - 1


def _conll_words(path: str, column: int | None) -> Iterator[Word | None]:
    for number, text in lines(path):
        if not text.strip() or text.startswith("-DOCSTART-"):
            yield None
            continue
        # A word may hold spaces where tabs separate the columns.
        cells = [cell.strip() for cell in text.split("\t")] if "\t" in text else text.split()
        needed = 2 if column is None else column + 1
        place = len(cells) - 1 if column is None else column
        where = f"{display_name(path)}:{number}"
        if len(cells) < needed or not cells[place]:
            raise _missing_tag(where, cells, needed)
        yield where, cells[0], cells[place]


def _conllu_column(tag: str | None) -> int:
    tag = "upos" if tag is None else tag.lower()
    if tag.isdecimal() and 2 <= int(tag) <= len(_CONLLU):
        return int(tag) - 1
    if tag not in _CONLLU:
        raise UsageError(f"there is no column '{tag}' in a CoNLL-U file", hint=nearest(tag, _CONLLU))
    return _CONLLU.index(tag)


def _conllu_words(path: str, column: int) -> Iterator[Word | None]:
    """Multiword tokens ("3-4") and empty nodes ("5.1") are not words of their own."""
    for number, text in lines(path):
        if not text.strip():
            yield None
            continue
        if text.startswith("#"):
            continue
        cells = text.split("\t")
        where = f"{display_name(path)}:{number}"
        if len(cells) != len(_CONLLU):
            raise _missing_tag(where, cells, len(_CONLLU))
        if "-" not in cells[0] and "." not in cells[0]:
            yield where, cells[1], cells[column]


def _missing_tag(where: str, cells: Sequence[str], needed: int) -> DataError:
    shown = ", ".join(f"{place} {shorten(cell, 20)}" for place, cell in enumerate(cells, start=1))
    seen = f"{len(cells)} column{'s' if len(cells) != 1 else ''} where {needed} are needed"
    return DataError(
        f"{where}: {seen if len(cells) != needed else 'an empty tag'}: {shorten(' '.join(cells))}",
        hint=f"one word a line, its columns separated by tabs or spaces, a blank line after a sentence; here: {shown}.",
    )


def source_key(source: str | tuple[str, ...] | np.ndarray, *, seed: int) -> int:
    """A number from 0 to 2**64 that depends on the source and on the seed: it decides whether an example is held out.

    A source that occurs twice, with two targets, is on one side both times, so nothing leaks; and the order of a file
    changes nothing.
    """
    if isinstance(source, np.ndarray):
        content = source.tobytes()
    else:
        content = (source if isinstance(source, str) else "\t".join(source)).encode("utf-8", "surrogatepass")
    digest = blake2b(content, digest_size=8, key=str(seed).encode()).digest()
    return int.from_bytes(digest, "big")


def border(keys: Iterable[int], *, fraction: float, most: int) -> int | None:
    """The key below or at which a source is held out: the smallest `fraction` of them, at least one, up to `most`.

    None where holding out would leave nothing to train on: all sources are the same one.
    """
    ranked = np.sort(np.fromiter(keys, dtype=np.uint64))
    if len(ranked) == 0 or ranked[0] == ranked[-1]:
        return None
    count = max(1, min(int(len(ranked) * fraction), most))
    below = int(ranked[count - 1])
    return below if below < int(ranked[-1]) else int(ranked[ranked < ranked[-1]][-1])
