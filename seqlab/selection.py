"""The better of two: a network and a baseline, trained on the same split, and which of them is kept.

The network's run lies in the folder that the user named, the baseline in a folder of its own inside it. When both are
trained, the better model is written into the folder, and the other one beside the run under its recipe's name.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seqlab.bundle import Bundle, save_bundle
from seqlab.metrics.scores import figure
from seqlab.metrics.uncertainty import Difference, difference
from seqlab.model import RUN, STORES
from seqlab.recipe import Recipe
from seqlab.tasks import task_of
from seqlab.tasks.task import SCORED_AT_THE_END, Report, Scoring

SPLIT = ("data.source", "data.target", "data.validation", "data.max_validation", "train.seed")


@dataclass(frozen=True)
class Selection:
    """Which of two models is kept, and by how much it is better on the held-out examples that both were scored on."""

    kept: str
    other: str
    score: str
    values: tuple[float, float]
    gain: Difference
    examples: int
    folder: Path  # of the other

    @property
    def sentence(self) -> str:
        ours, theirs = (figure(self.score, value) for value in self.values)
        sure = f"95 % interval of the gain {_signed(self, self.gain.low)} to {_signed(self, self.gain.high)}"
        verdict = "" if self.gain.clear else "; too close to call on so few"
        return f"kept {self.kept}: {self.score} {ours}, {self.other} has {theirs} ({sure}{verdict})"

    def to_json(self) -> dict[str, Any]:
        gain = {"gain": self.gain.gain, "low": self.gain.low, "high": self.gain.high, "p": self.gain.p}
        values = dict(zip((self.kept, self.other), self.values, strict=True))
        return {"kept": self.kept, "score": self.score, "values": values, "examples": self.examples, **gain}


def same_split(recipe: Recipe) -> list[str]:
    """The settings under which a baseline holds out the same examples as this recipe."""
    table = recipe.model_dump()
    named = ((path, table[path.split(".")[0]][path.split(".")[1]]) for path in SPLIT)
    return [f"{path}={value}" for path, value in named if value is not None]


def keep_better(folder: Path, network: Bundle, baseline: Bundle) -> Selection | None:
    """Score both on what the network's training held out and write the better one into the folder.

    None where they share no score, or nothing was held out: then the network stays.
    """
    stores = folder / RUN / STORES
    reports = [_report(bundle, stores) for bundle in (network, baseline)]
    first, second = (report.by_example for report in reports)
    if first is None or second is None or first.score != second.score:
        return None
    models = list(zip((network, baseline), reports, (first, second), strict=True))
    if difference(first, second).gain < 0:
        models.reverse()
    (best, _, ours), (other, _, theirs) = models
    selection = Selection(
        kept=best.recipe.name,
        other=other.recipe.name,
        score=ours.score,
        values=(ours.value(), theirs.value()),
        gain=difference(ours, theirs),
        examples=reports[0].num_examples,
        folder=folder / other.recipe.name,
    )
    for (bundle, report, _), where in zip(models, (folder, selection.folder), strict=True):
        facts = {"validation": report.to_json(), "selection": selection.to_json()}
        save_bundle(replace(bundle, metrics=bundle.metrics | facts), where)
    return selection


def _report(bundle: Bundle, stores: Path) -> Report:
    task = task_of(bundle.recipe)
    data = task.data_kind(bundle.recipe).data(task, bundle, (), stores)
    return task.evaluate(bundle, data.some(SCORED_AT_THE_END), Scoring(train=stores))


def _signed(selection: Selection, value: float) -> str:
    return f"{'+' if value >= 0 else '-'}{figure(selection.score, abs(value))}"
