"""Scores of a small file: each part of it is held out in turn, and models learn from the rest.

The run itself holds out the first part. The models of the other folds learn from as much, are scored, and are thrown
away; a score of all folds together is one of so many examples, for a model as it is kept.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np

from seqlab.bundle import Json
from seqlab.corpus.examples import Corpus
from seqlab.equations.decoding import perplexity
from seqlab.metrics.scores import ExampleScores, interval
from seqlab.model import RUN
from seqlab.recipe import Recipe
from seqlab.tasks import task_of
from seqlab.tasks.examples import EXAMPLES
from seqlab.tasks.settings import HELD_OUT
from seqlab.tasks.task import Report

FOLDS = "folds.json"
MOST = 5


def num_folds(recipe: Recipe, corpus: Corpus) -> int:
    """How many parts of a file are held out in turn: one if it is enough for a score, or if time is limited."""
    if (
        task_of(recipe).data_kind(recipe) is not EXAMPLES
        or recipe.data.fold > 1
        or recipe.train.minutes is not None
    ):
        return 1
    held_out = max(corpus.size.get(f"validation_{side}_rows", 0) for side in ("source", "target"))
    return 1 if held_out >= HELD_OUT else min(MOST, int(1 / recipe.data.validation + 1e-6))


def write_folds(folder: Path, reports: Sequence[dict[str, Report | None]]) -> None:
    """Write down how the models of each fold were scored, by the names of their recipes."""
    rows = [{name: _to_json(report) for name, report in fold.items()} for fold in reports]
    (folder / RUN / FOLDS).write_text(json.dumps(rows), "utf-8")


def read_folds(folder: Path, score: str) -> list[dict[str, Json]]:
    """The folds that were written down and have this score; nothing where there are no others."""
    path = folder / RUN / FOLDS
    folds = json.loads(path.read_text("utf-8")) if path.exists() else []
    return [fold for fold in folds if all(table["score"] == score for table in fold.values())]


def pooled(report: Report, others: Sequence[Json]) -> tuple[Json, ExampleScores]:
    """The scores of a run and of its other folds together, and what each example adds to the one that judges."""
    by_example, own = cast(ExampleScores, report.by_example), report.to_json()
    if not others:
        return own, by_example
    together = replace(
        by_example, sums=np.concatenate([by_example.sums, *(table["sums"] for table in others)])
    )
    tables = [own, *(table["scores"] for table in others)]
    weights = [table["examples"] for table in tables]
    baselines = {
        name: _means([table.get("baselines", {}).get(name, {}) for table in tables], weights)
        for name in report.baselines
    }
    scores = _means(tables, weights)
    if "perplexity" in scores:
        scores["perplexity"] = perplexity(scores["loss"])
    judged = {together.score: together.value()}
    counts = {
        "examples": sum(weights),
        "folds": len(tables),
        "interval": {together.score: list(interval(together))},
    }
    kept = {name: value for name, value in own.items() if name != "by_length"}
    return {**kept, **scores, **judged, **counts, "baselines": baselines}, together


def _means(tables: Sequence[Json], weights: Sequence[int]) -> dict[str, float]:
    """The mean of each score that is a number in all tables."""
    names = [
        name for name in tables[0] if all(isinstance(table.get(name), float) for table in tables)
    ]
    return {
        name: float(np.average([table[name] for table in tables], weights=weights))
        for name in names
    }


def _to_json(report: Report | None) -> Json:
    if report is None or report.by_example is None:
        return {"score": ""}
    return {
        "scores": report.to_json(),
        "score": report.by_example.score,
        "sums": report.by_example.sums.tolist(),
    }
