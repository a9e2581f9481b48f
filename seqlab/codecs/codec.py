"""The codec of a model: a source and a target, and the protocols of both.

codec = Codec(TextSource(tokenizer), LabelTarget(labels))
sources_and_targets = codec.encode(examples)
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Int, UInt8

from seqlab.data.example import Example, Vectors
from seqlab.data.store import Column
from seqlab.errors import BundleError, UsageError
from seqlab.padded import Measured, Padded, Tokens, tensor_of
from seqlab.recipe import Recipe
from seqlab.text import Tokenizer, vocabulary_text

Ids = list[int]
Json = dict[str, Any]  # an object as JSON has it
Files = Sequence[str]  # paths of data files
Row = Ids | Int[np.ndarray, "_ _"] | Vectors | UInt8[np.ndarray, "_ _"]
Part = TypeVar("Part")
Side = TypeVar("Side", covariant=True)
Examples = Callable[[], Iterable[Example]]  # each call reads the examples again
_ENTRIES = {
    "source", "target", "labels", "letters", "features", "markers", "frame", "series", "numbers",
    "frames", "ngrams", "spellings",
}  # fmt: skip


@runtime_checkable
class Source(Protocol):
    """The input of a model. A value is what an `Example` holds; a row is what a store and a network hold."""

    by_line: ClassVar[bool] = True  # whether an input is a line of a file, not the whole file

    @property
    def entry(self) -> Tokens | Measured:
        """The form in which a position enters a network."""

    def load(self, value: Any) -> Any:
        """Make a value from a user's input: open a path, split a line into words."""
        return value

    def parse(self, request: Any, *, most: int) -> Any:
        """Make a value from an untrusted JSON request: no path is opened, a text has at most `most` characters."""
        return self.load(parse_text(request, most))

    def encode(self, values: Sequence[Any]) -> list[Row]:
        """The row of each value."""

    def column(self, path: Path) -> Column | None:
        """How the stored rows lie on disk; None where nothing is stored."""

    def starts(self, value: Any) -> list[int] | None:
        """The position at which each word begins; None where each position has a label of its own."""
        return None

    def names(self, value: Any, row: Row) -> tuple[str, ...] | None:
        """Return a name for each position, or None if positions are only numbered."""
        return None

    def show(self, value: Any) -> str:
        """Describe a value, for answers and messages."""
        return str(value)

    def typed(self, value: Any) -> str:
        """Return the text that a user would type for this value; empty if it cannot be typed."""
        return self.show(value)

    def to_json(self) -> Json:
        """Return its entries of tokenizer.json."""


@runtime_checkable
class Target(Protocol):
    """The output of a model."""

    def encode(self, examples: Sequence[Example], places: Sequence["Places"]) -> list[Row]:
        """Encode the target of each example; the entry of a word is at the position where the word starts."""

    def longest(self, most: int) -> int:
        """Return the length of the longest row for at most `most` positions of a user's target."""
        return most

    def cut(self, row: Row, *, source: int, target: int) -> Row:
        """Shorten a row to the limits of source and target; by default it has an entry for each source position."""
        return row[:source]

    def column(self, path: Path) -> Column | None: ...

    def to_json(self) -> Json: ...


@runtime_checkable
class SideType(Protocol[Side]):
    """A class of sources or targets, with its constructors."""

    def learn(self, recipe: Recipe, examples: Examples, old: "Codec | None") -> Side:
        """Learn from a training part; keep the vocabulary or scale of an `old` model to start from."""

    def from_json(self, table: Json, recipe: Recipe) -> Side:
        """Read the source or target of a trained model from its tokenizer.json."""


SourceType = SideType[Source]
TargetType = SideType[Target]


@dataclass(frozen=True)
class Places:
    """The positions at which the words of a source start; `starts` is None if each position is a word."""

    starts: list[int] | None
    length: int


@dataclass(frozen=True)
class Nothing(Source, Target):
    """The source of a model that only generates, or the target of one that only reads."""

    @property
    def entry(self) -> Tokens:
        return Tokens(0)

    def encode(self, values: Sequence[Any], places: Sequence[Places] = ()) -> list[Row]:
        return [[] for _ in values]

    def column(self, path: Path) -> None:
        return None

    def names(self, value: Any, row: Row) -> tuple[str, ...]:
        return ()

    def to_json(self) -> Json:
        return {}

    @classmethod
    def from_json(cls, table: Json, recipe: Recipe) -> "Nothing":
        return cls()

    @classmethod
    def learn(cls, recipe: Recipe, examples: Examples, old: "Codec | None") -> "Nothing":
        return cls()


