"""Read sequences of feature vectors with labels or texts: speech frames, pen strokes, sensors, saved by NumPy.

The label is in a table next to the path of an .npy file, or it is the name of the file's directory, or it is in the
same .npz. Pretrained word vectors are in a text file, a word and its numbers on each line (S23).

Files are not trusted: headers are checked before anything is allocated, arrays of objects (which are pickles) are
refused, and no table can refer to files outside its own directory.
"""

import os
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Integer, Shaped

from seqlab.data.arrays import SavedArray, is_outside, open_member, open_saved, texts_of
from seqlab.data.example import Example, Vectors
from seqlab.data.labelled_rows import find_labelled_rows, read_labelled_rows
from seqlab.data.lines import display_name, extension, numbered_lines
from seqlab.data.tables import TABLES
from seqlab.data.text_columns import Layout, read_two_columns
from seqlab.errors import DataError, UsageError, shorten

_LAYOUT = Layout(names=("file", "label"), positions=(0, 1))
_FORMATS = (
    "frames come from a table (.tsv, .csv, .jsonl) of .npy files and labels, or of a label and numbers in each row; a "
    "directory with a labels.tsv or with a sub-directory of .npy files for each label; or an .npz with values, "
    "lengths and labels."
)
Labelled = tuple[str, Vectors, tuple[str, ...]]  # location, frames, label or labels


def read_vectors(
    paths: Sequence[str],
    *,
    target: str | None = None,
    words: bool = False,
    few_labels: bool = False,
) -> Iterator[Example]:
    """Read sequences of frames with a label or a text each; with `words`, a tuple of labels, one for each frame.

    In a table the columns are `file` and `label`, else the first two; the labels of frames are separated by spaces.
    `target` chooses another column, or another array of an .npz. With `few_labels`, a column of texts is refused.
    """
    layout = replace(_LAYOUT, few_labels=few_labels)
    first: tuple[str, int] | None = None
    for path in paths:
        for where, vectors, labels in _labelled(path, target, layout, words=words):
            first = first or (where, vectors.shape[1])
            if vectors.shape[1] != first[1]:
                raise DataError(
                    f"{where}: {vectors.shape[1]} features where {first[0]} has {first[1]}",
                    hint="all frames of all sequences need the same features; perhaps one of the two is transposed.",
                )
            if words and len(labels) != len(vectors):
                raise DataError(
                    f"{where}: {len(vectors)} frames but {len(labels)} labels: {shorten(' '.join(labels))}",
                    hint="each frame needs one label; in a table they are separated by spaces.",
                )
            if not all(labels):
                raise DataError(
                    f"{where}: the label is empty", hint="fill it in, or drop the sequence."
                )
            yield Example(vectors, labels if words else labels[0], where)
    if first is None:
        raise DataError(f"{' and '.join(paths)}: no example was found", hint=_FORMATS)


def _labelled(path: str, target: str | None, layout: Layout, *, words: bool) -> Iterator[Labelled]:
    if os.path.isdir(path):
        tables = [
            name
            for name in ("labels.tsv", "labels.csv")
            if os.path.isfile(os.path.join(path, name))
        ]
        if not tables:
            return _in_folders(path, target)
        path = os.path.join(path, tables[0])
    rows = None if words else find_labelled_rows(path, target)
    if rows is not None:
        return read_labelled_rows(path, rows)
    if extension(path) in TABLES:
        return _in_table(path, target, layout, words=words)
    if extension(path) == ".npz":
        return _in_archive(path, target or "labels", words=words)
    raise DataError(
        f"{path}: frames with labels are not read from this kind of file", hint=_FORMATS
    )


def _in_table(path: str, target: str | None, layout: Layout, *, words: bool) -> Iterator[Labelled]:
    for line, (name, text) in read_two_columns(path, (None, target), layout):
        name = name.strip()
        where = f"{line} ({name})"
        if is_outside(name):
            raise DataError(
                f"{where}: this path is outside the table's directory",
                hint="paths are relative to the table, without '..': keep the files in its directory or below.",
            )
        vectors = load_vectors(os.path.join(os.path.dirname(path), name), where)
        yield where, vectors, tuple(text.split()) if words else (text.strip(),)


def _in_folders(path: str, target: str | None) -> Iterator[Labelled]:
    if target is not None:
        raise UsageError(
            f"column '{target}' was requested, but {path} has no labels.tsv",
            hint="leave it out.",
        )
    for file in sorted(Path(path).glob("[!.]*/[!.]*.npy")):
        yield str(file), load_vectors(str(file)), (file.parent.name,)


