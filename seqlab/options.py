"""The options of decoding and of the views: each is declared once, with its type, its range and its help text.

The section [decode] of a recipe, the flags of the command line and the bodies of HTTP requests are derived from them.
Pydantic is not imported at the top, so that `seqlab --help` is fast.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

MAX_HYPOTHESES = 32
# tokens of one answer
MAX_TOKENS = 1_000
# characters of an input that is explained
MAX_EXPLAINED = 2_000

Bound = int | float | None


@dataclass(frozen=True)
class Range:
    """The range of a number, or the maximum number of characters or entries; a server may have a smaller range."""

    least: Bound = None
    above: Bound = None
    most: Bound = None
    longest: int | None = None
    served_least: Bound = None
    served_most: Bound = None

    # tells pydantic to iterate over the bounds
    __is_annotated_types_grouped_metadata__ = True

    def __iter__(self) -> Iterator[Any]:
        from pydantic import Field

        yield from Field(
            ge=self.least, gt=self.above, le=self.most, max_length=self.longest
        ).metadata


Width = Annotated[int, Range(least=1, served_most=MAX_HYPOTHESES)]
Count = Annotated[int, Range(least=1, served_most=MAX_TOKENS)]
Penalty = Annotated[float, Range(least=0, served_most=10)]
Temperature = Annotated[float, Range(above=0, served_least=0.01, served_most=100)]
Short = Annotated[str, Range(longest=200)]


class DecodeOptions:
    """The options of decoding."""

    method: Annotated[Literal["greedy", "sample", "beam"], Range(), "how each token is chosen"] = (
        "greedy"
    )
    temperature: Annotated[Temperature, "sample: below 1 less random, above 1 more random"] = 1.0
    top_k: Annotated[
        int | None, Range(least=1, served_most=1_000_000), "sample among the k likeliest tokens"
    ] = None
    top_p: Annotated[
        float | None, Range(above=0, most=1), "sample among the likeliest tokens of mass p"
    ] = None
    beam: Annotated[Width, "beam search with this many hypotheses"] = 5
    length_penalty: Annotated[Penalty, "beam: 0 ranks by the sum, 1 by the mean"] = 1.0
    no_repeat: Annotated[
        int | None, Range(least=1, served_most=MAX_TOKENS), "beam: no n-gram of this length twice"
    ] = None
    min_length: Annotated[
        int, Range(least=0, served_most=MAX_TOKENS), "beam: shortest answer, in tokens"
    ] = 0
    max_length: Annotated[Count, "longest answer, in tokens"] = 200
    conformal: Annotated[
        float | None,
        Range(least=0.5, most=0.99),
        "classify: sets of labels that contain the true one with this probability, such as 0.9",
    ] = None


class ExplainOptions:
    """The options of the views; each view takes those that its signature names."""

    output: Annotated[
        str, Range(longest=MAX_EXPLAINED), "explain this answer instead of the model's own"
    ]
    layer: Annotated[Short, "a layer or stage by its name"]
    cell: Annotated[Short, "number: the index of a number of the stage, such as 0,2,5"]
    head: Annotated[Count, "attention: one head"]
    hypothesis: Annotated[Width, "attention: the n-th best hypothesis of a beam"]
    position: Annotated[int, Range(least=1), "position in the answer, counted from 1"]
    unit: Annotated[int, Range(least=0), "cells: one unit"]
    pattern: Annotated[
        str, Range(longest=100), "cells: find units that follow this regular expression"
    ]
    method: Annotated[Short, "saliency: integrated, gradient or leave-one-out"]
    ablate: Annotated[list[Short], Range(longest=50), "what-if: set NAME or units NAME:3,4 to zero"]
    replace: Annotated[Short, "what-if: replace a word, as POSITION=WORD"]
    prefix: Annotated[str, Range(longest=MAX_TOKENS), "what-if: the beginning of the answer"]
    temperature: Annotated[Temperature, "what-if: sample at this temperature"]
    beam: Annotated[Width, "beam: the number of hypotheses"]
    length_penalty: Annotated[Penalty, "beam: 0 ranks by the sum, 1 by the mean"]
    replay_beam: Annotated[Width, "beam: search the tree again with this many hypotheses"]
    replay_penalty: Annotated[Penalty, "beam: rank the tree again with this penalty"]
    column: Annotated[Short, "band: the column of the series"]
