"""The user's files, prepared for training: vocabularies learnt, ids stored, a part held out."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path

import numpy as np

from seqlab.assemble.fitted import BLOCK, Fitted, warn
from seqlab.assemble.pictured import STORE, is_pictured, picture_examples, shared_pictures, store_pictures
from seqlab.assemble.series import open_windows, prepare_series
from seqlab.assemble.vocabularies import (
    LONGEST_WORD,
    Ids,
    Vocabularies,
    labels_of,
    learn_text,
    learn_vocabularies,
)
from seqlab.data.batching import Rows, plan, plan_in_order
from seqlab.data.lines import display_name, lines, read_text
from seqlab.data.sources import Example, Picture, Vectors, read_labelled, read_pairs, read_tagged
from seqlab.data.split import border, source_key
from seqlab.data.store import Column, TokenStore, write_stores
from seqlab.data.streams import Streams, in_chunks, in_order
from seqlab.data.vectors import read_vectors
from seqlab.data.windows import Windows
from seqlab.errors import DataError, shorten
from seqlab.padded import Batch
from seqlab.recipe import Recipe, Stack
from seqlab.text import Tokenizer

HELD_OUT = "held-out.jsonl"  # the validation examples as text, for scores that need decoding
STREAM_ROWS_OF_VALIDATION = 100  # tokens of a stream that count as one held-out example
HELD_OUT_CHARACTERS = 250  # of a text, for each such example: a gigabyte needs no hundred megabytes to be scored on


class ExampleBatches:
    """Examples in length-bucketed batches; an epoch's plan depends on (seed, epoch) alone."""

    carries = False

    def __init__(self, rows: Rows | Windows, *, budget: int, seed: int) -> None:
        self.rows = rows
        self._plan = lru_cache(maxsize=2)(lambda epoch: plan(rows.lengths, budget=budget, seed=seed, epoch=epoch))

    def num_batches(self, epoch: int) -> int:
        return len(self._plan(epoch))

    def batch(self, epoch: int, index: int) -> Batch:
        return self.rows.batch(self._plan(epoch)[index])


class StreamBatches:
    """One endless text in parallel streams. A recurrent model goes on where the last batch ended (E35); a Transformer
    begins each chunk anew: the chunk is its context."""

    def __init__(self, streams: Streams, *, carries: bool) -> None:
        self.streams, self.carries = streams, carries

    def num_batches(self, epoch: int) -> int:
        return self.streams.num_batches(epoch)

    def batch(self, epoch: int, index: int) -> Batch:
        return self.streams.batch(epoch, index)


@dataclass(frozen=True)
class Corpus:
    """What training needs of the data."""

    vocabularies: Vocabularies
    train: ExampleBatches | StreamBatches
    validation: Callable[[], Iterable[Batch]]
    size: dict[str, int]  # examples and tokens of each part

    @property
    def carries(self) -> bool:
        return self.train.carries


def read_examples(recipe: Recipe, paths: Sequence[str]) -> Iterator[Example]:
    """The examples in the user's files, as the task reads them."""
    data = recipe.data
    if recipe.task in ("lm", "mask", "bilm"):
        return _lines(recipe, paths)
    if is_pictured(recipe):
        return picture_examples(recipe, paths)
    if recipe.source.kind == "vectors":
        return read_vectors(paths, target=data.target, words=recipe.task == "tag")
    if recipe.task == "tag":
        return read_tagged(paths, words=data.source, tag=data.target)
    if recipe.task == "classify":
        return read_labelled(paths, text=data.source, label=data.target)
    return read_pairs(paths, source=data.source, target=data.target)


def _lines(recipe: Recipe, paths: Sequence[str]) -> Iterator[Example]:
    """Plain text, a line at a time: what a language model writes, or what one of both directions reads."""
    for path in paths:
        for number, line in lines(path):
            if line.strip():
                where = f"{display_name(path)}:{number}"
                yield Example("", line, where) if recipe.task == "lm" else Example(line, "", where)


def prepare(
    recipe: Recipe, paths: Sequence[str], valid: Sequence[str], folder: Path, given: Vocabularies | None = None
) -> Vocabularies:
    """Learn the vocabularies and store the ids of both parts in `folder`.

    `valid` names the held-out files, if any; `given` are the vocabularies of a model to start from.
    """
    if recipe.task == "forecast":
        return Vocabularies(series=prepare_series(recipe, paths, valid, folder))
    if is_stream(recipe):
        return _prepare_stream(recipe, paths, valid, folder, given)
    return _prepare_examples(recipe, paths, valid, folder, given)


