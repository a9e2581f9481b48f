"""Pretrained word vectors in the usual text format: a word and its numbers on each line (S23)."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float32

from seqlab.data.lines import display_name, numbered_lines
from seqlab.errors import DataError, shorten


def read_word_vectors(path: str) -> Iterator[tuple[str, Float32[np.ndarray, " D"]]]:
    """Words with their vectors, one at a time; a line that is cut off is an error that names it."""
    size: int | None = None
    for number, line in numbered_lines(path):
        word, *cells = line.rstrip().split(" ")
        if number == 1 and len(cells) == 1 and word.isdecimal() and cells[0].isdecimal():
            continue  # how many words, how many numbers
        try:
            vector = np.asarray(cells, dtype=np.float32)
        except ValueError:
            raise _odd(path, number, f"not a word and its numbers: {shorten(line)}") from None
        size = size or len(vector)
        if len(vector) != size or not size or not np.isfinite(vector).all():
            raise _odd(
                path,
                number,
                f"{len(vector)} numbers where {size} finite ones are needed: {shorten(line)}",
            )
        yield word, vector
    if size is None:
        raise DataError(
            f"{display_name(path)}: there are no word vectors in it",
            hint="give a file that has some.",
        )


def _odd(path: str, number: int, message: str) -> DataError:
    return DataError(
        f"{display_name(path)}:{number}: {message}",
        hint="one word a line, then its numbers, separated by single spaces; was the file cut off?",
    )
