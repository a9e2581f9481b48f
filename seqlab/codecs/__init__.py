"""Sources and targets: what a model reads and what it writes, with all that was learnt about them from data."""

from typing import Any

from seqlab.codecs.codec import Codec, Examples, SourceType, TargetType, entries_of
from seqlab.codecs.text import TextSource, TextTarget, learn_tokenizer
from seqlab.recipe import Recipe


def learn_codec(recipe: Recipe, examples: Examples, old: Codec | None, reads: SourceType, writes: TargetType) -> Codec:
    """The codec of a training part, of which `examples` can be called for each pass that is needed.

    What an `old` model to start from already knows is kept.
    """
    if recipe.shared and old is None:
        both = (str(side) for e in examples() for side in (e.source, e.target))
        tokenizer = learn_tokenizer(recipe.source, both)
        return Codec(TextSource(tokenizer, recipe.source.markers, recipe.source.frame), TextTarget(tokenizer))
    target = writes.learn(recipe, examples, old)
    return Codec(reads.learn(recipe, examples, old), target)


def read_codec(table: Any, recipe: Recipe, reads: SourceType, writes: TargetType) -> Codec:
    """The codec in a tokenizer.json."""
    entries = entries_of(table)
    source = reads.from_json(entries, recipe)
    if entries.get("target") == "source" and isinstance(source, TextSource):
        return Codec(source, TextTarget(source.tokenizer))
    return Codec(source, writes.from_json(entries, recipe))
