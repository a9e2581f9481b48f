"""Prepare a text for training a language model: encode it, store it, and cut it into parallel streams."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

from seqlab.codecs.codec import Codec, Files, Ids, Nothing
from seqlab.codecs.text import TextTarget, learn_tokenizer
from seqlab.corpus.examples import BLOCK, Corpus, store_sizes
from seqlab.data.lines import read_text
from seqlab.data.store import Column, TokenStore, write_stores
from seqlab.data.streams import Streams, in_chunks
from seqlab.padded import Batch
from seqlab.recipe import Recipe, StackConfig
from seqlab.text import Tokenizer

STREAM_ROWS_OF_VALIDATION = 100  # tokens of a stream that count as one held-out example
HELD_OUT_CHARACTERS = 250  # of a text, at most, for each of data.max_validation examples


def prepare_stream(
    recipe: Recipe, files: Files, valid: Files, folder: Path, old: Codec | None
) -> Codec:
    """Store the whole text as one sequence of ids; its last part is held out unless there is a file for that.

    The tokenizer of an `old` model stays as it is.
    """
    part_of = partial(_Text, encoding=recipe.data.encoding)
    total = sum(map(len, part_of(files, 0, None).blocks()))
    first = max(
        int(total * (1 - recipe.data.validation)),
        total - recipe.data.max_validation * HELD_OUT_CHARACTERS,
    )
    cut = total if valid else min(first, total - 2)
    train = part_of(files, 0, max(cut, 0))
    tokenizer = (
        learn_tokenizer(recipe.target, train.blocks()) if old is None else old.target_tokenizer
    )
    held_out = part_of(valid, 0, None) if valid else part_of(files, max(cut, 0), None)
    for part, text in (("train", train), ("validation", held_out)):
        rows = ((ids,) for ids in _encoded(tokenizer, text))
        write_stores([Column(folder / f"{part}_stream", len(tokenizer))], rows)
    return Codec(Nothing(), TextTarget(tokenizer))


def open_stream(recipe: Recipe, codec: Codec, folder: Path) -> Corpus:
    """Open the stores of `prepare_stream` as batches."""
    settings = recipe.train
    stores = {
        name: TokenStore.open(folder / name) for name in ("train_stream", "validation_stream")
    }
    streams = Streams(
        stores["train_stream"].flat,
        rows=settings.batch_rows,
        steps=settings.bptt,
        seed=settings.seed,
        carries=carries_state(recipe),
    )
    held_out = stores["validation_stream"].flat[
        : recipe.data.max_validation * STREAM_ROWS_OF_VALIDATION
    ]
    return Corpus(codec, streams, lambda: stream_in_order(recipe, held_out), store_sizes(stores))


def read_tokens(tokenizer: Tokenizer, files: Files, encoding: str | None = None) -> np.ndarray:
    """Return the ids of the text in files."""
    text = _Text(files, 0, None, encoding)
    return np.concatenate([np.asarray(ids, dtype=np.int64) for ids in _encoded(tokenizer, text)])


def carries_state(recipe: Recipe) -> bool:
    """Whether a batch of a stream continues the state of the one before, as recurrent and classical models do."""
    return isinstance(recipe.model.decoder, StackConfig) or bool(recipe.model.classical)


def stream_in_order(recipe: Recipe, tokens: np.ndarray) -> Iterator[Batch]:
    """Yield batches that predict every token but the first once: one long stream, or chunks as in training."""
    if carries_state(recipe):  # a thousand steps need no more memory than a training batch
        return in_chunks(tokens, steps=1000, rows=1)
    return in_chunks(tokens, steps=recipe.train.bptt, rows=recipe.train.batch_rows)


@dataclass(frozen=True)
class _Text:
    """The text of files from one character to another, read a block of lines at a time."""

    paths: Files
    start: int
    stop: int | None
    encoding: str | None = None

    def blocks(self) -> Iterator[str]:
        offset = 0
        text = read_text(self.paths, self.encoding)
        while block := "".join(islice(text, BLOCK)):
            stop = len(block) if self.stop is None else self.stop - offset
            piece = block[max(0, self.start - offset) : max(0, stop)]
            offset += len(block)
            if piece:
                yield piece


def _encoded(tokenizer: Tokenizer, text: _Text) -> Iterator[Ids]:
    return (tokenizer.encode(block) for block in text.blocks())