def open_corpus(recipe: Recipe, vocabularies: Vocabularies, folder: Path) -> Corpus:
    """What `prepare` has stored, as batches."""
    settings = recipe.train
    if recipe.task == "forecast":
        return _open_series(recipe, vocabularies, folder)
    stores = {path.stem: TokenStore.open(path.with_suffix("")) for path in sorted(folder.glob("*.json"))}
    size = {f"{name}_{what}": n for name, store in stores.items() for what, n in _counts(store).items()}
    if "train_stream" in stores:
        streams = Streams(
            stores["train_stream"].flat, rows=settings.batch_rows, steps=settings.bptt, seed=settings.seed
        )
        held_out = stores["validation_stream"].flat[: recipe.data.max_validation * STREAM_ROWS_OF_VALIDATION]
        carries = carries_state(recipe)
        return Corpus(
            vocabularies, StreamBatches(streams, carries=carries), lambda: stream_in_order(recipe, held_out), size
        )
    train, validation = (
        Rows(source=shared_pictures(stores, part) or stores.get(f"{part}_source"), target=stores.get(f"{part}_target"))
        for part in ("train", "validation")
    )
    in_sequence = plan_in_order(validation.lengths, budget=settings.batch_tokens)
    batches = ExampleBatches(train, budget=settings.batch_tokens, seed=settings.seed)
    return Corpus(vocabularies, batches, lambda: (validation.batch(rows) for rows in in_sequence), size)


