"""A claim of the lectures: its text, its experiment, and criteria that were fixed before the experiment ran.

Claims are in `claims.toml`; the experiments are the functions listed in `suite`.
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
Scale = Literal["full", "quick", "tiny"]  # tiny: only to test that it runs
Cell = str | int | float
Row = tuple[Cell, ...]


@dataclass(frozen=True)
class Criterion:
    """Bounds of a number that must hold with every seed and in every case."""

    words: str
    at_least: float = -math.inf
    at_most: float = math.inf

    @property
    def rule(self) -> str:
        bounds = {"at least": self.at_least, "at most": self.at_most}
        parts = [f"{side} {bound:g}" for side, bound in bounds.items() if math.isfinite(bound)]
        return f"{self.words}: {' and '.join(parts)}"

    def verdict(self, values: Sequence[float]) -> Verdict:
        """Return whether the bounds hold always, sometimes or never; NaN is never within them."""
        met = [self.at_least <= value <= self.at_most for value in values]
        if all(met):
            return "confirmed"
        return "depends" if any(met) else "not confirmed"


@dataclass(frozen=True)
class Table:
    title: str
    header: tuple[str, ...]
    rows: list[Row]


@dataclass(frozen=True)
class Line:
    """A line of a chart: the values of all seeds at each x, drawn as their mean and a band from minimum to maximum."""

    label: str
    x: list[float]
    y: list[list[float]]
    beside: bool = False  # whether it is a baseline or a bound


@dataclass(frozen=True)
class Chart:
    """Data of a chart: lines over numbers or over named places; if there are no lines, a bar for each name."""

    title: str
    titles: tuple[str, str]  # of the axes
    lines: list[Line] = field(default_factory=list)
    places: list[str] = field(default_factory=list)  # names for x = 0, 1, 2, ...
    bars: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Finding:
    """The result of an experiment: the values of each criterion for all seeds or cases, tables, and a chart."""

    values: dict[str, list[float]]
    tables: list[Table]
    chart: Chart


@dataclass(frozen=True, eq=False)
class Claim:
    """A sentence of the lectures with its experiment and its criteria."""

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
        """Combine the verdicts of the criteria: if they differ, it depends."""
        verdicts = {
            criterion.verdict(finding.values[name]) for name, criterion in self.criteria.items()
        }
        return verdicts.pop() if len(verdicts) == 1 else "depends"

    def sentence(self, finding: Finding) -> str:
        """Return each criterion with its values, as a sentence."""
        parts = [f"{c.words}: {ranged(finding.values[name])}" for name, c in self.criteria.items()]
        return "; ".join(parts) + "."


@cache
def document() -> dict[str, Any]:
    """Return the content of claims.toml: a table for each claim, and settings of recipes that several claims share."""
    return tomllib.loads((files("seqlab_claims") / "claims.toml").read_text("utf-8"))


def read_claims() -> dict[str, Claim]:
    """Return all claims, in the order of claims.toml."""
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
    """Return the mean of some values with their minimum and maximum, as text."""
    mean, low, high = map(number, (fmean(values), min(values), max(values)))
    return mean if low == high else f"{mean} ({low} to {high})"


def number(value: Cell) -> str:
    """Return a number with three significant digits; text stays as it is."""
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
