"""The baselines of a task: n-grams, a linear model over words; and how far a model is from them, with what helps."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Integer

from seqlab.bundle import Bundle
from seqlab.codecs.codec import Json
from seqlab.codecs.labels import labels_in
from seqlab.data.sources import Example
from seqlab.data.store import TokenStore
from seqlab.equations.decoding import perplexity
from seqlab.metrics.ngram import WittenBell
from seqlab.metrics.scores import SHARES, figure
from seqlab.recipe import Recipe
from seqlab.tasks.linear import fit_linear
from seqlab.tasks.task import LOWER_IS_BETTER, Baselines, Task
from seqlab.text import Tokenizer

NGRAM = 5
LINEAR_TEXTS = 20_000
NGRAM_TOKENS = (
    5_000_000  # a baseline learns from no more than this, so that it stays quick on a large corpus
)


def ngram_baselines(
    train: Integer[np.ndarray, " N"] | None, held_out: Sequence[np.ndarray], tokenizer: Tokenizer
) -> tuple[Baselines, str]:
    """The losses of n-grams, or why there are none."""
    if train is None:
        return {}, "the n-gram baseline needs the training part, which is not beside this model"
    baselines = {}
    for order in (1, NGRAM):
        ngram = WittenBell(order, len(tokenizer)).fit(np.asarray(train))
        # the first token of each sequence is given, to the model and so to its baseline
        losses = np.concatenate([-ngram.log_probabilities(tokens)[1:] for tokens in held_out])
        mean = float(losses.mean())
        baselines[f"{order}-gram"] = {"loss": mean, "perplexity": perplexity(mean)}
    return baselines, ""


def linear_labels(
    bundle: Bundle, examples: list[Example], texts: TokenStore | None, labels: TokenStore | None
) -> tuple[list[str], str]:
    """What the linear classifier over n-grams answers, or why it cannot; it reads the texts, not the model's tokens."""
    if texts is None or labels is None:
        return [], "the linear baseline needs the training part, which is not beside this model"
    names, tokenizer = labels_in(bundle.codec).names, bundle.codec.source_tokenizer
    gold = torch.from_numpy(np.asarray(labels.flat, dtype=np.int64))
    labelled = torch.nonzero(gold >= 0)[:, 0]
    labelled = labelled[:: max(1, len(labelled) // LINEAR_TEXTS)]
    rows = (texts[row] for row in labelled.tolist())
    ids = (row if row.ndim == 1 else row[:, 0] for row in rows)  # spelled words: without letters
    learnt = [tokenizer.decode(row.tolist()) for row in ids]
    with torch.device("cpu"):
        answers = fit_linear(learnt, gold[labelled], len(names), [str(e.source) for e in examples])
    return [names[i] for i in answers], ""


FEW_STEPS = 500  # of a network: TREC had 41.6 % after 40 steps of large batches, and 87.7 % after many small ones


@dataclass(frozen=True)
class Diagnosis:
    """One question, its number, and whether it gives cause for concern."""

    question: str
    number: float
    well: bool
    answer: str
    remedy: str = ""


def beside_baseline(
    task: Task,
    scores: Json,
    baselines: Baselines,
    *,
    recipe: Recipe | None = None,
    steps: int | None = None,
) -> Iterator[Diagnosis]:
    """Is the score by which a task is judged better than the best of its baselines? Nothing where there is none."""
    common = [
        name
        for name in task.judged_by
        if name in scores and any(name in each for each in baselines.values())
    ]
    if not common:
        return
    name = next(
        (name for name in common if scores[name]), common[0]
    )  # answers of less than four words have no BLEU
    sign = -1 if name in LOWER_IS_BETTER else 1
    worth = {baseline: sign * each[name] for baseline, each in baselines.items() if name in each}
    best = max(worth, key=worth.__getitem__)
    ours, theirs = math.nan if scores[name] is None else float(scores[name]), baselines[best][name]
    yield Diagnosis(
        "is it better than its baseline?",
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
