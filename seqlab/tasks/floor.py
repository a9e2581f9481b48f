"""A model beside its baselines: whether it is better than the best of them, how far it is from it, and what helps."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from seqlab.codecs.codec import Json
from seqlab.metrics.scores import SHARES, figure
from seqlab.recipe import Recipe
from seqlab.tasks.task import LOWER_IS_BETTER, Baselines, Task

FEW_STEPS = 500  # of a network: TREC had 41.6 % after 40 steps of large batches, and 87.7 % after many small ones


@dataclass(frozen=True)
class Finding:
    """One question, its number, and whether it gives cause for concern."""

    question: str
    number: float
    well: bool
    said: str
    remedy: str = ""


def beside_floor(
    task: Task,
    scores: Json,
    floors: Baselines,
    *,
    recipe: Recipe | None = None,
    steps: int | None = None,
) -> Iterator[Finding]:
    """Is the score by which a task is judged better than the best of its baselines? Nothing where there is none."""
    common = [
        name
        for name in task.judged_by
        if name in scores and any(name in each for each in floors.values())
    ]
    if not common:
        return
    name = next(
        (name for name in common if scores[name]), common[0]
    )  # answers of less than four words have no BLEU
    sign = -1 if name in LOWER_IS_BETTER else 1
    worth = {baseline: sign * each[name] for baseline, each in floors.items() if name in each}
    best = max(worth, key=worth.__getitem__)
    ours, theirs = math.nan if scores[name] is None else float(scores[name]), floors[best][name]
    yield Finding(
        "is it better than its floor?",
        ours,
        sign * ours > worth[best] and math.isfinite(ours),
        f"{name.replace('_', ' ')} {figure(name, ours)}: {_beside(name, ours, theirs)} "
        f"'{best}' ({figure(name, theirs)})",
        _remedy(task, recipe, steps),
    )


def _beside(name: str, ours: float, theirs: float) -> str:
    """A score beside another one in plain words, which the other one's name follows."""
    if not math.isfinite(ours):
        return "no number, unlike that of"
    if ours == theirs:
        return "no better than"
    ratio = ours / theirs if theirs > 0 else math.inf
    if ratio <= 0.5:
        return "less than half of" if ratio < 0.5 else "half of"
    if ratio >= 2 and name in LOWER_IS_BETTER:
        return "more than twice that of"
    apart = (
        f"{100 * abs(ours - theirs):.3g} points" if name in SHARES else f"{abs(ours - theirs):.3g}"
    )
    return f"{apart} {'above' if ours > theirs else 'below'}"


def _remedy(task: Task, recipe: Recipe | None, steps: int | None) -> str:
    """What was measured to help: `docs/choosing.md` has the figures."""
    baseline = "" if recipe is None else task.baseline(recipe)
    network = recipe is not None and not recipe.model.without_layers
    remedies = [f"use the baseline (--recipe {baseline})"] if baseline and network else []
    if network and steps is not None and steps < FEW_STEPS:
        how = "without --recipe both are chosen" if baseline else "--steps, --batch"
        remedies.insert(0, f"make more than {steps} steps, of smaller batches ({how})")
    elif not remedies:
        remedies.append(
            "train longer (--minutes 10)"
            if network or recipe is None
            else "use a network (--recipe)"
        )
    remedies.append("train on more data")
    if task.tuned:
        remedies.append("begin with a pretrained encoder (--from)")
    return f"{', '.join(remedies[:-1])}, or {remedies[-1]}."
