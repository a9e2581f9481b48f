"""The user's files, prepared for training: vocabularies learnt, ids stored, a part held out."""

import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path

import numpy as np

from seqlab.assemble.vocabularies import Ids, Vocabularies, learn_text, learn_vocabularies
from seqlab.data.batching import Rows, plan, plan_in_order
from seqlab.data.lines import display_name, lines, read_text
from seqlab.data.sources import Example, read_labelled, read_pairs, read_tagged
from seqlab.data.split import border, source_key
from seqlab.data.store import Column, TokenStore, write_stores
from seqlab.data.streams import Streams, in_chunks, in_order
from seqlab.errors import DataError, SeqlabWarning
from seqlab.padded import Batch
from seqlab.recipe import Data, Recipe, Stack
from seqlab.text import Tokenizer

HELD_OUT = "held-out.jsonl"  # the validation examples as text, for scores that need decoding
BLOCK = 2000  # examples, or lines of a stream, that are encoded at once
STREAM_ROWS_OF_VALIDATION = 100  # tokens of a stream that count as one held-out example


class ExampleBatches:
    """Examples in length-bucketed batches; an epoch's plan depends on (seed, epoch) alone."""

    carries = False

    def __init__(self, rows: Rows, *, budget: int, seed: int) -> None:
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
    if recipe.task == "lm":
        return (
            Example("", line, f"{display_name(path)}:{number}")
            for path in paths
            for number, line in lines(path)
            if line.strip()
        )
    if recipe.task == "tag":
        return read_tagged(paths, tag=data.target)
    if recipe.task == "classify":
        return read_labelled(paths, text=data.source, label=data.target)
    return read_pairs(paths, source=data.source, target=data.target)


def prepare(recipe: Recipe, paths: Sequence[str], valid: Sequence[str], folder: Path) -> Vocabularies:
    """Learn the vocabularies and store the ids of both parts in `folder`; `valid` names the held-out files, if any."""
    if recipe.task == "lm" and recipe.data.unit == "stream":
        return _prepare_stream(recipe, paths, valid, folder)
    return _prepare_examples(recipe, paths, valid, folder)


def open_corpus(recipe: Recipe, vocabularies: Vocabularies, folder: Path) -> Corpus:
    """What `prepare` has stored, as batches."""
    settings = recipe.train
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
        Rows(source=stores.get(f"{part}_source"), target=stores[f"{part}_target"]) for part in ("train", "validation")
    )
    in_sequence = plan_in_order(validation.lengths, budget=settings.batch_tokens)
    batches = ExampleBatches(train, budget=settings.batch_tokens, seed=settings.seed)
    return Corpus(vocabularies, batches, lambda: (validation.batch(rows) for rows in in_sequence), size)


def carries_state(recipe: Recipe) -> bool:
    """Whether a batch of a stream goes on where the last one ended: recurrent models can, at no cost."""
    return isinstance(recipe.model.decoder, Stack)


def stream_in_order(recipe: Recipe, tokens: np.ndarray) -> Iterator[Batch]:
    """A text for evaluation, every token but the first predicted once: in one long stream, or in chunks as trained."""
    if carries_state(recipe):  # a thousand steps cost no more memory than a batch of training
        return in_order(tokens, steps=1000)
    return in_chunks(tokens, steps=recipe.train.bptt, rows=recipe.train.batch_rows)


def _counts(store: TokenStore) -> dict[str, int]:
    return {"rows": len(store), "tokens": store.num_tokens}


def _prepare_examples(recipe: Recipe, paths: Sequence[str], valid: Sequence[str], folder: Path) -> Vocabularies:
    train, validation = _two_parts(recipe, paths, valid)
    vocabularies = learn_vocabularies(recipe, train)
    for part, examples in (("train", train), ("validation", validation)):
        _write_part(recipe, vocabularies, examples(), folder, part)
    with (folder / HELD_OUT).open("w", encoding="utf-8") as file:
        for example in islice(validation(), recipe.data.max_validation):
            file.write(json.dumps(astuple(example), ensure_ascii=False) + "\n")
    return vocabularies


Part = Callable[[], Iterator[Example]]


