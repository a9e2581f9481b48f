"""Prepare a file of examples for training: read, split, encode, store, and batch them by length."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import compress, islice
from pathlib import Path
from typing import cast

import numpy as np

from seqlab.codecs.codec import Codec, Files, Ids, Row, SourceType, Target, TargetType
from seqlab.codecs.labels import LabelTarget, labels_of
from seqlab.codecs.picture import STORE, PictureSource, shared_pictures, store_pictures
from seqlab.codecs.text import learn_codec
from seqlab.data.batching import Rows, held_out_keys, plan, plan_in_order, source_key
from seqlab.data.example import Example, Picture, Vectors
from seqlab.data.lines import display_name
from seqlab.data.store import TokenStore, write_stores
from seqlab.data.windows import Windows
from seqlab.errors import DataError, shorten, warn
from seqlab.padded import Batch
from seqlab.recipe import DataConfig, Recipe
from seqlab.training.gradient import Batches

BLOCK = 2000  # examples, or lines of a stream, that are encoded at once
HELD_OUT = "held-out.jsonl"  # the validation examples as text, for scores that need decoding
Part = Callable[[], Iterator[Example]]  # each call reads the examples again
Reader = Callable[[Files], Iterator[Example]]


@dataclass(frozen=True)
class Corpus:
    """The prepared data: codec, training batches, validation batches, and sizes."""

    codec: Codec
    train: Batches
    validation: Callable[[], Iterable[Batch]]
    size: dict[str, int]  # examples and tokens of each part

    @property
    def carries(self) -> bool:
        return self.train.carries


class ExampleBatches:
    """Examples in length-bucketed batches; an epoch's plan depends on (seed, epoch) alone."""

    carries = False

    def __init__(self, rows: Rows | Windows, *, budget: int, seed: int) -> None:
        self.rows = rows
        self._plan = lru_cache(maxsize=2)(
            lambda epoch: plan(rows.lengths, budget=budget, seed=seed, epoch=epoch)
        )

    def num_batches(self, epoch: int) -> int:
        return len(self._plan(epoch))

    def batch(self, epoch: int, index: int) -> Batch:
        return self.rows.batch(self._plan(epoch)[index])


def prepare_examples(
    recipe: Recipe,
    read: Reader,
    reads: SourceType,
    writes: TargetType,
    files: Files,
    valid: Files,
    folder: Path,
    old: Codec | None,
) -> Codec:
    """Learn the codec from the training part and store the rows of both parts in `folder`.

    `valid` are the held-out files; without any, a part of `files` is held out. Vocabularies and scales of an `old`
    model are kept.
    """
    sides = (files, valid) if valid else (files,)
    if reads is PictureSource:
        parts: list[Part] = [
            partial(iter, part) for part in store_pictures(recipe.image, read, sides, folder)
        ]
    else:
        parts = [partial(read, paths) for paths in sides]
    train, validation = (
        parts if valid else _two_parts(recipe, parts[0], files, by_label=writes is LabelTarget)
    )
    codec = learn_codec(recipe, train, old, reads, writes)
    _warn_of_labels(codec, validation)
    _write_part(recipe, codec, train(), folder, "train")
    _write_part(recipe, codec, validation(), folder, "validation")
    with (folder / HELD_OUT).open("w", encoding="utf-8") as file:
        for example in islice(validation(), recipe.data.max_validation):
            row = [_storable(example.source), _storable(example.target), example.where]
            row += [example.boxes] if example.boxes else []
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    return codec


def open_examples(recipe: Recipe, codec: Codec, folder: Path) -> Corpus:
    """Open the stores of `prepare_examples` as batches."""
    settings = recipe.train
    stores = {
        path.stem: TokenStore.open(path.with_suffix("")) for path in sorted(folder.glob("*.json"))
    }

    def rows_of(part: str) -> Rows:
        source = shared_pictures(stores, part) if STORE in stores else stores.get(f"{part}_source")
        return Rows(source=source, target=stores.get(f"{part}_target"))

    train, validation = rows_of("train"), rows_of("validation")
    in_sequence = plan_in_order(validation.lengths, budget=settings.batch_tokens)
    batches = ExampleBatches(train, budget=settings.batch_tokens, seed=settings.seed)
    return Corpus(
        codec,
        batches,
        lambda: (validation.batch(rows) for rows in in_sequence),
        store_sizes(stores),
    )


