"""Model selection: compare a network with its baseline on the same held-out examples, and keep the better one.

The network is trained in the folder that the user named, and the baseline in a folder inside it. Then the better model
is saved in the user's folder, and the other one in a folder inside it, named after its recipe.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from seqlab.bundle import Bundle, Json, save_bundle
from seqlab.cross_validation import pooled, read_folds
from seqlab.metrics.scores import Difference, ExampleScores, difference, figure
from seqlab.model import RUN, STORES, Model
from seqlab.recipe import Recipe
from seqlab.runs import Trained
from seqlab.tasks import load_bundle, task_of
from seqlab.tasks.task import Report

# the settings that a baseline shares with the network, so that both are trained on the same part of the same data
SPLIT = {
    "data": (
        "source",
        "target",
        "validation",
        "max_validation",
        "fold",
        "test",
        "rows",
        "time",
        "id",
        "columns",
        "encoding",
    ),
    "forecast": ("look_back", "horizon", "season"),
    "train": ("seed",),
}

# the network is kept if it is no better than the baseline on at most this share of the bootstrap samples
MAX_P = 0.2


@dataclass(frozen=True)
class Selection:
    """Which of two models is kept, and by how much it is better on the held-out examples."""

    kept: str
    other: str
    score: str
    values: tuple[float, float]
    gain: Difference
    examples: int

    @property
    def sentence(self) -> str:
        ours, theirs = (figure(self.score, value) for value in self.values)
        if self.gain.enough:
            limits = f"{_signed(self, self.gain.low)} to {_signed(self, self.gain.high)}"
            certainty = f"95 % interval of the gain {limits}"
            if not self.gain.clear:
                certainty += "; too close to call on so few"
        else:
            certainty = "too few forecast rows for an interval"
        if self.gain.gain < 0:
            certainty += ", so the simpler model is kept"
        return f"kept {self.kept}: {self.score} {ours}, {self.other} has {theirs} ({certainty})"

    def to_json(self) -> dict[str, Any]:
        gain = {
            "gain": self.gain.gain,
            "low": self.gain.low,
            "high": self.gain.high,
            "p": self.gain.p,
        }
        values = dict(zip((self.kept, self.other), self.values, strict=True))
        return {
            "sentence": self.sentence,
            "kept": self.kept,
            "other": self.other,
            "score": self.score,
            "values": values,
            "examples": self.examples,
            **gain,
        }


def same_split(recipe: Recipe) -> list[str]:
    """Return the settings with which a baseline has the same held-out examples as this recipe."""
    settings = []
    for section, names in SPLIT.items():
        for name in names:
            value = getattr(getattr(recipe, section), name)
            if value is not None:
                settings.append(f"{section}.{name}={value}")
    return settings


def network_is_kept(gain: Difference, *, run: int) -> bool:
    """Whether a network is so much better than its baseline that it is kept.

    If held-out examples show no difference, the baseline is usually the better one on other examples. Forecasts that
    share values, with a `run` of more than one origin, need a gain whose interval excludes zero.
    """
    return gain.p <= MAX_P and (run == 1 or gain.clear)


def keep_better(trained: Trained, folder: Path, baseline: Bundle) -> Trained:
    """Score a baseline on the held-out examples of a network, and save the better model in the folder.

    The network is kept if they have no common score, or if its training was stopped before it was scored.
    """
    report = trained.report
    if report is None or report.by_example is None:
        return trained
    task = task_of(baseline.recipe)
    kind = task.data_kind(baseline.recipe)
    baseline_report = kind.finish(task, baseline, folder / RUN / STORES, report.num_examples)
    score = report.by_example.score
    if baseline_report.by_example is None or baseline_report.by_example.score != score:
        return trained
    folds = read_folds(folder, score)
    kept = _pool_folds(trained.model.bundle, report, folds)
    other = _pool_folds(baseline, baseline_report, folds)
    gain = difference(kept.by_example, other.by_example)
    if not network_is_kept(gain, run=report.by_example.run):
        kept, other = other, kept
    selection = Selection(
        kept=kept.bundle.recipe.name,
        other=other.bundle.recipe.name,
        score=kept.by_example.score,
        values=(kept.by_example.value(), other.by_example.value()),
        gain=difference(kept.by_example, other.by_example),
        examples=kept.scores["examples"],
    )
    for candidate, where in ((kept, folder), (other, folder / other.bundle.recipe.name)):
        facts = {"validation": candidate.scores, "selection": selection.to_json()}
        bundle = candidate.bundle
        save_bundle(replace(bundle, metrics=bundle.metrics | facts), where)
    return replace(trained, model=Model(load_bundle(folder), folder))


class _Candidate(NamedTuple):
    """A model with its scores over all folds."""

    bundle: Bundle
    scores: dict[str, Any]
    by_example: ExampleScores


def _pool_folds(bundle: Bundle, report: Report, folds: Sequence[Json]) -> _Candidate:
    name = bundle.recipe.name
    return _Candidate(bundle, *pooled(report, [fold[name] for fold in folds]))


def _signed(selection: Selection, value: float) -> str:
    return f"{'+' if value >= 0 else '-'}{figure(selection.score, abs(value))}"
