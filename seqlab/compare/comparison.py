"""The result of a comparison of recipes: scores and costs, a table, charts, and a recommendation."""

from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import Any

import numpy as np

from seqlab.explain.canvas import Canvas
from seqlab.explain.charts import Bars, table
from seqlab.explain.plots import scatter
from seqlab.explain.view import View
from seqlab.metrics.scores import SHARES, count, duration, figure

# a cost below this share of another one is clearly lower
CLEARLY_LOWER = 0.8
HEADER = ("baseline", "weights", "time", "per s", "GB", "MB")
LEGEND = "weights of the model; time of training; answers per s; GB of peak memory in training; MB on disk"


@dataclass(frozen=True)
class RecipeResult:
    """The scores of one recipe over the seeds, and its costs."""

    recipe: str
    scores: tuple[float, ...] = ()
    baseline: float | None = None
    baseline_name: str = ""
    parameters: int = 0
    steps: int = 0
    seconds: float = 0.0  # of training
    answers_per_second: float | None = None
    memory: int = 0  # peak memory of the training, in bytes
    bytes: int = 0  # of the bundle
    tokens: str = ""  # the tokens whose loss is measured
    failed: str = ""  # the error message

    @property
    def score(self) -> float:
        return fmean(self.scores)

    @property
    def speed(self) -> float:
        """Answers per second; 0 for models whose speed is not measured."""
        return self.answers_per_second or 0.0

    @property
    def spread(self) -> float:
        """The standard deviation over seeds."""
        return stdev(self.scores) if len(self.scores) > 1 else 0.0