def _in_archive(path: str, target: str, *, words: bool) -> Iterator[Labelled]:
    """Read frames end to end, (frames, features), or padded sequences, (sequences, frames, features)."""
    with open_saved(path, path) as file, zipfile.ZipFile(file) as archive:
        values = open_member(archive, path, "values", "numbers")
        labels = open_member(archive, path, target, "numbers or strings")
        if labels.shape[1:] == (1,):
            labels.shape = labels.shape[:1]
        a_row_each = len(values.shape) == 2 and values.shape[:1] == labels.shape and not words
        has_lengths = "lengths.npy" in archive.namelist()
        padded = len(values.shape) == 3 or (a_row_each and not has_lengths)
        lengths = _lengths(archive, path, values, padded=padded)
        needed = values.shape[: 1 + padded] if words else lengths.shape
        if labels.shape != needed:
            raise DataError(
                f"{path}: '{target}' has shape {labels.shape} where {needed} is needed",
                hint=f"there is one label for each {'frame' if words else 'sequence'}.",
            )
        for number, length in enumerate(map(int, lengths)):
            where, count = f"{path}[{number}]", 1 if padded else length
            frames = values.take(count).reshape(-1, *values.shape[1 + padded :])[:length]
            texts = labels.take(count if words else 1).reshape(-1)[:length].tolist()
            yield where, as_vectors(frames, where), tuple(texts_of(texts))


def _lengths(
    archive: zipfile.ZipFile, path: str, values: SavedArray, *, padded: bool
) -> Integer[np.ndarray, " N"]:
    """Read the number of frames of each sequence; without the array 'lengths', padded sequences are all full."""
    most = values.shape[1] if padded else values.shape[0]
    if padded and "lengths.npy" not in archive.namelist():
        return np.broadcast_to(most, values.shape[:1])
    lengths = open_member(archive, path, "lengths", "integers").all().reshape(-1)
    outside = np.flatnonzero((lengths < 1) | (lengths > most))
    total = lengths.sum(dtype=np.int64)
    if outside.size:
        index = outside[0]
        problem = f"length {index} is {lengths[index]} where 1 to {most} frames are possible"
    elif padded and len(lengths) != values.shape[0]:
        problem = f"{len(lengths)} lengths for {values.shape[0]} sequences"
    elif not padded and total != most:
        problem = f"the lengths add up to {total} frames where 'values' has {most}"
    else:
        return lengths
    raise DataError(
        f"{path}: {problem}", hint="'lengths' is the number of frames of each sequence, in order."
    )


def load_vectors(path: str, where: str | None = None) -> Vectors:
    """Read the frames in one .npy file; a one-dimensional array is a sequence of single numbers."""
    where = where or path
    with open_saved(path, where) as file:
        return as_vectors(SavedArray(file, os.path.getsize(path), where, "numbers").all(), where)


def as_vectors(values: Shaped[np.ndarray, "T *F"], where: str) -> Vectors:
    """Return frames as float32; refuse other shapes, and numbers that are not finite."""
    if values.ndim > 2:
        raise DataError(
            f"{where}: an array of shape {values.shape} where (frames, features) is needed",
            hint="one file holds one sequence; values.reshape(len(values), -1) makes one vector of each frame.",
        )
    values = values.reshape(len(values), -1)
    with np.errstate(over="ignore"):  # a number too large for float32 becomes infinite
        vectors = values.astype(np.float32, order="C")
    wrong = np.argwhere(~np.isfinite(vectors))
    if wrong.size:
        frame, feature = wrong[0]
        raise DataError(
            f"{where}: frame {frame}, feature {feature} is {values[frame, feature]} where a finite number is needed",
            hint="frames and features are counted from 0; fill such values in, or drop the sequence.",
        )
    return vectors


def read_word_vectors(path: str) -> Iterator[tuple[str, Float32[np.ndarray, " D"]]]:
    """Yield words with their vectors; a line that is cut short is an error that names it."""
    size: int | None = None
    for number, line in numbered_lines(path):
        word, *cells = line.rstrip().split(" ")
        if number == 1 and len(cells) == 1 and word.isdecimal() and cells[0].isdecimal():
            continue  # a header: the number of words, and the size of their vectors
        try:
            vector = np.asarray(cells, dtype=np.float32)
        except ValueError:
            problem = f"not a word and its numbers: {shorten(line)}"
            raise _malformed_line(path, number, problem) from None
        size = size or len(vector)
        if len(vector) != size or not size or not np.isfinite(vector).all():
            problem = f"{len(vector)} numbers where {size} finite ones are needed: {shorten(line)}"
            raise _malformed_line(path, number, problem)
        yield word, vector
    if size is None:
        raise DataError(
            f"{display_name(path)}: there are no word vectors in it",
            hint="give a file that has some.",
        )


def _malformed_line(path: str, number: int, problem: str) -> DataError:
    return DataError(
        f"{display_name(path)}:{number}: {problem}",
        hint="one word a line, then its numbers, separated by single spaces; perhaps the file was cut short.",
    )
