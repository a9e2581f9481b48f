"""Pairs of texts and labelled texts, read from two columns of a table, two parallel files, or a folder.

The format follows from the file's name (.tsv .csv .jsonl .parquet; text also .gz) and from its content. Every reader
is a generator that holds one example in memory.
"""

import os
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

from seqlab.data.example import Example, at_least_one
from seqlab.data.lines import display_name, extension, lines
from seqlab.data.tables import TABLES
from seqlab.data.text_columns import Layout, RequestedColumns, read_two_columns
from seqlab.errors import DataError, UsageError, shorten, warn

TEXT_SUFFIXES = ("", ".txt", ".text")  # of the files in a folder of texts
_PAIRS = Layout(names=("source", "target"), positions=(0, 1))
_LABELLED = Layout(names=("text", "label"), positions=(1, 0), few_labels=True)


def read_pairs(
    paths: Sequence[str],
    *,
    source: str | None = None,
    target: str | None = None,
    encoding: str | None = None,
) -> Iterator[Example]:
    """Read pairs of texts from two columns of a table, or from two parallel files."""
    return at_least_one(two_texts(paths, (source, target), _PAIRS, encoding), paths)


def read_labelled(
    paths: Sequence[str],
    *,
    text: str | None = None,
    label: str | None = None,
    encoding: str | None = None,
) -> Iterator[Example]:
    """Read texts with a label each from a table, a file of texts and a file of labels, or a folder.

    A folder has a file for each text in a sub-folder for each label, or a file for each label with a text on each line.
    """
    if len(paths) == 1 and os.path.isdir(paths[0]):
        return at_least_one(_in_folder(paths[0], encoding), paths)
    return at_least_one(_labelled(two_texts(paths, (text, label), _LABELLED, encoding)), paths)


def two_texts(
    paths: Sequence[str], columns: RequestedColumns, layout: Layout, encoding: str | None
) -> Iterator[Example]:
    """Read pairs of texts; `columns` and `layout` say which two columns of a table they are."""
    if len(paths) == 2:
        name = columns[0] or columns[1]
        if name is not None:
            raise UsageError(
                f"column '{name}' was requested, but two parallel files have no columns",
                hint="give one table, or leave the columns out.",
            )
        yield from _parallel(paths[0], paths[1], encoding)
    else:
        path = single_path(paths)
        for where, (source, target) in read_two_columns(path, columns, layout, encoding):
            yield Example(source, target, where)


def single_path(paths: Sequence[str]) -> str:
    """Return the path if there is exactly one."""
    if len(paths) != 1:
        raise UsageError(
            f"{len(paths)} files where one, or two parallel ones, are needed",
            hint="join them with cat.",
        )
    return paths[0]


def _in_folder(path: str, encoding: str | None) -> Iterator[Example]:
    """Read texts whose label is the name of their sub-folder, or of their file if there are no sub-folders."""
    files = [
        file
        for file in sorted(Path(path).rglob("[!.]*"))
        if file.is_file() and file.suffix.lower() in TEXT_SUFFIXES
    ]
    a_text_a_line = all(file.parent == Path(path) for file in files)
    for file in files:
        texts = lines(str(file), encoding)
        if not a_text_a_line:
            yield Example("\n".join(text for _, text in texts), file.parent.name, str(file))
            continue
        for number, text in texts:
            if text.strip():
                yield Example(text, file.stem, f"{file}:{number}")


def _labelled(examples: Iterator[Example]) -> Iterator[Example]:
    """Drop examples without a label; if many have none, refuse the file, because the column is probably wrong."""
    total, unlabelled = 0, list[Example]()
    for example in examples:
        total += 1
        if label := str(example.target).strip():
            yield Example(example.source, label, example.where)
        else:
            unlabelled.append(example)
    if not unlabelled:
        return
    first = unlabelled[0]
    if 10 * len(unlabelled) > total:
        raise DataError(
            f"{first.where}: the label of {shorten(str(first.source))} is empty",
            hint="each text needs a label; fill it in, or drop the line.",
        )
    count = f"{len(unlabelled)} row{'s have' if len(unlabelled) > 1 else ' has'} no label"
    verb = "are" if len(unlabelled) > 1 else "is"
    warn(f"{count} and {verb} left out, the first is {first.where}")


def _parallel(source: str, target: str, encoding: str | None) -> Iterator[Example]:
    """Read two files line by line. Lines that are blank in both are skipped."""
    for path in (source, target):
        if extension(path) in TABLES:
            raise UsageError(
                f"{path}: a table where a parallel file, one text a line, is needed",
                hint="give one table at a time; join tables with cat.",
            )
    pairs = zip_longest(lines(source, encoding), lines(target, encoding))
    for number, sides in enumerate(pairs, start=1):
        texts = ["" if side is None else side[1] for side in sides]
        if not any(text.strip() for text in texts):
            continue
        if None in sides:
            counts = [sum(1 for _ in lines(path, encoding)) for path in (source, target)]
            raise DataError(
                f"{display_name(source)} has {counts[0]:,} lines and {display_name(target)} has {counts[1]:,}",
                hint="line n of one file belongs to line n of the other, so both need the same number of lines; "
                "files of texts with one label each belong in a folder: seqlab train classify FOLDER",
            )
        yield Example(texts[0], texts[1], f"{display_name(source)}:{number}")