def _two_parts(recipe: Recipe, paths: Sequence[str], valid: Sequence[str]) -> tuple[Part, Part]:
    """The training part and the held-out part, each to be read as often as needed."""

    def everything() -> Iterator[Example]:
        return read_examples(recipe, paths)

    if valid:
        return everything, lambda: read_examples(recipe, valid)
    seed, data = recipe.train.seed, recipe.data

    def key(example: Example) -> int:
        return source_key(example.source or example.target, seed=seed)

    below = border(map(key, everything()), fraction=data.validation, most=data.max_validation)
    if below is None:
        warnings.warn(
            f"{', '.join(map(display_name, paths))}: too little to hold anything out; validation is on the training "
            "data and says nothing about other data (--valid FILE gives it some)",
            SeqlabWarning,
            stacklevel=2,
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
    fitted = _Fitted(recipe.data, keeps_ends=vocabularies.labels is None, aligned=recipe.task == "tag")
    rows = fitted.rows(vocabularies, examples)
    classes = None if vocabularies.labels is None else "int32"  # a label never seen is -1
    target = Column(folder / f"{part}_target", len(vocabularies.labels or vocabularies.target or ()), classes)
    if vocabularies.source is None:
        write_stores([target], ((ids,) for _, ids in rows))
    else:
        write_stores([Column(folder / f"{part}_source", len(vocabularies.source)), target], rows)
    fitted.tell(part)


class _Fitted:
    """Examples whose ids fit the recipe's limits: cut, skipped or refused where they do not, and counted."""

    def __init__(self, data: Data, *, keeps_ends: bool, aligned: bool) -> None:
        self.data, self.keeps_ends, self.aligned = data, keeps_ends, aligned
        self.long: list[str] = []
        self.kept = 0

    def rows(self, vocabularies: Vocabularies, examples: Iterator[Example]) -> Iterator[tuple[Ids, Ids]]:
        while block := list(islice(examples, BLOCK)):
            for example, (source, target) in zip(block, vocabularies.encode(block), strict=True):
                fitted = self._fit(example, source, target)
                if fitted is not None:
                    self.kept += 1
                    yield fitted

    def _fit(self, example: Example, source: Ids, target: Ids) -> tuple[Ids, Ids] | None:
        most_source, most_target = self.data.max_source, self.data.max_target
        if self.keeps_ends:
            most_target += 2  # SOS and EOS are not the user's
        if len(source) <= most_source and len(target) <= most_target:
            return source, target
        if self.data.too_long == "refuse":
            raise DataError(
                f"{example.where}: {len(source)} source and {len(target)} target tokens, more than "
                f"{self.data.max_source} and {self.data.max_target}",
                hint="raise data.max_source and data.max_target, or set data.too_long to 'cut' or 'skip'.",
            )
        self.long.append(example.where)
        if self.data.too_long == "skip":
            return None
        if self.aligned:
            return source[:most_source], target[:most_source]
        end = target[-1:] if self.keeps_ends else []
        kept = target if len(target) <= most_target else target[: most_target - len(end)] + end
        return source[:most_source], kept

    def tell(self, part: str) -> None:
        """Warn of what did not fit; where nothing did, there is no going on."""
        if self.long and not self.kept:
            raise DataError(
                f"{self.long[0]}: longer than data.max_source or data.max_target, and so are all others of the {part} "
                "part: none is left",
                hint="raise data.max_source and data.max_target, or set data.too_long to 'cut'.",
            )
        if self.long:
            done = "cut" if self.data.too_long == "cut" else "skipped"
            warnings.warn(
                f"{self.long[0]}: longer than data.max_source or data.max_target; {len(self.long)} "
                f"example{'s' if len(self.long) > 1 else ''} of the {part} part {done}",
                SeqlabWarning,
                stacklevel=2,
            )


def _prepare_stream(recipe: Recipe, paths: Sequence[str], valid: Sequence[str], folder: Path) -> Vocabularies:
    """The whole text as one sequence of ids; its last part is held out unless there is a file for that."""
    total = sum(map(len, read_text(paths)))
    cut = total if valid else min(int(total * (1 - recipe.data.validation)), total - 2)
    train = _Text(paths, 0, max(cut, 0))
    tokenizer = learn_text(recipe.target, train.blocks())
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
