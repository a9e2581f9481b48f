"""The options of decoding and of the views: each is declared once, with its type, range and help.

The section [decode] of a recipe, the flags of the command line and the bodies of HTTP requests are derived from these.
pydantic is not imported at the top, because `seqlab --help` must be fast.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

MAX_HYPOTHESES = 32
MAX_TOKENS = 1_000  # of one answer
MAX_EXPLAINED = 2_000  # characters of an input that is explained

Bound = int | float | None


@dataclass(frozen=True)
class Range:
    """The range of a number, or the maximum length of a text or list; `served_*` are stricter limits of the server."""

    least: Bound = None
    above: Bound = None
    most: Bound = None
    longest: int | None = None
    served_least: Bound = None
    served_most: Bound = None

    # pydantic iterates over the bounds of such an object
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
    """Options of decoding."""

    method: Annotated[
        Literal["greedy", "sample", "beam"],
        Range(),
        "how each token is chosen",
    ] = "greedy"
    temperature: Annotated[
        Temperature, "sample: divides the logits; below 1 safer, above 1 more varied"
    ] = 1.0
    top_k: Annotated[
        int | None,
        Range(least=1, served_most=1_000_000),
        "sample: from the k most probable tokens only",
    ] = None
    top_p: Annotated[
        float | None,
        Range(above=0, most=1),
        "sample: from the most probable tokens whose probabilities add up to p",
    ] = None
    beam: Annotated[Width, "beam search: number of hypotheses"] = 5
    length_penalty: Annotated[
        Penalty, "beam: 0 ranks by total log-probability, 1 by the mean per token"
    ] = 1.0
    no_repeat: Annotated[
        int | None,
        Range(least=1, served_most=MAX_TOKENS),
        "beam: never repeat an n-gram of this length",
    ] = None
    min_length: Annotated[
        int,
        Range(least=0, served_most=MAX_TOKENS),
        "beam: minimum length of the answer, in tokens",
    ] = 0
    max_length: Annotated[Count, "maximum length of the answer, in tokens"] = 200
    conformal: Annotated[
        float | None,
        Range(least=0.5, most=0.99),
        "classify: print the set of labels that contains the correct one with this probability",
    ] = None


class ExplainOptions:
    """Options of the views; each view takes those in its signature."""

    output: Annotated[
        str, Range(longest=MAX_EXPLAINED), "explain this answer instead of the model's own"
    ]
    layer: Annotated[Short, "name of a layer or stage"]
    cell: Annotated[Short, "number: index of one number of the stage, like 0,2,5"]
    head: Annotated[Count, "attention: show only this head, counted from 1"]
    hypothesis: Annotated[Width, "attention: explain the n-th hypothesis of the beam"]
    position: Annotated[int, Range(least=1), "position in the answer, counted from 1"]
    unit: Annotated[int, Range(least=0), "cells: show only this unit, counted from 0"]
    pattern: Annotated[
        str, Range(longest=100), "cells: find the units that follow this regular expression"
    ]
    method: Annotated[Short, "saliency: integrated, gradient or leave-one-out"]
    ablate: Annotated[
        list[Short],
        Range(longest=50),
        "what-if: set a stage (NAME) or units of it (NAME:3,4) to zero",
    ]
    replace: Annotated[Short, "what-if: replace a word of the input: PLACE=WORD, like 3=house"]
    prefix: Annotated[
        str, Range(longest=MAX_TOKENS), "what-if: force the answer to begin with this text"
    ]
    temperature: Annotated[Temperature, "what-if: sample with this temperature"]
    beam: Annotated[Width, "beam search: number of hypotheses"]
    length_penalty: Annotated[
        Penalty, "beam: 0 ranks by total log-probability, 1 by the mean per token"
    ]
    replay_beam: Annotated[Width, "beam: repeat the search with this many hypotheses"]
    replay_penalty: Annotated[Penalty, "beam: repeat the search with this length penalty"]
    column: Annotated[Short, "band: column of the series"]
