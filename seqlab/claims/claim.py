"""What a claim of the lectures is here: words, an experiment, and criteria that were written down before it ran."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict

from seqlab.bundle import is_bundle
from seqlab.lab import Model, load, train
from seqlab.recipe import Task

T = TypeVar("T")
Verdict = Literal["confirmed", "not confirmed", "depends"]
Scale = Literal["full", "quick", "tiny"]  # tiny: does it run at all?
SEEDS: dict[Scale, int] = {"full": 3, "quick": 2, "tiny": 1}
Cell = str | int | float
Change = Mapping[str, object]  # settings of a recipe


@dataclass(frozen=True)
class Criterion:
    """A number that must be at least, or at most, so much with every seed."""

    words: str
    at_least: float = -math.inf
    at_most: float = math.inf

    @property
    def rule(self) -> str:
        side, bar = ("least", self.at_least) if math.isinf(self.at_most) else ("most", self.at_most)
        return f"{self.words}: at {side} {bar:g}"

    def verdict(self, values: Sequence[float]) -> Verdict:
        """Met each time, never, or only sometimes; what is not a number meets nothing."""
        met = [self.at_least <= value <= self.at_most for value in values]
        return "confirmed" if all(met) else "depends" if any(met) else "not confirmed"


class Plain(BaseModel):
    """Something that is written as JSON and read back."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")


class Table(Plain):
    title: str
    header: tuple[str, ...]
    rows: list[tuple[Cell, ...]]


class Line(Plain):
    """A line of a chart: at each x the values of all seeds, drawn as their mean and a band from least to most."""

    label: str
    x: list[float]
    y: list[list[float]]


class Chart(Plain):
    """What is to be drawn: lines over numbers or over named places, or without lines a bar for each name."""

    title: str
    titles: tuple[str, str]  # of the axes
    lines: list[Line] = []
    places: list[str] = []  # names for x = 0, 1, 2, ...
    bars: dict[str, float] = {}


class Finding(Plain):
    """What an experiment found: for each criterion its number, with each seed or in each case; tables; a chart."""

    values: dict[str, list[float]]
    tables: list[Table]
    chart: Chart


@dataclass(frozen=True)
class Settings:
    """At which scale an experiment runs, with how many seeds, and where its trainings lie until it is done."""

    folder: Path
    scale: Scale = "full"
    num_seeds: int | None = None
    told: Callable[[str], None] = lambda text: None

    @property
    def seeds(self) -> range:
        return range(1, 1 + (self.num_seeds or SEEDS[self.scale]))

    def pick(self, full: T, quick: T, tiny: T) -> T:
        """What suits the scale."""
        return {"full": full, "quick": quick, "tiny": tiny}[self.scale]

    def file(self, name: str, rows: Iterable[Sequence[str]] | str) -> Path:
        """A text, or rows of cells between tabs, as a file to train on."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(rows if isinstance(rows, str) else "".join("\t".join(row) + "\n" for row in rows), "utf-8")
        return path

    def trained(
        self,
        name: str,
        task: Task,
        data: Path,
        recipe: str,
        change: Change,
        *,
        seed: int,
        valid: Path | None = None,
        start: Model | None = None,
    ) -> Model:
        """`seqlab train TASK DATA --recipe RECIPE --set ...`, unless that was done before.

        Unless `change` says otherwise it validates once, at the end, so that no score is the best of several.
        """
        folder = self.folder / f"{name}-{seed}".replace(" ", "-")
        if is_bundle(folder):
            return load(folder)
        self.told(f"  {name}, seed {seed}")
        settings = {"train.validate_every": change["train.steps"], **change, "train.seed": seed}
        return train(
            task,
            data,
            recipe=recipe,
            settings=[f"{key}={value}" for key, value in settings.items()],
            valid=valid or (),
            start=None if start is None else start.path,
            out=folder,
            overwrite=True,
        ).model

    def each(
        self, ways: Mapping[str, Change], task: Task, data: Path, recipe: str, fixed: Change, valid: Path | None = None
    ) -> dict[str, list[Model]]:
        """A model for each way and seed; what a way says goes before what is fixed for all."""
        return {
            name: [self.trained(name, task, data, recipe, {**fixed, **way}, seed=seed, valid=valid) for seed in self.seeds]
            for name, way in ways.items()
        }


@dataclass(frozen=True)
class Claim:
    """A sentence of the lectures, how it is tested, and what would confirm it."""

    id: str
    title: str
    words: str
    data: str
    experiment: str
    criteria: Mapping[str, Criterion]
    limits: str  # what the experiment does not show
    run: Callable[[Settings], Finding] = field(repr=False)

    @property
    def rule(self) -> str:
        each = "; ".join(criterion.rule for criterion in self.criteria.values())
        return f"Confirmed if with every seed {each}. Depends if only some of that holds."

    def verdict(self, finding: Finding) -> Verdict:
        """Of all criteria together: confirmed if each is, not confirmed if none is, otherwise it depends."""
        found = {criterion.verdict(finding.values[name]) for name, criterion in self.criteria.items()}
        return found.pop() if len(found) == 1 else "depends"

    def sentence(self, finding: Finding) -> str:
        """Each criterion with what was found."""
        return "; ".join(f"{c.words}: {ranged(finding.values[name])}" for name, c in self.criteria.items()) + "."


def ranged(values: Sequence[float]) -> str:
    """The mean of some values, and from where to where they reach."""
    low, high = min(values), max(values)
    mean = number(fmean(values))
    return mean if number(low) == number(high) else f"{mean} ({number(low)} to {number(high)})"


def number(value: Cell) -> str:
    """Three figures, and words as they are."""
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def minus(one: Sequence[float], other: Sequence[float]) -> list[float]:
    """Seed by seed."""
    return [a - b for a, b in zip(one, other, strict=True)]


def over(one: Sequence[float], other: Sequence[float]) -> list[float]:
    """Seed by seed."""
    return [a / b for a, b in zip(one, other, strict=True)]


def scores(models: Mapping[str, Sequence[Model]], measure: str) -> dict[str, list[float]]:
    """How good each model is on what its training held out."""
    return {name: [model.metrics["validation"][measure] for model in each] for name, each in models.items()}


def table_of(what: str, models: Mapping[str, Sequence[Model]], measure: str) -> Table:
    """A row for each way with its mean over the seeds, the least and the most, and one for each floor."""
    found = scores(models, measure)
    rows: list[tuple[Cell, ...]] = [(name, fmean(each), min(each), max(each)) for name, each in found.items()]
    floors = next(iter(models.values()))[0].metrics["validation"]["floors"]
    rows += [(f"floor: {name}", floor[measure], "", "") for name, floor in floors.items() if measure in floor]
    return Table(title=f"{what}: {measure} on what was held out", header=("", "mean", "least", "most"), rows=rows)


def lines(x: Sequence[float], found: Mapping[str, Sequence[Sequence[float]]]) -> list[Line]:
    """Lines over the same x, from the values of all seeds at each."""
    return [Line(label=name, x=list(map(float, x)), y=[list(row) for row in rows]) for name, rows in found.items()]
