"""Answers and scores of the shipped models on fixed inputs. These never change."""

import json
from pathlib import Path
from typing import Any

from verbs import command, predict

import seqlab

INPUTS: dict[str, list[str]] = {
    "dates": [
        "samedi 3 mai 1997",
        "July 4, 1976",
        "9. November 1989",
        "2021年5月3日",
        "12 stycznia 2044",
        "tomorrow",
    ],
    "en-fr": [
        "Where is the train station?",
        "My brother is taller than me.",
        "I have never seen it before.",
        "",
    ],
    "fr-en": [
        "Où est la gare ?",
        "Je n'ai jamais vu un si beau coucher de soleil.",
        "Il pleut depuis ce matin.",
    ],
    "time-machine": ["The Time Traveller", "I saw the ", ""],
}
TARGETS: dict[str, list[str]] = {
    "dates": ["1997-05-03", "1976-07-04", "1989-11-09", "2021-05-03", "2044-01-12", "1999-01-01"],
    "en-fr": [
        "Où est la gare ?",
        "Mon frère est plus grand que moi.",
        "Je ne l'ai jamais vu auparavant.",
        "Rien.",
    ],
    "fr-en": [
        "Where is the station?",
        "I've never seen such a beautiful sunset.",
        "It has been raining.",
    ],
    "time-machine": ["The Time Traveller smiled.", "I saw the moon", "was"],
}
PREFIXES = {"dates": "19", "en-fr": "Où", "fr-en": "I"}
LENGTH = ("--max-length", "40")
WAYS: dict[str, tuple[str, ...]] = {
    "usual": (),
    "greedy": ("--greedy",),
    "beam": ("--beam", "4"),
    "beam-by-sum": (
        "--beam",
        "3",
        "--length-penalty",
        "0",
        "--no-repeat",
        "2",
        "--min-length",
        "3",
    ),
    "sampled": ("--temperature", "0.8", "--top-k", "20", "--seed", "7"),
    "sampled-by-mass": ("--top-p", "0.9", "--seed", "11"),
}


def collect_answers(collection: Any, *, quick: bool = False) -> None:
    """Decode in every way, score given targets, and evaluate on a small file."""
    for model, inputs in INPUTS.items():
        for way, options in WAYS.items():
            collection.add(
                f"answers/{model}/{way}", predict, model, *inputs, options=(*LENGTH, *options)
            )
        if model in PREFIXES:
            options = (*LENGTH, "--prefix", PREFIXES[model])
            collection.add(f"answers/{model}/prefix", predict, model, *inputs, options=options)
        collection.add(f"answers/{model}/forced", _forced, model)
        collection.add(f"answers/{model}/evaluated", _evaluated, model)
        collection.add(f"answers/{model}/embedded", _embedded, model, inputs[0])
        collection.add(f"info/{model}", _facts, model)
    options = ("--stream", "--seed", "3", *LENGTH)
    collection.add(
        "answers/time-machine/streamed", command, "predict", "time-machine", "It was", *options
    )
    collection.add(
        "answers/en-fr/lines",
        command,
        "predict",
        "en-fr",
        *LENGTH,
        stdin="Good morning.\n\nThank you.\n",
    )


def _forced(model: str) -> list[float]:
    """The log-probability of each given target."""
    sources = [] if model == "time-machine" else INPUTS[model]
    return seqlab.load(model).score(TARGETS[model], sources)


def _evaluated(model: str) -> Any:
    path = Path(f"{model}-known")
    if model == "time-machine":
        path = path.with_suffix(".txt")
        path.write_text("".join(f"{line}\n" for line in TARGETS[model]), "utf-8")
    else:
        path = path.with_suffix(".tsv")
        pairs = [pair for pair in zip(INPUTS[model], TARGETS[model], strict=True) if pair[0]]
        path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), "utf-8")
    return json.loads(command("evaluate", model, path, "--json"))


def _embedded(model: str, text: str) -> list[float]:
    return json.loads(command("predict", model, text, "--embed"))["vector"]


def _facts(model: str) -> dict[str, Any]:
    """What `info` says of a model, except where its files are and how large."""
    facts = json.loads(command("info", model, "--json"))
    return {name: value for name, value in facts.items() if name not in ("path", "bytes")}
