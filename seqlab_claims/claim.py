"""What a claim of the lectures is here: words, an experiment, and criteria that were written down before it ran.

All of them stand in `claims.toml`; the experiments are the functions that `suite` names.
"""

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from statistics import fmean
from typing import Any, Literal

Verdict = Literal["confirmed", "depends", "not confirmed"]
Scale = Literal["full", "quick", "tiny"]  # tiny: does it run at all?
Cell = str | int | float
Row = tuple[Cell, ...]


@dataclass(frozen=True)
class Criterion:
    """A number that must be at least, or at most, so much each time: with every seed, in every case."""

    words: str
    at_least: float = -math.inf
    at_most: float = math.inf

    @property
    def rule(self) -> str:
        bars = {"at least": self.at_least, "at most": self.at_most}
        return f"{self.words}: {' and '.join(f'{side} {bar:g}' for side, bar in bars.items() if math.isfinite(bar))}"

    def verdict(self, values: Sequence[float]) -> Verdict:
        """Met each time, never, or only sometimes; what is not a number meets nothing."""
        met = [self.at_least <= value <= self.at_most for value in values]
        return "confirmed" if all(met) else "depends" if any(met) else "not confirmed"


@dataclass(frozen=True)
class Table:
    title: str
    header: tuple[str, ...]
    rows: list[Row]


@dataclass(frozen=True)
class Line:
    """A line of a chart: at each x the values of all seeds, drawn as their mean and a band from least to most."""

    label: str
    x: list[float]
    y: list[list[float]]
    beside: bool = False  # a baseline or a bound, to compare the others with


@dataclass(frozen=True)
class Chart:
    """What is to be drawn: lines over numbers or over named places, or without lines a bar for each name."""

    title: str
    titles: tuple[str, str]  # of the axes
    lines: list[Line] = field(default_factory=list)
    places: list[str] = field(default_factory=list)  # names for x = 0, 1, 2, ...
    bars: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Finding:
    """What an experiment found: for each criterion its number, with each seed or in each case; tables; a chart."""

    values: dict[str, list[float]]
    tables: list[Table]
    chart: Chart


@dataclass(frozen=True, eq=False)
class Claim:
    """A sentence of the lectures, how it is tested, and what would confirm it."""

    id: str
    title: str
    words: str
    data: str
    experiment: str
    criteria: Mapping[str, Criterion]
    limits: str  # what the experiment does not show

    @property
    def rule(self) -> str:
        each = "; ".join(criterion.rule for criterion in self.criteria.values())
        return f"confirmed if each time {each}; not confirmed if that never holds; otherwise it depends"

    def verdict(self, finding: Finding) -> Verdict:
        """Of all criteria together: confirmed if each is, not confirmed if none is, otherwise it depends."""
        verdicts = {
            criterion.verdict(finding.values[name]) for name, criterion in self.criteria.items()
        }
        return verdicts.pop() if len(verdicts) == 1 else "depends"

    def sentence(self, finding: Finding) -> str:
        """Each criterion with what was found."""
        return (
            "; ".join(
                f"{c.words}: {ranged(finding.values[name])}" for name, c in self.criteria.items()
            )
            + "."
        )


@cache
def document() -> dict[str, Any]:
    """All of claims.toml: a table for each claim, and the settings of recipes that several share."""
    return tomllib.loads((files("seqlab_claims") / "claims.toml").read_text("utf-8"))


def read_claims() -> dict[str, Claim]:
    """All claims, in the order of the lectures' numbers."""
    claims = {}
    for name, table in document().items():
        if name != "recipes":
            criteria = {key: Criterion(**each) for key, each in table["criteria"].items()}
            texts = {
                key: " ".join(text.split()) for key, text in table.items() if isinstance(text, str)
            }
            claims[name] = Claim(name, criteria=criteria, **texts)
    return claims


def ranged(values: Sequence[float]) -> str:
    """The mean of some values, and from where to where they reach."""
    mean, low, high = map(number, (fmean(values), min(values), max(values)))
    return mean if low == high else f"{mean} ({low} to {high})"


def number(value: Cell) -> str:
    """Three figures, and words as they are."""
    if isinstance(value, str):
        return value
    return (
        f"{value:,}"
        if isinstance(value, int)
        else f"{value:.3g}"
        if abs(value) < 1000
        else f"{value:,.0f}"
    )
