"""The result of a comparison: a rung for each recipe, one table of them, pictures, and which to take."""

from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import Any

import numpy as np

from seqlab.explain.canvas import Canvas
from seqlab.explain.charts import Bars, table
from seqlab.explain.plots import scatter
from seqlab.explain.view import View
from seqlab.metrics.scores import SHARES, count, duration, figure

CLEARLY = 0.8  # what costs less than this share of another's cost is clearly cheaper
HEADER = ("baseline", "weights", "time", "per s", "GB", "MB")
LEGEND = "weights of the model; time of training; answers per s; GB of memory in training, at most; MB on disk"


@dataclass(frozen=True)
class Rung:
    """One recipe: how good it is over the seeds, and what it costs."""

    recipe: str
    scores: tuple[float, ...] = ()
    baseline: float | None = None
    baseline_name: str = ""
    parameters: int = 0
    steps: int = 0
    seconds: float = 0.0  # of training
    answers_per_second: float | None = None
    memory: int = 0  # at most, in training
    bytes: int = 0  # of the bundle
    tokens: str = ""  # what the loss is counted by
    failed: str = ""

    @property
    def score(self) -> float:
        return fmean(self.scores)

    @property
    def speed(self) -> float:
        """Answers a second; 0 for models that are not asked."""
        return self.answers_per_second or 0.0

    @property
    def spread(self) -> float:
        """The deviation over seeds."""
        return stdev(self.scores) if len(self.scores) > 1 else 0.0