def _open_series(recipe: Recipe, vocabularies: Vocabularies, folder: Path) -> Corpus:
    parts, budget = open_windows(recipe, vocabularies.variables, folder), recipe.train.batch_tokens
    validation = parts["validation"]
    most = max(1, recipe.data.max_validation // validation.num_variables)
    size = {f"{name}_windows": len(part) for name, part in parts.items()}
    return Corpus(
        vocabularies,
        ExampleBatches(parts["train"], budget=budget, seed=recipe.train.seed),
        lambda: (validation.batch(rows) for rows in validation.in_order(budget=budget, most=most)),
        size,
    )


def is_stream(recipe: Recipe) -> bool:
    """Whether the data is one endless text rather than examples."""
    return recipe.task == "lm" and recipe.data.unit == "stream"


def carries_state(recipe: Recipe) -> bool:
    """Whether a batch of a stream goes on where the last one ended: what has a state can, at no cost."""
    return isinstance(recipe.model.decoder, Stack) or recipe.model.hmm is not None


def stream_in_order(recipe: Recipe, tokens: np.ndarray) -> Iterator[Batch]:
    """A text for evaluation, every token but the first predicted once: in one long stream, or in chunks as trained."""
    if carries_state(recipe):  # a thousand steps cost no more memory than a batch of training
        return in_order(tokens, steps=1000)
    return in_chunks(tokens, steps=recipe.train.bptt, rows=recipe.train.batch_rows)


def _counts(store: TokenStore) -> dict[str, int]:
    return {"rows": len(store), "tokens": store.num_tokens}


def _prepare_examples(
    recipe: Recipe, paths: Sequence[str], valid: Sequence[str], folder: Path, given: Vocabularies | None
) -> Vocabularies:
    parts: list[Part] = [partial(read_examples, recipe, files) for files in ((paths, valid) if valid else (paths,))]
    if is_pictured(recipe):
        stored = store_pictures(recipe, (paths, valid) if valid else (paths,), folder)
        parts = [partial(iter, examples) for examples in stored]
    train, validation = parts if valid else _two_parts(recipe, parts[0], paths)
    vocabularies = learn_vocabularies(recipe, train, given)
    _warn_of_labels(vocabularies, validation)
    for part, examples in (("train", train), ("validation", validation)):
        _write_part(recipe, vocabularies, examples(), folder, part)
    with (folder / HELD_OUT).open("w", encoding="utf-8") as file:
        for example in islice(validation(), recipe.data.max_validation):
            row = (
                _storable(example.source),
                example.target,
                example.where,
                *([example.boxes] if example.boxes else []),
            )
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    return vocabularies


def _storable(source: object) -> object:
    if isinstance(source, Picture):
        return {"name": source.name, "place": source.place}
    return source.tolist() if isinstance(source, np.ndarray) else source


def held_out(folder: Path) -> Iterator[Example]:
    """The validation examples again, as they were in the user's files."""
    pictures = TokenStore.open(folder / STORE) if (folder / f"{STORE}.json").exists() else None
    with (folder / HELD_OUT).open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            try:
                source, target, where, *boxes = json.loads(line)
            except ValueError:
                raise DataError(
                    f"{folder / HELD_OUT}:{number}: not a held-out example: {shorten(line)}",
                    hint="the file was changed or cut; give a file to evaluate on, or train again.",
                ) from None
            if pictures is not None:
                picture = Picture(source["name"], pictures[source["place"]], source["place"])
                yield Example(picture, target, where, tuple(tuple(box) for named in boxes for box in named))
            else:
                yield Example(_side(source), target if isinstance(target, str) else tuple(target), where)


def _side(stored: str | list[str] | list[list[float]]) -> str | tuple[str, ...] | Vectors:
    if isinstance(stored, list) and stored and isinstance(stored[0], list):
        return np.asarray(stored, dtype=np.float32)
    return stored if isinstance(stored, str) else tuple(map(str, stored))


def _warn_of_labels(vocabularies: Vocabularies, validation: Callable[[], Iterator[Example]]) -> None:
    """Say what validation cannot show: a label that training saw once, and one that is not held out at all."""
    labels = vocabularies.labels
    if labels is None:
        return
    once = [name for name, count in zip(labels.names, labels.counts, strict=True) if count == 1]
    if once:
        warn(f"seen only once in training, hardly to be learnt: the label{_named(once)}")
    there = {label for example in validation() for label in labels_of(example)}
    missing = [name for name in labels.names if name not in there]
    if missing:
        warn(f"missing from validation, so that no score tells of it: the label{_named(missing)}")


def _named(labels: list[str]) -> str:
    more = f" and {len(labels) - 5} more" if len(labels) > 5 else ""
    return f"{'s' if len(labels) > 1 else ''} {', '.join(repr(label) for label in labels[:5])}{more}"


def example_key(example: Example, *, seed: int) -> int:
    """What decides the side an example falls on: its source, or its text where that is all there is."""
    source = example.source.name if isinstance(example.source, Picture) else example.source
    return source_key(source if isinstance(source, np.ndarray) else source or example.target, seed=seed)


Part = Callable[[], Iterator[Example]]


def _two_parts(recipe: Recipe, everything: Part, paths: Sequence[str]) -> tuple[Part, Part]:
    """The training part and the held-out part, each to be read as often as needed."""
    seed, data = recipe.train.seed, recipe.data

    def key(example: Example) -> int:
        return example_key(example, seed=seed)

    below = border(map(key, everything()), fraction=data.validation, most=data.max_validation)
    if below is None:
        warn(
            f"{', '.join(map(display_name, paths))}: too little to hold anything out; validation is on the training "
            "data and says nothing about other data (--valid FILE gives it some)"
        )
        return everything, everything
    return (
        lambda: (e for e in everything() if key(e) > below),
        lambda: (e for e in everything() if key(e) <= below),
    )


def _write_part(
    recipe: Recipe, vocabularies: Vocabularies, examples: Iterator[Example], folder: Path, part: str
) -> None:
    """One part's ids in stores side by side, a block of examples at a time: memory does not grow with the file."""
    fitted = Fitted(recipe.data, keeps_ends=vocabularies.target is not None, aligned=recipe.task == "tag")
    rows = fitted.rows(vocabularies.encode_places if is_pictured(recipe) else vocabularies.encode, examples)
    target = _target_column(vocabularies, folder / f"{part}_target")
    source = _source_column(vocabularies, folder / f"{part}_source")
    if is_pictured(recipe):
        source = Column(folder / f"{part}_source", len(TokenStore.open(folder / STORE)))
    if source is None:
        write_stores([target], ((ids,) for _, ids in rows))
    elif recipe.task in ("mask", "bilm"):
        write_stores([source], ((ids,) for ids, _ in rows))
    else:
        write_stores([source, target], rows)
    fitted.tell(part)


def _target_column(vocabularies: Vocabularies, path: Path) -> Column:
    if vocabularies.numbers is not None:
        return Column(path, 0, "float32", width=vocabularies.numbers.width, gaps=True)
    classes = None if vocabularies.labels is None else "int32"  # a label never seen is -1
    return Column(path, len(vocabularies.labels or vocabularies.target or ()), classes)


def _source_column(vocabularies: Vocabularies, path: Path) -> Column | None:
    if vocabularies.features is not None:
        return Column(path, 0, "float32", width=len(vocabularies.features.mean))
    if vocabularies.source is None:
        return None
    size = len(vocabularies.source)
    if vocabularies.letters is not None:
        return Column(path, max(size, len(vocabularies.letters)), width=1 + LONGEST_WORD)
    return Column(path, size)


def _prepare_stream(
    recipe: Recipe, paths: Sequence[str], valid: Sequence[str], folder: Path, given: Vocabularies | None
) -> Vocabularies:
    """The whole text as one sequence of ids; its last part is held out unless there is a file for that."""
    total = sum(map(len, read_text(paths)))
    first = max(int(total * (1 - recipe.data.validation)), total - recipe.data.max_validation * HELD_OUT_CHARACTERS)
    cut = total if valid else min(first, total - 2)
    train = _Text(paths, 0, max(cut, 0))
    tokenizer = learn_text(recipe.target, train.blocks()) if given is None else given.targets
    held_out = _Text(valid, 0, None) if valid else _Text(paths, max(cut, 0), None)
    for part, piece in (("train", train), ("validation", held_out)):
        write_stores(
            [Column(folder / f"{part}_stream", len(tokenizer))], ((ids,) for ids in _encoded(tokenizer, piece))
        )
    return Vocabularies(target=tokenizer)


@dataclass(frozen=True)
class _Text:
    """A text from one character to another, a block of lines at a time."""

    paths: Sequence[str]
    start: int
    stop: int | None

    def blocks(self) -> Iterator[str]:
        place = 0
        text = read_text(self.paths)
        while block := "".join(islice(text, BLOCK)):
            stop = len(block) if self.stop is None else self.stop - place
            piece = block[max(0, self.start - place) : max(0, stop)]
            place += len(block)
            if piece:
                yield piece


def _encoded(tokenizer: Tokenizer, text: _Text) -> Iterator[Ids]:
    return (tokenizer.encode(block) for block in text.blocks())
