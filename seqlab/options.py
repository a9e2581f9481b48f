"""What decoding and the views can be told: each option once, with its type, its range and its help.

The section [decode] of a recipe, the flags of the command line and the bodies of HTTP requests are made of these.
Nothing of pydantic is imported here, because `seqlab --help` must answer at once.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

MOST_HYPOTHESES = 32
MOST_TOKENS = 1_000  # of one answer
MOST_LOOKED_AT = 2_000  # letters of an input that is explained

Bound = int | float | None


@dataclass(frozen=True)
class Range:
    """What a number may be, or how many letters or entries there may be; a server can be stricter about numbers."""

    least: Bound = None
    above: Bound = None
    most: Bound = None
    longest: int | None = None
    served_least: Bound = None
    served_most: Bound = None

    __is_annotated_types_grouped_metadata__ = (
        True  # so that pydantic asks for the bounds one by one
    )

    def __iter__(self) -> Iterator[Any]:
        from pydantic import Field

        yield from Field(
            ge=self.least, gt=self.above, le=self.most, max_length=self.longest
        ).metadata


Width = Annotated[int, Range(least=1, served_most=MOST_HYPOTHESES)]
Count = Annotated[int, Range(least=1, served_most=MOST_TOKENS)]
Penalty = Annotated[float, Range(least=0, served_most=10)]
Temperature = Annotated[float, Range(above=0, served_least=0.01, served_most=100)]
Short = Annotated[str, Range(longest=200)]


class DecodeOptions:
    """How an answer is searched for."""

    method: Annotated[Literal["greedy", "sample", "beam"], Range(), "how each token is chosen"] = (
        "greedy"
    )
    temperature: Annotated[Temperature, "sample; below 1 is safer, above 1 wilder"] = 1.0
    top_k: Annotated[
        int | None, Range(least=1, served_most=1_000_000), "sample among the k likeliest tokens"
    ] = None
    top_p: Annotated[
        float | None, Range(above=0, most=1), "sample among the likeliest tokens of mass p"
    ] = None
    beam: Annotated[Width, "beam search with this many hypotheses"] = 5
    length_penalty: Annotated[Penalty, "beam: 0 ranks by the sum, 1 by the mean"] = 1.0
    no_repeat: Annotated[
        int | None, Range(least=1, served_most=MOST_TOKENS), "beam: no n-gram of this length twice"
    ] = None
    min_length: Annotated[
        int, Range(least=0, served_most=MOST_TOKENS), "beam: shortest answer, in tokens"
    ] = 0
    max_length: Annotated[Count, "longest answer, in tokens"] = 200
    conformal: Annotated[
        float | None,
        Range(least=0.5, most=0.99),
        "classify: the labels that hold the true one so often, as 0.9",
    ] = None


class ExplainOptions:
    """What the views can be told; each takes those that its signature names."""

    output: Annotated[
        str, Range(longest=MOST_LOOKED_AT), "look at this answer instead of the model's own"
    ]
    layer: Annotated[Short, "a layer or stage by its name"]
    cell: Annotated[Short, "number: which of a stage's numbers, as 0,2,5"]
    head: Annotated[Count, "attention: one head"]
    hypothesis: Annotated[Width, "attention: the n-th best of a beam"]
    position: Annotated[int, Range(least=1), "which part of the answer, counted from 1"]
    unit: Annotated[int, Range(least=0), "cells: one unit"]
    pattern: Annotated[str, Range(longest=100), "cells: a regular expression to follow"]
    method: Annotated[Short, "saliency: integrated, gradient or leave-one-out"]
    ablate: Annotated[list[Short], Range(longest=50), "what-if: silence NAME or NAME:3,4"]
    replace: Annotated[Short, "what-if: another word, as PLACE=WORD"]
    prefix: Annotated[str, Range(longest=MOST_TOKENS), "what-if: what the answer must begin with"]
    temperature: Annotated[Temperature, "what-if: sample at this temperature"]
    beam: Annotated[Width, "beam: how many hypotheses"]
    length_penalty: Annotated[Penalty, "beam: 0 ranks by the sum, 1 by the mean"]
    replay_beam: Annotated[Width, "beam: search the tree again, this wide"]
    replay_penalty: Annotated[Penalty, "beam: rank the tree again"]
    column: Annotated[Short, "band: which column of the series"]
