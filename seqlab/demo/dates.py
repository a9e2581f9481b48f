"""The dates demo: two models learn to normalise dates of many languages, and are tested on days of no training example.

Both train on the same examples: an encoder-decoder that compresses the source into one vector, and one with attention,
which reads every letter again at each step.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from seqlab import lab
from seqlab.data.synthetic import LANGUAGES, Dated, split_dates
from seqlab.explain.attention import alignment
from seqlab.explain.charts import HeatMap
from seqlab.tasks import subject
from seqlab.training.log import Reporter

NUM_TRAIN, NUM_TEST = 80_000, 2_000
RECIPES = ("dates", "dates-attention")
SHOWN_LANGUAGES = ("fr", "de", "es", "ru", "hi", "ja", "ar", "fi")
Row = tuple[str, str, str]  # source, answer, correct answer

INTRODUCTION = f"""The data: {NUM_TRAIN:,} dates in {len(LANGUAGES)} languages, "samedi 3 mai 1997" -> 1997-05-03.
The first model encodes the letters into one vector with an LSTM and decodes it with another (S13).
The second one adds attention: each digit is generated from a weighted sum over the letters (S14)."""


@dataclass(frozen=True)
class ModelResult:
    """One model of the demo, with its accuracy and some answers on the test days."""

    recipe: str
    path: str
    parameters: int
    seconds: float
    exact: float
    shown: list[Row]
    errors: list[Row]
    stopped: bool


@dataclass(frozen=True)
class DemoResult:
    """The results of both models; `baseline` is the accuracy of copying the source."""

    num_test: int
    baseline: float
    models: list[ModelResult]
    alignment: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def stopped(self) -> ModelResult | None:
        """The model whose training was interrupted, or None."""
        return next((model for model in self.models if model.stopped), None)


def run_demo(
    out: Path,
    *,
    steps: int | None,
    report: Callable[[str], Reporter],
    stop: Callable[[], bool],
) -> DemoResult:
    """Generate the dates, train both models, and test them.

    `report` returns a reporter for the training of a recipe. If a training is interrupted, no other one follows.
    """
    train, test = split_dates(NUM_TRAIN, NUM_TEST, seed=1)
    settings = [] if steps is None else [f"train.steps={steps}"]
    models: list[ModelResult] = []
    attention = ""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "dates.tsv"
        path.write_text("".join(f"{text}\t{iso}\n" for text, iso, _ in train), "utf-8")
        for recipe in RECIPES:
            path_of_model = out if recipe == RECIPES[0] else out.with_name(f"{out.name}-attention")
            trained = lab.train(
                "translate",
                path,
                recipe=recipe,
                settings=settings,
                out=path_of_model,
                overwrite=True,
                report=report(recipe),
                stop=stop,
            )
            models.append(_test(trained, test))
            if trained.model.recipe.model.attention is not None:
                attention = _draw_attention(trained.model, test)
            if trained.stopped:
                break
    baseline = sum(text == iso for text, iso, _ in test) / len(test)
    return DemoResult(len(test), baseline, models, attention)


def _test(trained: lab.Trained, test: list[Dated]) -> ModelResult:
    model = trained.model
    answers = [answer.output for answer in model.predict([text for text, _, _ in test])]
    rows = [(text, answer, iso) for (text, iso, _), answer in zip(test, answers, strict=True)]
    samples = [
        next(row for dated, row in zip(test, rows, strict=True) if dated[2] == language)
        for language in SHOWN_LANGUAGES
    ]
    return ModelResult(
        recipe=model.recipe.name,
        path=str(model.path),
        parameters=model.bundle.num_parameters,
        seconds=model.metrics["seconds"],
        exact=sum(answer == iso for _, answer, iso in rows) / len(rows),
        shown=samples,
        errors=[row for row in rows if row[1] != row[2]][:5],
        stopped=trained.stopped,
    )


def _draw_attention(model: lab.Model, test: list[Dated]) -> str:
    """Draw the attention for a French date, whose day is first in the source and last in the answer."""
    text = next(text for text, _, language in test if language == "fr" and 14 <= len(text) <= 26)
    example = subject(model.bundle, text)
    return HeatMap(
        alignment(example), example.answer_names, example.source, reach=(0.0, 1.0)
    ).as_text()
