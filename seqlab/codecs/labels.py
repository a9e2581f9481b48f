"""Labels as a target: one for a whole source, or one for each of its words."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from seqlab.codecs.codec import Codec, Examples, Json, Places, Row, Target, entry_of, part_of
from seqlab.data.example import Example
from seqlab.data.store import Column
from seqlab.recipe import Recipe
from seqlab.text import UNSEEN, Labels


@dataclass(frozen=True)
class LabelTarget(Target):
    """The labels that a model chooses from."""

    labels: Labels

    def encode(self, examples: Sequence[Example], places: Sequence[Places]) -> list[Row]:
        return [self._row(example, at) for example, at in zip(examples, places, strict=True)]

    def _row(self, example: Example, at: Places) -> Row:
        """Put the label of a word at its first piece; other pieces have none."""
        ids = [self.labels.encode(label) for label in labels_of(example)]
        if at.starts is None:
            return ids
        row = [UNSEEN] * at.length
        for position, label in zip(at.starts, ids, strict=True):
            row[position] = label
        return row

    def column(self, path: Path) -> Column:
        return Column(path, len(self.labels), "int32")  # an unknown label is -1

    @property
    def sizes(self) -> dict[str, int]:
        return {"labels": len(self.labels)}

    @property
    def pages(self) -> list[str]:
        table = zip(self.labels.names, self.labels.counts, strict=True)
        rows = "".join(f"{i}\t{name}\t{count}\n" for i, (name, count) in enumerate(table))
        return [f"# labels: {len(self.labels)}, each with its count in training\n{rows}"]

    def to_json(self) -> Json:
        return {"labels": self.labels.to_json()}

    @classmethod
    def from_json(cls, table: Json, recipe: Recipe) -> "LabelTarget":
        return cls(Labels.from_json(entry_of(table, "labels")))

    @classmethod
    def learn(cls, recipe: Recipe, examples: Examples, old: Codec | None) -> "LabelTarget":
        """Collect the labels of the training part, also for an `old` model; data.no_label is not a label."""
        counts = Counter(label for e in examples() for label in labels_of(e))
        counts.pop(str(recipe.data.no_label), None)
        return cls(Labels.from_counts(counts))


def labels_of(example: Example) -> tuple[str, ...]:
    """Return the labels of a tagged sentence, or the one label of a text."""
    return (example.target,) if isinstance(example.target, str) else example.target


def labels_in(codec: Codec) -> Labels:
    """Return the labels of a classifier or tagger."""
    return part_of(codec.target, LabelTarget, "this model has no labels").labels


def answer_names(codec: Codec) -> list[str]:
    """Return the names of a model's classes: its labels, or the tokens that it generates or fills in."""
    if isinstance(codec.target, LabelTarget):
        return list(codec.target.labels.names)
    tokenizer = codec.target_tokenizer if codec.writes else codec.source_tokenizer
    return tokenizer.pieces(range(len(tokenizer)))