@dataclass(frozen=True)
class Comparison:
    """All rungs in the order they were asked for, and what follows."""

    task: str
    measure: str
    more_is_better: bool
    rungs: tuple[Rung, ...]
    setup: str = ""  # on what, and for how long

    @property
    def done(self) -> list[Rung]:
        return [rung for rung in self.rungs if rung.scores]

    @property
    def advice(self) -> str:
        """The model to take: of those that none is clearly better than, the one that costs clearly less."""
        if not self.done:
            return "no model was trained to its end."
        if self.measure == "loss" and len({rung.tokens for rung in self.done}) > 1:
            return "these models cut text into different tokens, so their losses cannot be compared: see each baseline."
        best = max(self.done, key=self._worth)
        if best.baseline is not None and not self._above_baseline(best):
            return (
                f"take none: {best.recipe} is the best with {self._figure(best.score)}, and the baseline "
                f"({best.baseline_name}) has {self._figure(best.baseline)}. Train longer, or use that simple thing."
            )
        near = max(best.spread, 0.01 * abs(best.score))
        equals = [
            rung
            for rung in self.done
            if self._worth(best) - self._worth(rung) <= near and self._above_baseline(rung)
        ]
        quick = min(equals, key=lambda rung: rung.seconds)
        swift = max(equals, key=lambda rung: rung.speed)
        name, top = self.measure.replace("_", " "), self._figure(best.score)
        if quick.seconds < CLEARLY * best.seconds:
            chosen, why = quick, f"trains in {quick.seconds / best.seconds:.0%} of the time"
        elif best.speed < CLEARLY * swift.speed:
            chosen, why = swift, f"answers {swift.speed / (best.speed or 1.0):.2g} times as fast"
        else:
            return f"take {best.recipe}: its {name} of {top} is the best."
        equal = f"its {name} of {self._figure(chosen.score)} is as good as the best ({best.recipe}, {top})"
        return f"take {chosen.recipe}: {equal}, and it {why}."

    def _worth(self, rung: Rung) -> float:
        return rung.score if self.more_is_better else -rung.score

    def _above_baseline(self, rung: Rung) -> bool:
        return rung.baseline is None or (
            rung.score > rung.baseline if self.more_is_better else rung.score < rung.baseline
        )

    def _figure(self, value: float) -> str:
        return figure(self.measure, value)

    def to_json(self) -> dict[str, Any]:
        rungs = [asdict(rung) for rung in self.rungs]
        for row, rung in zip(rungs, self.rungs, strict=True):
            row |= {"score": rung.score, "spread": rung.spread} if rung.scores else {}
        return {"task": self.task, "measure": self.measure, "rungs": rungs, "advice": self.advice}

    def table(self) -> tuple[list[str], list[list[str]]]:
        """The header, and a row for each recipe."""
        return ["recipe", self.measure.replace("_", " "), *HEADER], [
            self._row(rung) for rung in self.rungs
        ]

    def _row(self, rung: Rung) -> list[str]:
        if not rung.scores:
            return [rung.recipe, "failed", *[""] * len(HEADER)]
        spread = f" ±{self._figure(rung.spread).removesuffix(' %')}" if len(rung.scores) > 1 else ""
        return [
            rung.recipe,
            self._figure(rung.score) + spread,
            "" if rung.baseline is None else self._figure(rung.baseline),
            count(rung.parameters),
            duration(rung.seconds),
            ""
            if rung.answers_per_second is None
            else f"{rung.speed:,.{0 if rung.speed >= 10 else 1}f}",
            f"{rung.memory / 1e9:.2f}",
            f"{rung.bytes / 1e6:{'.2g' if rung.bytes < 1e6 else '.1f'}}",
        ]

    @property
    def failures(self) -> list[str]:
        return [f"{rung.recipe} failed: {rung.failed}" for rung in self.rungs if rung.failed]

    def view(self) -> View:
        """The table, quality by recipe beside the baseline, and quality against what it costs."""
        header, rows = self.table()
        pictures = [
            table(
                header, rows, title=f"{self.task}: {self.setup}. {LEGEND[0].upper()}{LEGEND[1:]}."
            )
        ]
        pictures += [Canvas(1, 1, (), failure) for failure in self.failures] + (
            self._drawn() if self.done else []
        )
        lines = ["  ".join(cells) for cells in (header, *rows)] + self.failures
        return View("compare", self.advice, self.to_json(), [*pictures, *lines])

    def _drawn(self) -> list[Canvas]:
        share = self.measure in SHARES
        better = "more" if self.more_is_better else "less"
        name = f"{self.measure.replace('_', ' ')}{', %' * share}: {better} is better"
        recipes = [rung.recipe for rung in self.done]
        scores = np.array([rung.score for rung in self.done])
        baselines = {
            rung.baseline_name: rung.baseline for rung in self.done if rung.baseline is not None
        }
        unit = 100 if share else 1
        labels = [*(f"baseline: {baseline}" for baseline in baselines), *recipes]
        pictures = [
            Bars(
                np.array([*baselines.values(), *scores]) * unit, labels, title=name, width=720
            ).draw()
        ]
        minutes = np.array([rung.seconds / 60 for rung in self.done])
        speeds = np.array([rung.answers_per_second or np.nan for rung in self.done])
        for what, x_title, x, costs in (
            ("quality against time", "minutes of training", minutes, minutes),
            ("quality against speed", "answers a second", speeds, -speeds),
        ):
            if not np.isfinite(x).all() or len(x) < 2:
                continue
            front = front_of(costs, scores if self.more_is_better else -scores)
            kinds = [
                "none is better for less" if k in front else "another is better for less"
                for k in range(len(x))
            ]
            title = f"{what}: the dashed line joins those that no other beats in both"
            points, titles = np.stack([x, scores * unit], axis=1), (x_title, name)
            pictures.append(
                scatter(
                    points,
                    recipes,
                    kinds,
                    joined=front,
                    title=title,
                    titles=titles,
                    size=(720, 380),
                )
            )
        return pictures


def front_of(costs: np.ndarray, worth: np.ndarray) -> list[int]:
    """Those that nothing beats: by cost, each worth more than all that cost less (the front of Pareto)."""
    front: list[int] = []
    for k in np.lexsort((-worth, costs)).tolist():
        if not front or worth[k] > worth[front[-1]]:
            front.append(k)
    return front