def store_sizes(stores: dict[str, TokenStore]) -> dict[str, int]:
    """Return the numbers of rows and tokens of each store."""
    sizes: dict[str, int] = {}
    for name, store in stores.items():
        sizes |= {f"{name}_rows": len(store), f"{name}_tokens": store.num_tokens}
    return sizes


def _storable(source: object) -> object:
    if isinstance(source, Picture):
        return {"name": source.name, "place": source.place}
    return source.tolist() if isinstance(source, np.ndarray) else source


def held_out(folder: Path) -> Iterator[Example]:
    """Read the stored validation examples, as they were in the user's files."""
    pictures = TokenStore.open(folder / STORE) if (folder / f"{STORE}.json").exists() else None
    with (folder / HELD_OUT).open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            try:
                source, target, where, *boxes = json.loads(line)
            except ValueError:
                raise DataError(
                    f"{folder / HELD_OUT}:{number}: not a held-out example: {shorten(line)}",
                    hint="the file was changed or cut short; give a file to evaluate on, or train again.",
                ) from None
            if pictures is not None:
                picture = Picture(source["name"], pictures[source["place"]], source["place"])
                yield Example(
                    picture,
                    _side(target),
                    where,
                    tuple(tuple(box) for named in boxes for box in named),
                )
            else:
                yield Example(_side(source), _side(target), where)


def _side(stored: str | list[str] | list[list[float]]) -> str | tuple[str, ...] | Vectors:
    if isinstance(stored, list) and stored and isinstance(stored[0], list):
        return np.asarray(stored, dtype=np.float32)
    return stored if isinstance(stored, str) else tuple(map(str, stored))


def _warn_of_labels(codec: Codec, validation: Part) -> None:
    """Warn of labels with one training example, and of labels without a validation example."""
    if not isinstance(codec.target, LabelTarget):
        return
    labels = codec.target.labels
    once = [name for name, count in zip(labels.names, labels.counts, strict=True) if count == 1]
    if once:
        warn(f"seen only once in training, hardly to be learnt: the label{_named(once)}")
    present = {label for example in validation() for label in labels_of(example)}
    missing = [name for name in labels.names if name not in present]
    if missing:
        warn(f"missing from validation, so that no score tells of it: the label{_named(missing)}")


def _named(labels: list[str]) -> str:
    more = f" and {len(labels) - 5} more" if len(labels) > 5 else ""
    return (
        f"{'s' if len(labels) > 1 else ''} {', '.join(repr(label) for label in labels[:5])}{more}"
    )


def example_key(example: Example, *, seed: int) -> int:
    """Return the key that decides whether an example is held out: a hash of its source, or of its text without one."""
    source = example.source.name if isinstance(example.source, Picture) else example.source
    return source_key(
        source if isinstance(source, np.ndarray) else source or example.target, seed=seed
    )


