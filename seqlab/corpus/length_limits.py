"""Examples within the limits of a recipe: what is too long is cut, split, skipped or refused, with a message."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import cast

from seqlab.codecs.codec import Ids, Row, Target
from seqlab.data.sources import Example
from seqlab.errors import DataError, SeqlabWarning
from seqlab.recipe import Data

BLOCK = 2000  # examples, or lines of a stream, that are encoded at once
Encode = Callable[[list[Example]], Iterable[tuple[Row, Row]]]


class LengthLimits:
    """The rows of examples that fit data.max_source and data.max_target, and a count of those that did not."""

    def __init__(self, data: Data, target: Target) -> None:
        self.data, self.target = data, target
        self.too_long: list[str] = []
        self.kept = 0

    def rows(self, encode: Encode, examples: Iterator[Example]) -> Iterator[tuple[Row, Row]]:
        while block := list(islice(examples, BLOCK)):
            for example, (source, target) in zip(block, encode(block), strict=True):
                for row in self._limited(example, source, target):
                    self.kept += 1
                    yield row

    def _limited(self, example: Example, source: Row, target: Row) -> Iterable[tuple[Row, Row]]:
        data = self.data
        if len(source) <= data.max_source and len(target) <= self.target.longest(data.max_target):
            return [(source, target)]
        if data.too_long == "split":
            return self._split(source, cast(Ids, target))
        if data.too_long == "refuse":
            raise DataError(
                f"{example.where}: {len(source)} source and {len(target)} target tokens, more than "
                f"{data.max_source} and {data.max_target}",
                hint="raise data.max_source and data.max_target, or set data.too_long to 'cut' or 'skip'.",
            )
        self.too_long.append(example.where)
        if data.too_long == "skip":
            return []
        cut = self.target.cut(target, source=data.max_source, target=data.max_target)
        return [(source[: data.max_source], cut)]

    def _split(self, source: Row, target: Ids) -> Iterable[tuple[Row, Row]]:
        """A long line as several, none longer than allowed; each piece of a target has its own beginning and end."""
        inner, most = target[1:-1], self.data.max_target
        for start in range(0, len(source), self.data.max_source):
            yield source[start : start + self.data.max_source], target
        for start in range(0, len(inner), most):
            yield source, [target[0], *inner[start : start + most], target[-1]]

    def report(self, part: str) -> None:
        """Warn of what did not fit; if nothing did, there is nothing to train on."""
        if self.too_long and not self.kept:
            raise DataError(
                f"{self.too_long[0]}: longer than data.max_source or data.max_target, and so are all others of the "
                f"{part} part: none is left",
                hint="raise data.max_source and data.max_target, or set data.too_long to 'cut'.",
            )
        if self.too_long:
            done = "cut" if self.data.too_long == "cut" else "skipped"
            warn(
                f"{self.too_long[0]}: longer than data.max_source or data.max_target; {len(self.too_long)} "
                f"example{'s' if len(self.too_long) > 1 else ''} of the {part} part {done}"
            )


def warn(message: str) -> None:
    warnings.warn(message, SeqlabWarning, stacklevel=2)
