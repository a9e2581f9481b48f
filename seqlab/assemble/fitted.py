"""Examples within the limits of a recipe: what is too long is cut, split, skipped or refused, and told of."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import cast

from seqlab.assemble.vocabularies import Ids, Row
from seqlab.data.sources import Example
from seqlab.errors import DataError, SeqlabWarning
from seqlab.recipe import Data

BLOCK = 2000  # examples, or lines of a stream, that are encoded at once
Encode = Callable[[list[Example]], Iterable[tuple[Row, Row]]]


class Fitted:
    """Examples whose ids fit the recipe's limits: cut, skipped or refused where they do not, and counted."""

    def __init__(self, data: Data, *, keeps_ends: bool, aligned: bool) -> None:
        self.data, self.keeps_ends, self.aligned = data, keeps_ends, aligned
        self.long: list[str] = []
        self.kept = 0

    def rows(self, encode: Encode, examples: Iterator[Example]) -> Iterator[tuple[Row, Row]]:
        while block := list(islice(examples, BLOCK)):
            for example, (source, target) in zip(block, encode(block), strict=True):
                for fitted in self._fit(example, source, target):
                    self.kept += 1
                    yield fitted

    def _fit(self, example: Example, source: Row, target: Row) -> Iterable[tuple[Row, Row]]:
        most_source, most_target = self.data.max_source, self.data.max_target
        if self.keeps_ends:
            most_target += 2  # SOS and EOS are not the user's
        if len(source) <= most_source and len(target) <= most_target:
            return [(source, target)]
        if self.data.too_long == "split":
            return self._split(source, cast(Ids, target))
        if self.data.too_long == "refuse":
            raise DataError(
                f"{example.where}: {len(source)} source and {len(target)} target tokens, more than "
                f"{self.data.max_source} and {self.data.max_target}",
                hint="raise data.max_source and data.max_target, or set data.too_long to 'cut' or 'skip'.",
            )
        self.long.append(example.where)
        if self.data.too_long == "skip":
            return []
        if self.aligned:
            return [(source[:most_source], target[:most_source])]
        written = cast(Ids, target)
        end = written[-1:] if self.keeps_ends else []
        kept = written if len(written) <= most_target else written[: most_target - len(end)] + end
        return [(source[:most_source], kept)]

    def _split(self, source: Row, target: Ids) -> Iterable[tuple[Row, Row]]:
        """A long line as several, none longer than allowed; each piece of a target has its own beginning and end."""
        inner, most = target[1:-1], self.data.max_target
        for start in range(0, len(source), self.data.max_source):
            yield source[start : start + self.data.max_source], target
        for start in range(0, len(inner), most):
            yield source, [target[0], *inner[start : start + most], target[-1]]

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
            warn(
                f"{self.long[0]}: longer than data.max_source or data.max_target; {len(self.long)} "
                f"example{'s' if len(self.long) > 1 else ''} of the {part} part {done}"
            )


def warn(said: str) -> None:
    warnings.warn(said, SeqlabWarning, stacklevel=2)
