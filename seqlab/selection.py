"""The better of two: a network and a baseline, trained on the same split, and which of them is kept.

The network's run lies in the folder that the user named, the baseline in a folder of its own inside it. When both are
trained, the better model is written into the folder, and the other one beside the run under its recipe's name.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seqlab.bundle import Bundle, save_bundle
from seqlab.cross_validation import pooled, read_folds
from seqlab.metrics.scores import Difference, difference, figure
from seqlab.model import RUN, STORES, Model
from seqlab.recipe import Recipe
from seqlab.runs import Trained
from seqlab.tasks import load_bundle, task_of

SPLIT = {  # what a baseline shares with the network, so that both learn from the same part of the same data
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

DOUBT = 0.2  # share of the draws on which the network is no better


@dataclass(frozen=True)
class Selection:
    """Which of two models is kept, and by how much it is better on the held-out examples that both were scored on."""

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
            certainty += "" if self.gain.clear else "; too close to call on so few"
        else:
            certainty = "forecasts of the same few rows, too few for an interval"
        certainty += "" if self.gain.gain >= 0 else ", so the simpler model is kept"
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
    """The settings under which a baseline holds out the same examples as this recipe."""
    values = (
        (f"{part}.{name}", getattr(getattr(recipe, part), name))
        for part, names in SPLIT.items()
        for name in names
    )
    return [f"{path}={value}" for path, value in values if value is not None]


def network_is_kept(gain: Difference, *, run: int) -> bool:
    """Whether a network is so much better than its baseline that it is worth its time; in doubt it is not.

    Where held-out examples could not tell the two apart, the baseline was mostly the better one on other examples.
    Moments of a series that share what they forecast, in runs of more than one, must show it clearly.
    """
    return gain.p <= DOUBT and (run == 1 or gain.clear)


def keep_better(trained: Trained, folder: Path, baseline: Bundle) -> Trained:
    """Score a baseline on the held-out examples that a network was scored on, and write the better one into the folder.

    The network stays where they share no score, or where its training was stopped before it was scored.
    """
    report, network = trained.report, trained.model.bundle
    if report is None or report.by_example is None:
        return trained
    stores, task, folds = (
        folder / RUN / STORES,
        task_of(baseline.recipe),
        read_folds(folder, report.by_example.score),
    )
    other = task.data_kind(baseline.recipe).finish(task, baseline, stores, report.num_examples)
    if other.by_example is None or other.by_example.score != report.by_example.score:
        return trained
    pairs = [
        (bundle, *pooled(its_report, [fold[bundle.recipe.name] for fold in folds]))
        for bundle, its_report in ((network, report), (baseline, other))
    ]
    gain = difference(pairs[0][2], pairs[1][2])
    if not network_is_kept(gain, run=report.by_example.run):
        pairs.reverse()
    (best, scores, ours), (beaten, _, theirs) = pairs
    selection = Selection(
        kept=best.recipe.name,
        other=beaten.recipe.name,
        score=ours.score,
        values=(ours.value(), theirs.value()),
        gain=difference(ours, theirs),
        examples=scores["examples"],
    )
    for (bundle, its_scores, _), where in zip(
        pairs, (folder, folder / beaten.recipe.name), strict=True
    ):
        facts = {"validation": its_scores, "selection": selection.to_json()}
        save_bundle(replace(bundle, metrics=bundle.metrics | facts), where)
    return replace(trained, model=Model(load_bundle(folder), folder))


def _signed(selection: Selection, value: float) -> str:
    return f"{'+' if value >= 0 else '-'}{figure(selection.score, abs(value))}"
