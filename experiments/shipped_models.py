"""The models that come with the package: `make models DATA=DIR` trains missing ones and writes them as int8.

    python experiments/shipped_models.py DIR [NAME ...]

DIR holds tatoeba-en-fr/fra.txt.gz (manythings.org/anki, tatoeba.org) and timemachine/timemachine.txt (`seqlab data get
timemachine`); dates are made on the spot. Runs stay in runs/models, and one that was stopped goes on. The scores of a
card are those of the rounded model, on what its training held out.
"""

import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import seqlab
from seqlab.bundle import SHIPPED, is_bundle, save_bundle
from seqlab.data.synthetic import split_dates

RUNS = Path("runs/models")
EVERYDAY = "tatoeba-en-fr/fra.txt.gz"
TRANSLATION = (
    f"seqlab train translate {EVERYDAY} --recipe transformer-small --threads 1 --set source.form=NFKC "
    "--set target.form=NFKC --set model.dropout=0.1 --set train.batch_tokens=3072 --set train.steps=1400"
)
TATOEBA = {
    "data": "167,130 pairs of everyday sentences, English and French, of Tatoeba (manythings.org/anki, April 2019), "
    "most of up to ten words; what is held out shares no source sentence with the training part",
    "licence": "the sentences are CC BY 2.0, the weights Apache-2.0",
    "attribution": "sentences by the contributors of tatoeba.org, paired by www.manythings.org/anki",
}
SHORT = (
    "short everyday sentences in words; longer ones lose parts, tenses slip, names and rare words are guessed, figures "
    "such as dates can send it round in circles, and whom one speaks to (tu or vous) is a toss. Not for what matters"
)


@dataclass(frozen=True)
class Made:
    """The command for one model, its minutes, the text of its card, and example inputs."""

    command: str
    minutes: float  # on a core of its own
    notes: dict[str, str]
    examples: tuple[str, ...]


MODELS = {
    "dates": Made(
        "seqlab train translate dates.tsv --valid days.tsv --recipe dates-attention --threads 1",
        2.5,
        {
            "data": "80,000 dates in 48 languages made with Babel: `split_dates(80_000, 2_000, seed=1)`; "
            "what is held out are 2,000 dates whose days occur in no language of the training part",
            "licence": "the forms of dates are Unicode's CLDR (Unicode License v3), the weights Apache-2.0",
            "attribution": "Unicode CLDR, through Babel",
            "limits": "dates of 1900 to 2099, written out with the month's name or as CLDR has it, as in its 48 "
            "languages; an impossible or half-written date still gets an answer",
        },
        (
            "samedi 3 mai 1997",
            "July 4, 1976",
            "9. November 1989",
            "2001年9月11日",
            "среда, 12 апреля 1961 г.",
        ),
    ),
    "en-fr": Made(
        TRANSLATION,
        35,
        {**TATOEBA, "limits": SHORT},
        (
            "Where is the train station?",
            "My brother is taller than me.",
            "I have never seen such a beautiful sunset.",
            "He told me that he had lost his keys in the garden.",
            "I would like a cup of coffee, please.",
        ),
    ),
    "fr-en": Made(
        f"{TRANSLATION} --set data.source=2 --set data.target=1",
        35,
        {
            **TATOEBA,
            "limits": f"{SHORT}. An English sentence may be held out here that training saw elsewhere",
        },
        (
            "Où est la gare ?",
            "Mon frère est plus grand que moi.",
            "Je n'ai jamais vu un si beau coucher de soleil.",
            "Il m'a dit qu'il avait perdu ses clés dans le jardin.",
            "Je voudrais une tasse de café, s'il vous plaît.",
        ),
    ),
    "time-machine": Made(
        "seqlab train lm timemachine/timemachine.txt --recipe char-lstm --set target.lower=true "
        "--set target.letters_only=true",
        5,
        {
            "data": "The Time Machine by H. G. Wells (1895), 178,979 characters as small letters and spaces, "
            "the last tenth held out",
            "licence": "the text is in the public domain, the weights Apache-2.0",
            "attribution": "H. G. Wells; the text of Project Gutenberg, as d2l.ai has it",
            "limits": "small letters and spaces alone; words in the manner of one book, most of them English, without "
            "meaning beyond a phrase; it knows nothing, and its book sees the world as of 1895",
        },
        (
            "the time traveller",
            "the morlocks",
            "then suddenly",
            "i do not mean to",
            "it was at ten o clock",
        ),
    ),
}


def main(data: Path, names: list[str]) -> None:
    for name in names or list(MODELS):
        run = RUNS / name
        if not is_bundle(run):
            _train(name, data, run.resolve())
        _ship(name, run)


def _train(name: str, data: Path, run: Path) -> None:
    """Run the command in the directory of its data."""
    if name == "dates":
        data = RUNS
        data.mkdir(parents=True, exist_ok=True)
        for file, part in zip(
            ("dates.tsv", "days.tsv"), split_dates(80_000, 2_000, seed=1), strict=True
        ):
            (data / file).write_text("".join(f"{text}\t{iso}\n" for text, iso, _ in part), "utf-8")
    command = "seqlab train --resume" if (run / "run").is_dir() else MODELS[name].command
    print(command, flush=True)
    subprocess.run(
        [sys.executable, "-m", *shlex.split(command), "--out", str(run)], cwd=data, check=True
    )


def _ship(name: str, run: Path) -> None:
    """Write the int8 model into the package, with the scores of that model."""
    made, model = MODELS[name], seqlab.load(run, int8=True)
    time = f"about {made.minutes:g} minutes on a core of its own"
    notes = {"recipe": f"`{made.command}`", "time": time, **made.notes}
    metrics = {
        **model.metrics,
        "validation": model.evaluate().to_json(),
        "notes": notes,
        "examples": made.examples,
    }
    shutil.rmtree(SHIPPED / name, ignore_errors=True)
    save_bundle(replace(model.bundle, metrics=metrics), SHIPPED / name)
    print(f"{name}: {sum(file.stat().st_size for file in (SHIPPED / name).iterdir()) / 1e6:.2f} MB")


if __name__ == "__main__":
    if len(sys.argv) < 2 or set(sys.argv[2:]) - MODELS.keys():
        sys.exit(f"usage: {sys.argv[0]} DIR [NAME ...], where NAME is of {', '.join(MODELS)}")
    main(Path(sys.argv[1]), sys.argv[2:])