@dataclass(frozen=True)
class Codec:
    """The source and the target of a model."""

    source: Source
    target: Target

    @property
    def reads(self) -> bool:
        return not isinstance(self.source, Nothing)

    @property
    def writes(self) -> bool:
        return not isinstance(self.target, Nothing)

    @property
    def tokenizers(self) -> dict[str, Tokenizer]:
        """The tokenizers by side: "source" and "target"."""
        sides = {"source": self.source, "target": self.target}
        return {name: side.tokenizer for name, side in sides.items() if hasattr(side, "tokenizer")}

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer of the source, else that of the target."""
        return next(iter(self.tokenizers.values()), None)

    @property
    def source_tokenizer(self) -> Tokenizer:
        return self._tokenizer("source", "reads")

    @property
    def target_tokenizer(self) -> Tokenizer:
        return self._tokenizer("target", "writes")

    def _tokenizer(self, side: str, verb: str) -> Tokenizer:
        if side not in self.tokenizers:
            raise UsageError(f"this model {verb} no text", hint="choose a model that does.")
        return self.tokenizers[side]

    def encode(self, examples: Iterable[Example]) -> list[tuple[Row, Row]]:
        """Return the source and target rows of each example, as a network reads them."""
        block = list(examples)
        return self.with_targets(block, self.source.encode([example.source for example in block]))

    def with_targets(self, block: list[Example], sources: list[Row]) -> list[tuple[Row, Row]]:
        """Encode the target of each example, and pair it with its source row."""
        places = [
            Places(self.source.starts(e.source), len(row))
            for e, row in zip(block, sources, strict=True)
        ]
        return list(zip(sources, self.target.encode(block, places), strict=True))

    def to_json(self) -> Json:
        source, target = self.tokenizers.get("source"), self.tokenizers.get("target")
        shared = {"target": "source"} if target is not None and source is target else {}
        return self.source.to_json() | self.target.to_json() | shared

    def sizes(self) -> dict[str, int]:
        """Return the size of each vocabulary."""
        sizes = {name: len(tokenizer) for name, tokenizer in self.tokenizers.items()}
        return sizes | getattr(self.target, "sizes", {})

    def page(self) -> str:
        """Return the vocabularies as readable text."""
        pages = [
            f"# {name}: {tokenizer.kind}, {len(tokenizer)} entries\n{vocabulary_text(tokenizer)}"
            for name, tokenizer in self.tokenizers.items()
        ]
        return "\n".join([*pages, *getattr(self.target, "pages", ())])


def padded(rows: Sequence[Row]) -> Padded:
    """Return encoded rows as one `Padded`."""
    return Padded.from_rows(
        [tensor_of(row) if isinstance(row, np.ndarray) else row for row in rows]
    )


def entries_of(table: object) -> Json:
    """Return the entries of a tokenizer.json; refuse unknown ones."""
    if not isinstance(table, dict) or set(table) - _ENTRIES:
        raise BundleError(
            "the tokenizer file was not written by Seqlab",
            hint="restore the bundle, or train again.",
        )
    return table


def entry_of(table: Json, name: str) -> Any:
    """Return one entry of a tokenizer.json; refuse a file without it."""
    if name not in table:
        raise BundleError(
            f"the tokenizer file has no '{name}', which the recipe needs",
            hint="restore the bundle.",
        )
    return table[name]


def part_of(part: object, kind: type[Part], problem: str) -> Part:
    """Return a source or target if it is of this kind; else raise an error with the problem."""
    if not isinstance(part, kind):
        raise UsageError(problem, hint="choose a model that does.")
    return part


def parse_text(request: Any, most: int) -> str:
    """Check a text of a JSON request."""
    if not isinstance(request, str):
        raise UsageError("this model reads text, not numbers", hint="give a string.")
    if len(request) > most:
        raise UsageError(
            f"{len(request):,} letters, more than the limit of {most:,}",
            hint="send less at a time.",
        )
    return request


def parse_numbers(request: Any) -> np.ndarray:
    """Convert rows of numbers of a JSON request to an array."""
    try:
        return np.asarray(request, dtype=np.float32)
    except ValueError:
        raise UsageError(
            "rows of unequal length", hint="give all rows the same number of numbers."
        ) from None
