"""The pair of a model's source and target, and what both of them can do.

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
Files = Sequence[str]  # paths of the user's files
Row = Ids | Int[np.ndarray, "_ _"] | Vectors | UInt8[np.ndarray, "_ _"]
Part = TypeVar("Part")
Side = TypeVar("Side", covariant=True)
Examples = Callable[[], Iterable[Example]]  # the examples of a part, to be read as often as needed
_ENTRIES = {
    "source",
    "target",
    "labels",
    "letters",
    "features",
    "markers",
    "frame",
    "series",
    "numbers",
    "frames",
    "ngrams",
    "spellings",
}


@runtime_checkable
class Source(Protocol):
    """What a model reads. A value is what an `Example` holds; a row is what a store and a network hold."""

    by_line: ClassVar[bool] = (
        True  # whether an input is a line of a file, rather than the whole file
    )

    @property
    def entry(self) -> Tokens | Measured:
        """How a position enters a network."""

    def load(self, value: Any) -> Any:
        """A value from what a person gives: a path is opened, a line is cut into words."""
        return value

    def parse(self, request: Any, *, most: int) -> Any:
        """A value from what a stranger sends as JSON: no path is opened, and a text has at most `most` characters."""
        return self.load(parse_text(request, most))

    def encode(self, values: Sequence[Any]) -> list[Row]:
        """The row of each value."""

    def column(self, path: Path) -> Column | None:
        """How the stored rows lie on disk; None where nothing is stored."""

    def starts(self, value: Any) -> list[int] | None:
        """The position at which each word begins; None where each position has a label of its own."""
        return None

    def names(self, value: Any, row: Row) -> tuple[str, ...] | None:
        """A name for each position; None where positions have numbers only."""
        return None

    def show(self, value: Any) -> str:
        """A value in words, for the answer and for messages."""
        return str(value)

    def typed(self, value: Any) -> str:
        """What a person would type to give this value; empty where it cannot be typed."""
        return self.show(value)

    def to_json(self) -> Json:
        """Its entries of tokenizer.json."""


@runtime_checkable
class Target(Protocol):
    """What a model writes."""

    def encode(self, examples: Sequence[Example], places: Sequence["Places"]) -> list[Row]:
        """The row of each example, with what belongs to a word at the position where the word starts."""

    def longest(self, most: int) -> int:
        """The length of the longest row for at most `most` positions of a user's target."""
        return most

    def cut(self, row: Row, *, source: int, target: int) -> Row:
        """The row without what is too long: it has something for each position of the source, or a single thing."""
        return row[:source]

    def column(self, path: Path) -> Column | None: ...

    def to_json(self) -> Json: ...


@runtime_checkable
class SideType(Protocol[Side]):
    """A class of sources or of targets: what makes one."""

    def learn(self, recipe: Recipe, examples: Examples, old: "Codec | None") -> Side:
        """The one of a training part; what an `old` model to start from already knows is kept."""

    def from_json(self, table: Json, recipe: Recipe) -> Side:
        """The one of a trained model, from its tokenizer.json."""


SourceType = SideType[Source]
TargetType = SideType[Target]


@dataclass(frozen=True)
class Places:
    """Where the words of a source start, among how many positions; `starts` is None where a position is a word."""

    starts: list[int] | None
    length: int


@dataclass(frozen=True)
class Nothing(Source, Target):
    """The source of a model that only writes, or the target of one that only reads."""

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
    """What a model reads and what it writes."""

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
        """The tokenizers of both sides, by the side."""
        sides = {"source": self.source, "target": self.target}
        return {name: side.tokenizer for name, side in sides.items() if hasattr(side, "tokenizer")}

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The one that its text is cut with first: the source's, else the target's."""
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
        """Source and target rows of each example, as a network reads them."""
        block = list(examples)
        return self.with_targets(block, self.source.encode([example.source for example in block]))

    def with_targets(self, block: list[Example], sources: list[Row]) -> list[tuple[Row, Row]]:
        """The source row of each example, with its target row."""
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
        """How many entries each vocabulary has."""
        return {name: len(tokenizer) for name, tokenizer in self.tokenizers.items()} | getattr(
            self.target, "sizes", {}
        )

    def page(self) -> str:
        """The vocabularies for people to read."""
        pages = [
            f"# {name}: {tokenizer.kind}, {len(tokenizer)} entries\n{vocabulary_text(tokenizer)}"
            for name, tokenizer in self.tokenizers.items()
        ]
        return "\n".join([*pages, *getattr(self.target, "pages", ())])


def padded(rows: Sequence[Row]) -> Padded:
    """Encoded rows side by side."""
    return Padded.from_rows(
        [tensor_of(row) if isinstance(row, np.ndarray) else row for row in rows]
    )


def entries_of(table: object) -> Json:
    """The entries of a tokenizer.json, where it is one of ours."""
    if not isinstance(table, dict) or set(table) - _ENTRIES:
        raise BundleError(
            "the tokenizer file is not one of Seqlab's", hint="restore the bundle, or train again."
        )
    return table


def entry_of(table: Json, name: str) -> Any:
    """One entry of a tokenizer.json, which must be there."""
    if name not in table:
        raise BundleError(
            f"the tokenizer file has no '{name}', which the recipe needs",
            hint="restore the bundle.",
        )
    return table[name]


def part_of(part: object, kind: type[Part], otherwise: str) -> Part:
    """The source or target, where it is of this kind."""
    if not isinstance(part, kind):
        raise UsageError(otherwise, hint="choose a model that does.")
    return part


def parse_text(request: Any, most: int) -> str:
    """A text that came as JSON."""
    if not isinstance(request, str):
        raise UsageError("this model reads text, not numbers", hint="give a string.")
    if len(request) > most:
        raise UsageError(
            f"{len(request):,} letters where {most:,} are the most", hint="send less at a time."
        )
    return request


def parse_numbers(request: Any) -> np.ndarray:
    """Rows of numbers that came as JSON."""
    try:
        return np.asarray(request, dtype=np.float32)
    except ValueError:
        raise UsageError(
            "rows of unequal length", hint="give each row as many numbers as the others."
        ) from None
