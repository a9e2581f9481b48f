"""The demo: dates as people write them in many languages become ISO dates, tried on days never seen in any of them."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from seqlab import lab
from seqlab.data.synthetic import LANGUAGES, Dated, split_dates
from seqlab.training.log import Reporter

NUM_TRAIN, NUM_TEST = 80_000, 2_000
LINES = f"""{NUM_TRAIN:,} dates in {len(LANGUAGES)} languages become ISO dates: "samedi 3 mai 1997" -> 1997-05-03.
An LSTM reads the letters into one vector, another writes the date from it (S13, no attention yet)."""


@dataclass(frozen=True)
class Demo:
    """What the demo measured."""

    exact: float
    floor: float
    seconds: float
    num_test: int
    tried: list[tuple[str, str, str]]
    errors: list[tuple[str, str, str]]
    stopped: bool

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def run_demo(out: Path, *, steps: int | None, report: Reporter, stop: Callable[[], bool]) -> Demo:
    """Make the dates, train on them, and try the days that were kept apart."""
    train, test = split_dates(NUM_TRAIN, NUM_TEST, seed=1)
    settings = [] if steps is None else [f"train.steps={steps}"]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "dates.tsv"
        path.write_text("".join(f"{text}\t{iso}\n" for text, iso, _ in train), "utf-8")
        trained = lab.train(
            "translate", path, recipe="dates", settings=settings, out=out, overwrite=True, report=report, stop=stop
        )
    answers = [answer.output for answer in trained.model.predict([text for text, _, _ in test])]
    rows = [(text, answer, iso) for (text, iso, _), answer in zip(test, answers, strict=True)]
    return Demo(
        exact=sum(answer == iso for _, answer, iso in rows) / len(rows),
        floor=sum(text == iso for text, _, iso in rows) / len(rows),
        seconds=trained.model.metrics["seconds"],
        num_test=len(rows),
        tried=[
            (text, answer, "yes" if answer == iso else f"no: {iso}")
            for text, answer, iso in _one_a_language(test, rows)
        ],
        errors=[row for row in rows if row[1] != row[2]][:8],
        stopped=trained.stopped,
    )


def _one_a_language(test: list[Dated], rows: list[tuple[str, str, str]]) -> Iterator[tuple[str, str, str]]:
    wanted = ["fr", "de", "es", "ru", "hi", "ja", "ar", "fi"]
    for language in wanted:
        yield next(row for dated, row in zip(test, rows, strict=True) if dated[2] == language)