@dataclass(frozen=True)
class Comparison:
    """The results of all recipes, in the order in which they were named, and what they show."""

    task: str
    measure: str
    more_is_better: bool
    results: tuple[RecipeResult, ...]
    setup: str = ""  # the files, the training time and the number of seeds

    @property
    def successes(self) -> list[RecipeResult]:
        """The results of recipes whose training did not fail."""
        return [result for result in self.results if result.scores]

    @property
    def failures(self) -> list[str]:
        """The error messages of the other recipes."""
        return [f"{r.recipe} failed: {r.failed}" for r in self.results if r.failed]

    @property
    def advice(self) -> str:
        """Recommend a recipe: of those with about the best score, the one that costs clearly less."""
        if not self.successes:
            return "no model was trained to its end."
        if self.measure == "loss" and len({result.tokens for result in self.successes}) > 1:
            return "these models have different tokens, so their losses cannot be compared: see each baseline."
        best = max(self.successes, key=self._quality)
        if best.baseline is not None and not self._beats_baseline(best):
            return (
                f"take none: {best.recipe} is the best with {self._figure(best.score)}, and the baseline "
                f"({best.baseline_name}) has {self._figure(best.baseline)}. Train longer, or use the baseline."
            )
        margin = max(best.spread, 0.01 * abs(best.score))
        equals = [
            result
            for result in self.successes
            if self._quality(best) - self._quality(result) <= margin
            and self._beats_baseline(result)
        ]
        cheapest = min(equals, key=lambda result: result.seconds)
        fastest = max(equals, key=lambda result: result.speed)
        name = self.measure.replace("_", " ")
        best_score = self._figure(best.score)
        if cheapest.seconds < CLEARLY_LOWER * best.seconds:
            chosen = cheapest
            reason = f"trains in {cheapest.seconds / best.seconds:.0%} of the time"
        elif best.speed < CLEARLY_LOWER * fastest.speed:
            chosen = fastest
            reason = f"answers {fastest.speed / (best.speed or 1.0):.2g} times as fast"
        else:
            return f"take {best.recipe}: its {name} of {best_score} is the best."
        score = self._figure(chosen.score)
        return (
            f"take {chosen.recipe}: its {name} of {score} is as good as the best "
            f"({best.recipe}, {best_score}), and it {reason}."
        )

    def _quality(self, result: RecipeResult) -> float:
        return result.score if self.more_is_better else -result.score

    def _beats_baseline(self, result: RecipeResult) -> bool:
        if result.baseline is None:
            return True
        if self.more_is_better:
            return result.score > result.baseline
        return result.score < result.baseline

    def _figure(self, value: float) -> str:
        return figure(self.measure, value)

    def to_json(self) -> dict[str, Any]:
        rows = []
        for result in self.results:
            row = asdict(result)
            if result.scores:
                row |= {"score": result.score, "spread": result.spread}
            rows.append(row)
        return {"task": self.task, "measure": self.measure, "rungs": rows, "advice": self.advice}

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return the header, and a row for each recipe."""
        header = ["recipe", self.measure.replace("_", " "), *HEADER]
        return header, [self._row(result) for result in self.results]

    def _row(self, result: RecipeResult) -> list[str]:
        if not result.scores:
            return [result.recipe, "failed", *[""] * len(HEADER)]
        score = self._figure(result.score)
        if len(result.scores) > 1:
            score += f" ±{self._figure(result.spread).removesuffix(' %')}"
        speed = ""
        if result.answers_per_second is not None:
            speed = f"{result.speed:,.{0 if result.speed >= 10 else 1}f}"
        return [
            result.recipe,
            score,
            "" if result.baseline is None else self._figure(result.baseline),
            count(result.parameters),
            duration(result.seconds),
            speed,
            f"{result.memory / 1e9:.2f}",
            f"{result.bytes / 1e6:{'.2g' if result.bytes < 1e6 else '.1f'}}",
        ]

    def view(self) -> View:
        """Show the table, a chart of the scores, and charts of scores against costs."""
        header, rows = self.table()
        title = f"{self.task}: {self.setup}. {LEGEND[0].upper()}{LEGEND[1:]}."
        figures = [table(header, rows, title=title)]
        figures += [Canvas(1, 1, (), failure) for failure in self.failures]
        if self.successes:
            figures += [self._bars(), *self._scatter_plots()]
        lines = ["  ".join(cells) for cells in (header, *rows)] + self.failures
        return View("compare", self.advice, self.to_json(), [*figures, *lines])

    def _bars(self) -> Canvas:
        """Draw the scores of recipes and baselines as bars."""
        baselines = {
            result.baseline_name: result.baseline
            for result in self.successes
            if result.baseline is not None
        }
        labels = [f"baseline: {name}" for name in baselines]
        labels += [result.recipe for result in self.successes]
        scores = [*baselines.values(), *(result.score for result in self.successes)]
        heights = np.array(scores) * self._unit
        return Bars(heights, labels, title=self._score_title, width=720).draw()

    def _scatter_plots(self) -> list[Canvas]:
        """Draw the scores against training time and against speed."""
        scores = np.array([result.score for result in self.successes])
        minutes = np.array([result.seconds / 60 for result in self.successes])
        speeds = np.array([result.answers_per_second or np.nan for result in self.successes])
        figures = []
        for what, x_title, x, costs in (
            ("quality against time", "minutes of training", minutes, minutes),
            ("quality against speed", "answers per second", speeds, -speeds),
        ):
            if not np.isfinite(x).all() or len(x) < 2:
                continue
            front = pareto_front(costs, scores if self.more_is_better else -scores)
            kinds = [
                "none is better for less" if k in front else "another is better for less"
                for k in range(len(x))
            ]
            figures.append(
                scatter(
                    np.stack([x, scores * self._unit], axis=1),
                    [result.recipe for result in self.successes],
                    kinds,
                    joined=front,
                    title=f"{what}: the dashed line is the Pareto front",
                    titles=(x_title, self._score_title),
                    size=(720, 380),
                )
            )
        return figures

    @property
    def _unit(self) -> int:
        """The factor that turns shares into percentages."""
        return 100 if self.measure in SHARES else 1

    @property
    def _score_title(self) -> str:
        percent = ", %" if self.measure in SHARES else ""
        better = "more" if self.more_is_better else "less"
        return f"{self.measure.replace('_', ' ')}{percent}: {better} is better"


def pareto_front(costs: np.ndarray, quality: np.ndarray) -> list[int]:
    """Return the Pareto front, ordered by cost: each member is better than all that cost less."""
    front: list[int] = []
    for k in np.lexsort((-quality, costs)).tolist():
        if not front or quality[k] > quality[front[-1]]:
            front.append(k)
    return front
