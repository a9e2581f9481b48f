"""How large an experiment is, the trainings in it, and the small sums that all experiments do with their scores."""

import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar, cast

from seqlab.bundle import is_bundle
from seqlab.errors import SeqlabWarning
from seqlab.lab import Model, load, train
from seqlab.model import RUN
from seqlab.training.checkpoint import MetricsFile
from seqlab_claims.claim import Chart, Line, Row, Scale, Table, document

T = TypeVar("T")
SEEDS: dict[Scale, int] = {"full": 3, "quick": 2, "tiny": 1}
Change = Mapping[str, object]  # of a recipe's settings
Models = Mapping[str, Sequence[Model]]  # of each way that is compared, one for each seed
Results = Mapping[
    str, Sequence[Sequence[float]]
]  # of each way, at each place, the values of all seeds
Beside = Mapping[str, Sequence[float]]  # baselines and bounds, at each place


@dataclass(frozen=True)
class Settings:
    """At which scale an experiment runs, with how many seeds, and where its trainings lie until it is done."""

    folder: Path
    scale: Scale = "full"
    num_seeds: int | None = None
    report: Callable[[str], None] = lambda text: None

    @property
    def seeds(self) -> range:
        return range(1, 1 + (self.num_seeds or SEEDS[self.scale]))

    def pick(self, full: T, quick: T, tiny: T) -> T:
        """What suits the scale."""
        return {"full": full, "quick": quick, "tiny": tiny}[self.scale]

    def sizes(self, claim: str) -> dict[str, Any]:
        """How much an experiment takes of everything at this scale."""
        return {name: self.pick(*values) for name, values in document()[claim]["sizes"].items()}

    def recipe(self, claim: str) -> dict[str, Any]:
        """The settings of a claim's recipe at this scale."""
        return self._changes(document()[claim]["recipe"])

    def recipes(self, claim: str) -> list[dict[str, Any]]:
        """The same for a claim with several recipes, in the order of claims.toml."""
        return [self._changes(table) for table in document()[claim]["recipes"].values()]

    def _changes(self, table: Mapping[str, Any]) -> dict[str, Any]:
        changes = self._changes(document()["recipes"][table["base"]]) if "base" in table else {}
        for key, value in table.items():
            if key != "base":
                changes[key] = self.pick(*value) if isinstance(value, list) else value
        return changes

    def file(self, name: str, rows: Iterable[Sequence[str]] | str) -> Path:
        """A text, or rows of cells between tabs, as a file to train on."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            rows if isinstance(rows, str) else "".join("\t".join(row) + "\n" for row in rows),
            "utf-8",
        )
        return path

    def trained(
        self,
        name: str,
        task: str,
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
        out = self.folder / f"{name}-{seed}".replace(" ", "-")
        if is_bundle(out):
            return load(out)
        self.report(f"  {name}, seed {seed}")
        changed = {"train.validate_every": change["train.steps"], **change, "train.seed": seed}
        settings = [f"{key}={value}" for key, value in changed.items()]
        old = None if start is None else start.path
        with warnings.catch_warnings(
            action="ignore", category=SeqlabWarning
        ):  # of few labels, which are meant
            return train(
                task,
                data,
                valid=valid or (),
                recipe=recipe,
                settings=settings,
                start=old,
                out=out,
                overwrite=True,
            ).model

    def each(
        self,
        ways: Mapping[str, Change],
        task: str,
        data: Path,
        recipe: str,
        fixed: Change,
        valid: Path | None = None,
    ) -> dict[str, list[Model]]:
        """A model for each way and seed; what a way says goes before what is fixed for all."""
        return {
            name: [
                self.trained(name, task, data, recipe, {**fixed, **way}, seed=seed, valid=valid)
                for seed in self.seeds
            ]
            for name, way in ways.items()
        }


def minus(one: Sequence[float], other: Sequence[float]) -> list[float]:
    """Seed by seed."""
    return [a - b for a, b in zip(one, other, strict=True)]


def over(one: Sequence[float], other: Sequence[float]) -> list[float]:
    """Seed by seed."""
    return [a / b for a, b in zip(one, other, strict=True)]


def flat(rows: Iterable[Sequence[float]]) -> list[float]:
    """All values, one after the other."""
    return [value for row in rows for value in row]


def turned(rows: Iterable[Sequence[T]]) -> list[list[T]]:
    """What stood by seed, by place; and the other way round."""
    return [list(row) for row in zip(*rows, strict=True)]


def scores(models: Models, measure: str) -> dict[str, list[float]]:
    """How good each model is on what its training held out."""
    return {
        name: [model.metrics["validation"][measure] for model in each]
        for name, each in models.items()
    }


def right(model: Model, rows: Sequence[tuple[str, str]]) -> float:
    """How many of some labels a model gives to their texts."""
    answers = model.predict([text for _, text in rows])
    return fmean(answer.output == label for answer, (label, _) in zip(answers, rows, strict=True))


def spread(title: str, results: Mapping[str, Sequence[float]]) -> Table:
    """A row for each way: its mean over the seeds, the least and the most."""
    return Table(
        title,
        ("", "mean", "least", "most"),
        [(n, fmean(v), min(v), max(v)) for n, v in results.items()],
    )


def scored(what: str, models: Models, measure: str) -> Table:
    """The spread of each way's scores, and below them the baselines."""
    table = spread(f"{what}: {measure} on what was held out", scores(models, measure))
    baselines = next(iter(models.values()))[0].metrics["validation"]["baselines"]
    table.rows.extend(
        (f"baseline: {name}", row[measure], "", "")
        for name, row in baselines.items()
        if measure in row
    )
    return table


