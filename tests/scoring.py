"""Scores of a model on examples, as `evaluate` gives them for a file that holds these."""

from collections.abc import Sequence
from pathlib import Path

from seqlab.bundle import Bundle
from seqlab.data.example import Example
from seqlab.tasks import task_of
from seqlab.tasks.examples import Examples
from seqlab.tasks.task import Report, Scoring


def evaluate_examples(bundle: Bundle, examples: Sequence[Example], stores: Path | None) -> Report:
    """Scores beside baselines; `stores` is the folder with the training part's rows."""
    return task_of(bundle.recipe).evaluate(bundle, Examples(list(examples)), Scoring(train=stores))
