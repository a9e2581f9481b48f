"""Cross-validation of small files: each part is held out in turn, and models are trained on the rest.

The run itself holds out the first part, and its model is kept. The models of the other folds are only scored. The
pooled scores of all folds estimate the quality of the model that is kept from more examples than one part has.
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
MAX_FOLDS = 5


def num_folds(recipe: Recipe, corpus: Corpus) -> int:
    """Return how many parts of a file are held out in turn: one if it has enough examples, or if time is limited."""
    if (
        task_of(recipe).data_kind(recipe) is not EXAMPLES
        or recipe.data.fold > 1
        or recipe.train.minutes is not None
    ):
        return 1
    held_out = max(corpus.size.get(f"validation_{side}_rows", 0) for side in ("source", "target"))
    if held_out >= HELD_OUT:
        return 1
    return min(MAX_FOLDS, int(1 / recipe.data.validation + 1e-6))


def write_folds(folder: Path, reports: Sequence[dict[str, Report | None]]) -> None:
    """Store the reports of the models of each fold, by the names of their recipes."""
    rows = [{name: _to_json(report) for name, report in fold.items()} for fold in reports]
    (folder / RUN / FOLDS).write_text(json.dumps(rows), "utf-8")


def read_folds(folder: Path, score: str) -> list[dict[str, Json]]:
    """Read the stored folds that have this score; an empty list if there are none."""
    path = folder / RUN / FOLDS
    folds = json.loads(path.read_text("utf-8")) if path.exists() else []
    return [fold for fold in folds if all(table["score"] == score for table in fold.values())]


def pooled(report: Report, others: Sequence[Json]) -> tuple[Json, ExampleScores]:
    """Pool the scores of a run and of its other folds, and the contributions of examples to the main score."""
    by_example = cast(ExampleScores, report.by_example)
    own = report.to_json()
    if not others:
        return own, by_example
    sums = np.concatenate([by_example.sums, *(table["sums"] for table in others)])
    pooled_examples = replace(by_example, sums=sums)
    tables = [own, *(table["scores"] for table in others)]
    weights = [table["examples"] for table in tables]
    baselines = {
        name: _means([table.get("baselines", {}).get(name, {}) for table in tables], weights)
        for name in report.baselines
    }
    scores = _means(tables, weights)
    if "perplexity" in scores:
        scores["perplexity"] = perplexity(scores["loss"])
    main_score = {pooled_examples.score: pooled_examples.value()}
    counts = {
        "examples": sum(weights),
        "folds": len(tables),
        "interval": {pooled_examples.score: list(interval(pooled_examples))},
    }
    unpooled = {name: value for name, value in own.items() if name != "by_length"}
    table = {**unpooled, **scores, **main_score, **counts, "baselines": baselines}
    return table, pooled_examples


def _means(tables: Sequence[Json], weights: Sequence[int]) -> dict[str, float]:
    """Return the weighted mean of each score that is a number in all tables."""
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