def means(
    title: str, places: Iterable[object], results: Results, beside: Beside | None = None
) -> Table:
    """A row for each way: the mean over the seeds at each place; and below, baselines or bounds to compare it with."""
    rows: list[Row] = [(name, *map(fmean, each)) for name, each in results.items()]
    rows += [(name, *row) for name, row in (beside or {}).items()]
    return Table(title, ("", *map(str, places)), rows)


def lines(
    title: str,
    titles: tuple[str, str],
    places: Iterable[object],
    results: Results,
    beside: Beside | None = None,
) -> Chart:
    """A line for each way over numbers, or over places by their names; and baselines or bounds to compare it with."""
    at = list(places)
    names = [place for place in at if isinstance(place, str)]
    x = [float(cast(float, place)) for place in (range(len(at)) if names else at)]
    drawn = [
        Line(name, x, [[float(v) for v in row] for row in rows]) for name, rows in results.items()
    ]
    drawn += [
        Line(name, x, [[v] for v in row], beside=True) for name, row in (beside or {}).items()
    ]
    return Chart(title, titles, drawn, names)


def bars(title: str, unit: str, results: Mapping[str, Sequence[float]]) -> Chart:
    """A bar for the mean of each way."""
    return Chart(title, (unit, ""), bars={name: fmean(each) for name, each in results.items()})


def validations(model: Model) -> list[tuple[int, float]]:
    """The steps at which a run was validated, and its loss there."""
    rows = MetricsFile(model.path / RUN / "metrics.jsonl").rows()
    return [(row["step"], row["validation"]["loss"]) for row in rows if "validation" in row]


def curves(title: str, models: Models) -> Chart:
    """The validations of each way's runs."""
    steps = [step for step, _ in validations(next(iter(models.values()))[0])]
    losses = {
        name: turned([loss for _, loss in validations(run)] for run in each)
        for name, each in models.items()
    }
    return lines(title, ("steps", "held-out loss in nats"), steps, losses)


def timed(works: Sequence[Callable[[], object]], *, rounds: int) -> list[float]:
    """CPU seconds of each: the least of several rounds in which they take turns, as others use the machine too."""
    taken: list[list[float]] = [[] for _ in works]
    for _ in range(rounds + 1):  # the first warms up
        for each, work in zip(taken, works, strict=True):
            began = time.process_time()
            work()
            each.append(time.process_time() - began)
    return [min(each[1:]) for each in taken]
