"""Pictures prepared for training: each decoded once and stored once, however much is said of it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, cast

import numpy as np
from jaxtyping import Shaped

from seqlab.data.pictures import read_pictures
from seqlab.data.sources import Example, Picture
from seqlab.data.store import PIXELS, VECTORS, Column, Shared, TokenStore, write_stores
from seqlab.recipe import Recipe

STORE = "pictures"


def is_pictured(recipe: Recipe) -> bool:
    """Whether a source is a picture, or what another network made of one."""
    return recipe.image is not None or recipe.task == "caption"


def picture_examples(recipe: Recipe, paths: Sequence[str]) -> Iterator[Example]:
    """The examples in the user's files."""
    data, labels = recipe.data, recipe.task == "classify"
    return read_pictures(paths, recipe.image, labels=labels, source=data.source, target=data.target)


def store_pictures(recipe: Recipe, parts: Sequence[Sequence[str]], folder: Path) -> list[list[Example]]:
    """The examples of each part, their pictures in one store in `folder`, into which they look."""
    found: list[list[Example]] = [[] for _ in parts]
    named: list[Picture] = []

    def decoded() -> Iterator[tuple[Shaped[np.ndarray, "T F"]]]:
        for examples, paths in zip(found, parts, strict=True):
            last: object = None
            for example in picture_examples(recipe, paths):
                if example.source is not last:  # what is said of one picture comes together
                    last, seen = example.source, cast(Picture, example.source)
                    named.append(Picture(seen.name, np.empty((0, 0)), len(named)))
                    yield (seen.values,)
                examples.append(replace(example, source=named[-1]))

    rows = decoded()
    first = next(rows)
    dtype = VECTORS if recipe.image is None else PIXELS
    [store] = write_stores([Column(folder / STORE, 0, dtype, first[0].shape[1])], chain([first], rows))
    offsets = store.offsets.tolist()
    named = [replace(p, values=store.flat[offsets[i] : offsets[i + 1]]) for i, p in enumerate(named)]
    return [[replace(e, source=named[cast(Any, e.source).place]) for e in examples] for examples in found]


def shared_pictures(stores: dict[str, TokenStore], part: str) -> Shared | None:
    """The pictures of one part's examples, where there are any."""
    if STORE not in stores:
        return None
    return Shared(stores[STORE], stores[f"{part}_source"].flat.astype(np.int64))
