"""The demo: dates as people write them in many languages become ISO dates, tried on days never seen in any of them.

Two models learn it, one after the other, from the same examples: an encoder-decoder that must put all it has read
into one vector, and one that may look back at every letter while it writes.
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
SHOWN = ("fr", "de", "es", "ru", "hi", "ja", "ar", "fi")  # languages of which one day each is shown
Row = tuple[str, str, str]  # what was written, what the model read, what it is

LINES = f"""{NUM_TRAIN:,} dates in {len(LANGUAGES)} languages become ISO dates: "samedi 3 mai 1997" -> 1997-05-03.
First an LSTM reads the letters into one vector and another writes the date from it (S13).
Then the same with attention: each digit is written while looking at the letters (S14)."""


@dataclass(frozen=True)
class Tried:
    """One model of the demo, and how it did on the days that were kept apart."""

    recipe: str
    path: str
    parameters: int
    seconds: float
    exact: float
    shown: list[Row]
    errors: list[Row]
    stopped: bool


@dataclass(frozen=True)
class Demo:
    """What the demo measured."""

    num_test: int
    baseline: float
    models: list[Tried]
    alignment: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def stopped(self) -> Tried | None:
        """The model that was stopped before its end, if one was."""
        return next((tried for tried in self.models if tried.stopped), None)


def run_demo(
    out: Path,
    *,
    steps: int | None,
    report: Callable[[str], Reporter],
    stop: Callable[[], bool],
) -> Demo:
    """Make the dates, train both models on them, and try the days that were kept apart.

    `report` is asked for somebody to watch each training; a model that was stopped is the last one.
    """
    train, test = split_dates(NUM_TRAIN, NUM_TEST, seed=1)
    settings = [] if steps is None else [f"train.steps={steps}"]
    models: list[Tried] = []
    drawn = ""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "dates.tsv"
        path.write_text("".join(f"{text}\t{iso}\n" for text, iso, _ in train), "utf-8")
        for recipe in RECIPES:
            where = out if recipe == RECIPES[0] else out.with_name(f"{out.name}-attention")
            trained = lab.train(
                "translate",
                path,
                recipe=recipe,
                settings=settings,
                out=where,
                overwrite=True,
                report=report(recipe),
                stop=stop,
            )
            models.append(_tried(trained, test))
            if trained.model.recipe.model.attention is not None:
                drawn = _drawn(trained.model, test)
            if trained.stopped:
                break
    baseline = sum(text == iso for text, iso, _ in test) / len(test)
    return Demo(len(test), baseline, models, drawn)


def _tried(trained: lab.Trained, test: list[Dated]) -> Tried:
    model = trained.model
    answers = [answer.output for answer in model.predict([text for text, _, _ in test])]
    rows = [(text, answer, iso) for (text, iso, _), answer in zip(test, answers, strict=True)]
    samples = [
        next(row for dated, row in zip(test, rows, strict=True) if dated[2] == language)
        for language in SHOWN
    ]
    return Tried(
        recipe=model.recipe.name,
        path=str(model.path),
        parameters=model.bundle.num_parameters,
        seconds=model.metrics["seconds"],
        exact=sum(answer == iso for _, answer, iso in rows) / len(rows),
        shown=samples,
        errors=[row for row in rows if row[1] != row[2]][:5],
        stopped=trained.stopped,
    )


def _drawn(model: lab.Model, test: list[Dated]) -> str:
    """The alignment of a French date, where the day comes first and in the answer last."""
    text = next(text for text, _, language in test if language == "fr" and 14 <= len(text) <= 26)
    example = subject(model.bundle, text)
    return HeatMap(
        alignment(example), example.answer_names, example.source, reach=(0.0, 1.0)
    ).as_text()
