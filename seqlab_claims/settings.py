"""The size of an experiment, its trainings, and functions that all experiments use on their scores."""

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
Change = Mapping[str, object]  # settings of a recipe
# a variant is one of the methods that an experiment compares
Models = Mapping[str, Sequence[Model]]  # by variant, a model for each seed
Results = Mapping[str, Sequence[Sequence[float]]]  # by variant and place, the values of all seeds
Beside = Mapping[str, Sequence[float]]  # baselines and bounds, a value for each place


@dataclass(frozen=True)
class Settings:
    """The scale of an experiment, the number of seeds, and the folder of its trainings."""

    folder: Path
    scale: Scale = "full"
    num_seeds: int | None = None
    report: Callable[[str], None] = lambda text: None

    @property
    def seeds(self) -> range:
        return range(1, 1 + (self.num_seeds or SEEDS[self.scale]))

    def pick(self, full: T, quick: T, tiny: T) -> T:
        """Return the value for the current scale."""
        return {"full": full, "quick": quick, "tiny": tiny}[self.scale]

    def sizes(self, claim: str) -> dict[str, Any]:
        """Return the sizes of an experiment at this scale."""
        return {name: self.pick(*values) for name, values in document()[claim]["sizes"].items()}

    def recipe(self, claim: str) -> dict[str, Any]:
        """Return the settings of a claim's recipe at this scale."""
        return self._changes(document()[claim]["recipe"])

    def recipes(self, claim: str) -> list[dict[str, Any]]:
        """Return the settings of each recipe of a claim, in the order of claims.toml."""
        return [self._changes(table) for table in document()[claim]["recipes"].values()]

    def _changes(self, table: Mapping[str, Any]) -> dict[str, Any]:
        changes = self._changes(document()["recipes"][table["base"]]) if "base" in table else {}
        for key, value in table.items():
            if key != "base":
                changes[key] = self.pick(*value) if isinstance(value, list) else value
        return changes

    def file(self, name: str, rows: Iterable[Sequence[str]] | str) -> Path:
        """Write a training file: a text, or rows as TSV."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not isinstance(rows, str):
            rows = "".join("\t".join(row) + "\n" for row in rows)
        path.write_text(rows, "utf-8")
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
        """Train a model like `seqlab train TASK DATA --recipe RECIPE --set ...`, or load it if it exists.

        By default it is validated once, at the end, so that no score is the best of several.
        """
        out = self.folder / f"{name}-{seed}".replace(" ", "-")
        if is_bundle(out):
            return load(out)
        self.report(f"  {name}, seed {seed}")
        changed = {"train.validate_every": change["train.steps"], **change, "train.seed": seed}
        settings = [f"{key}={value}" for key, value in changed.items()]
        old = None if start is None else start.path
        # warnings about few labels: they are few on purpose
        with warnings.catch_warnings(action="ignore", category=SeqlabWarning):
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
        """Train a model for each variant and seed; settings of a variant override the fixed ones."""
        return {
            name: [
                self.trained(name, task, data, recipe, {**fixed, **way}, seed=seed, valid=valid)
                for seed in self.seeds
            ]
            for name, way in ways.items()
        }


def minus(one: Sequence[float], other: Sequence[float]) -> list[float]:
    """Return the differences, seed by seed."""
    return [a - b for a, b in zip(one, other, strict=True)]


def over(one: Sequence[float], other: Sequence[float]) -> list[float]:
    """Return the ratios, seed by seed."""
    return [a / b for a, b in zip(one, other, strict=True)]


def flat(rows: Iterable[Sequence[float]]) -> list[float]:
    """Return the values of all rows in one list."""
    return [value for row in rows for value in row]


def turned(rows: Iterable[Sequence[T]]) -> list[list[T]]:
    """Transpose lists by seed into lists by place, or the reverse."""
    return [list(row) for row in zip(*rows, strict=True)]


def scores(models: Models, measure: str) -> dict[str, list[float]]:
    """Return the held-out score of each model."""
    return {
        name: [model.metrics["validation"][measure] for model in each]
        for name, each in models.items()
    }


def right(model: Model, rows: Sequence[tuple[str, str]]) -> float:
    """Return the accuracy of a classifier on (label, text) rows."""
    answers = model.predict([text for _, text in rows])
    return fmean(answer.output == label for answer, (label, _) in zip(answers, rows, strict=True))


def spread(title: str, results: Mapping[str, Sequence[float]]) -> Table:
    """Return a table of mean, minimum and maximum over the seeds, by variant."""
    return Table(
        title,
        ("", "mean", "least", "most"),
        [(n, fmean(v), min(v), max(v)) for n, v in results.items()],
    )


def scored(what: str, models: Models, measure: str) -> Table:
    """Return a table of the scores by variant, followed by the baselines."""
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
    """Return a table of the means over the seeds, by variant and place, followed by baselines or bounds."""
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
    """Return a chart with a line for each variant over numbers or named places, and for baselines or bounds."""
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
    """Return a chart with a bar for the mean of each variant."""
    return Chart(title, (unit, ""), bars={name: fmean(each) for name, each in results.items()})


def validations(model: Model) -> list[tuple[int, float]]:
    """Return the step and the loss of each validation of a run."""
    rows = MetricsFile(model.path / RUN / "metrics.jsonl").rows()
    return [(row["step"], row["validation"]["loss"]) for row in rows if "validation" in row]


def curves(title: str, models: Models) -> Chart:
    """Return a chart of the validation losses, by variant."""
    steps = [step for step, _ in validations(next(iter(models.values()))[0])]
    losses = {
        name: turned([loss for _, loss in validations(run)] for run in each)
        for name, each in models.items()
    }
    return lines(title, ("steps", "held-out loss in nats"), steps, losses)


def timed(works: Sequence[Callable[[], object]], *, rounds: int) -> list[float]:
    """Return the CPU seconds of each function: the minimum over several rounds, in which they take turns."""
    taken: list[list[float]] = [[] for _ in works]
    for _ in range(rounds + 1):  # the first warms up
        for each, work in zip(taken, works, strict=True):
            began = time.process_time()
            work()
            each.append(time.process_time() - began)
    return [min(each[1:]) for each in taken]
