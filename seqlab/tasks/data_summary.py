"""A summary of the examples in files, to check them before a training."""

from collections import Counter
from typing import Any

import numpy as np

from seqlab.codecs.codec import Files, Json
from seqlab.codecs.labels import LabelTarget, labels_of
from seqlab.corpus.examples import example_key
from seqlab.data.example import Picture
from seqlab.errors import DataError, shorten
from seqlab.recipe import Recipe
from seqlab.tasks.task import Task


def summarise_examples(task: Task, recipe: Recipe, files: Files) -> Json:
    """Count examples, repeated sources and labels, and return the longest examples and the first one."""
    count, sources, labels = 0, Counter[int](), Counter[str]()
    longest = {"source": (0, ""), "target": (0, "")}
    first = None
    for example in task.read(recipe, files):
        first = first or example
        count += 1
        sources[example_key(example, seed=0)] += 1
        for side in longest:
            longest[side] = max(longest[side], (len(getattr(example, side)), example.where))
        if task.writes(recipe) is LabelTarget:
            labels.update(label for label in labels_of(example) if label != recipe.data.no_label)
    if first is None:
        raise DataError(
            f"{', '.join(files)}: there is no example in it", hint="give a file with examples."
        )
    facts: Json = {"examples": count, "repeated_sources": count - len(sources)}
    for side, (length, where) in longest.items():
        if length:
            facts[f"longest_{side}"] = f"{length:,} at {where}"
    if labels:
        facts |= {"labels": len(labels), "most_frequent": dict(labels.most_common(10))}
    source, target = (shorten(_describe(part), 200) for part in (first.source, first.target))
    return facts | {"first": f"{first.where}: {source} -> {target}"}


def _describe(value: Any) -> str:
    """Describe the source or the target of an example, for which there is no codec yet."""
    if isinstance(value, Picture):
        return value.name
    if isinstance(value, np.ndarray):
        return f"{len(value)} frames of {value.shape[1]} features"
    return value if isinstance(value, str) else " ".join(value)