def _two_parts(
    recipe: Recipe, everything: Part, paths: Files, *, by_label: bool
) -> tuple[Part, Part]:
    """Split examples into the training part and the held-out part; with `by_label`, stratified."""
    seed = recipe.train.seed
    data = recipe.data
    labels: dict[str, int] = {}  # in the order of the file

    def key(example: Example) -> int:
        return example_key(example, seed=seed)

    def key_and_label(example: Example) -> tuple[int, int]:
        label = example.target if by_label and isinstance(example.target, str) else ""
        return key(example), labels.setdefault(label, len(labels))

    table = np.fromiter(
        map(key_and_label, everything()), dtype=[("key", np.uint64), ("label", np.int64)]
    )
    by_name = np.argsort(sorted(range(len(labels)), key=list(labels).__getitem__))
    held = held_out_keys(
        table["key"],
        by_name[table["label"]],
        fraction=data.validation,
        most=data.max_validation,
        fold=data.fold,
    )
    names = ", ".join(map(display_name, paths))
    if not held and data.fold > 1:
        raise DataError(
            f"{names}: too few examples for fold {data.fold}", hint="leave out data.fold."
        )
    if not held:
        warn(
            f"{names}: too few examples to hold any out; validation uses the training data, so its scores are too good "
            "(--valid FILE gives other data)"
        )
        return everything, everything
    return (
        lambda: (e for e in everything() if key(e) not in held),
        lambda: (e for e in everything() if key(e) in held),
    )


def _write_part(
    recipe: Recipe, codec: Codec, examples: Iterator[Example], folder: Path, part: str
) -> None:
    """Store the rows of one part, a block of examples at a time, so that memory does not grow with the file."""
    columns = [
        codec.source.column(folder / f"{part}_source"),
        codec.target.column(folder / f"{part}_target"),
    ]
    rows = _limited(recipe.data, codec.target, _encoded(codec, examples), part)
    write_stores(list(filter(None, columns)), (tuple(compress(row, columns)) for row in rows))


def _encoded(
    codec: Codec, examples: Iterator[Example]
) -> Iterator[tuple[Example, tuple[Row, Row]]]:
    """Yield each example with its rows; the row of a picture is its index in the store of pictures."""
    while block := list(islice(examples, BLOCK)):
        if isinstance(codec.source, PictureSource):
            rows = codec.with_targets(block, [[e.source.place] for e in block])
        else:
            rows = codec.encode(block)
        yield from zip(block, rows, strict=True)


def _limited(
    data: DataConfig, target: Target, encoded: Iterable[tuple[Example, tuple[Row, Row]]], part: str
) -> Iterator[tuple[Row, Row]]:
    """Yield the rows within data.max_source and data.max_target; cut, split, skip or refuse others (data.too_long).

    Warn of rows that were cut or skipped; refuse a part of which no row is left.
    """
    too_long: list[str] = []
    kept = 0
    for example, (source, written) in encoded:
        rows: Iterable[tuple[Row, Row]] = [(source, written)]
        if len(source) > data.max_source or len(written) > target.longest(data.max_target):
            if data.too_long == "refuse":
                raise DataError(
                    f"{example.where}: {len(source)} source and {len(written)} target tokens, more than "
                    f"{data.max_source} and {data.max_target}",
                    hint="raise data.max_source and data.max_target, or set data.too_long to 'cut' or 'skip'.",
                )
            if data.too_long == "split":
                rows = _split(data, source, cast(Ids, written))
            else:
                too_long.append(example.where)
                cut = target.cut(written, source=data.max_source, target=data.max_target)
                rows = [(source[: data.max_source], cut)] if data.too_long == "cut" else []
        for row in rows:
            kept += 1
            yield row
    if too_long and not kept:
        raise DataError(
            f"{too_long[0]}: longer than data.max_source or data.max_target, and so are all others of the "
            f"{part} part: none is left",
            hint="raise data.max_source and data.max_target, or set data.too_long to 'cut'.",
        )
    if too_long:
        action = "cut" if data.too_long == "cut" else "skipped"
        warn(
            f"{too_long[0]}: longer than data.max_source or data.max_target; {len(too_long)} "
            f"example{'s' if len(too_long) > 1 else ''} of the {part} part {action}"
        )


def _split(data: DataConfig, source: Row, target: Ids) -> Iterator[tuple[Row, Row]]:
    """Split a long row into several within the limits; each piece of a target has its own SOS and EOS."""
    inner = target[1:-1]
    most = data.max_target
    for start in range(0, len(source), data.max_source):
        yield source[start : start + data.max_source], target
    for start in range(0, len(inner), most):
        yield source, [target[0], *inner[start : start + most], target[-1]]
