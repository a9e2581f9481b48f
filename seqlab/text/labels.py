"""The labels of a classifier or a tagger."""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from seqlab.errors import DataError
from seqlab.text.vocabulary import malformed, parts, strings

UNSEEN = -1
"""The id of a label that is not in the training data: it equals no prediction, so it counts as wrong."""


@dataclass(frozen=True)
class Labels:
    """Label names and their counts in the training data; an id is an index of this list."""

    names: tuple[str, ...]
    counts: tuple[int, ...]

    @classmethod
    def from_counts(cls, counts: Counter[str]) -> "Labels":
        """Sort labels by name, so that the ids do not depend on the order of the file."""
        if not counts:
            raise DataError(
                "there are no labels to learn", hint="check that the file has a column of labels."
            )
        names = tuple(sorted(counts))
        return cls(names, tuple(counts[name] for name in names))

    def encode(self, label: str) -> int:
        return self._ids.get(label, UNSEEN)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def majority(self) -> str:
        """The most frequent label, the baseline of every classifier; of equal ones the first by name."""
        return self.names[self.counts.index(max(self.counts))]

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self.names)}

    def to_json(self) -> dict[str, Any]:
        return {"names": list(self.names), "counts": list(self.counts)}

    @classmethod
    def from_json(cls, data: object) -> "Labels":
        stored = parts(data, "the list of labels", {"names": list, "counts": list})
        names, counts = strings(stored["names"], "the labels"), stored["counts"]
        if not names or len(names) != len(counts):
            raise malformed(f"the list of labels has {len(names)} names and {len(counts)} counts")
        if not all(type(count) is int and count >= 0 for count in counts):
            raise malformed("the counts of labels must be whole numbers, none below 0")
        return cls(tuple(names), tuple(counts))
