"""The first losses of every recipe, on a small file of its task; of EM the likelihoods, and of counting the scores."""

import json
from typing import Any

from verbs import VOLATILE, command, train

DATA: dict[str, list[str]] = {
    "lm": ["text.txt"],
    "mask": ["text.txt"],
    "bilm": ["text.txt"],
    "classify": ["labelled.tsv"],
    "tag": ["tagged.conll"],
    "translate": ["pairs.tsv"],
    "forecast": ["series.csv"],
    "caption": ["pictures.npz"],
    "speak": ["frames.npz"],
}
OTHER_DATA: dict[str, list[str]] = {
    "dates": ["dates.tsv"],
    "dates-attention": ["dates.tsv"],
    "row-lstm": ["digits.npz"],
    "patch-transformer": ["digits.npz"],
    "glimpse-digits": ["digits.npz"],
    "linear-pixels": ["digits.npz"],
    "linear-vectors": ["frames.npz"],
    "caption-features": ["captions.tsv", "features.safetensors"],
}
SETTINGS = ("train.steps=3", "train.validate_every=1", "data.validation=0.1", "decode.max_length=8")
OTHER_SETTINGS: dict[str, tuple[str, ...]] = {
    "transformer-base": (
        "model.encoder.layers=1",
        "model.decoder.layers=1",
        "train.batch_tokens=256",
    ),
}
STARTS = {"tuned-classifier": "word-lstm", "tuned-tagger": "elmo"}
QUICK = (
    *(
        "char-lstm",
        "gpt-tiny",
        "hmm-lm",
        "themes",
        "elmo",
        "bilstm-classifier",
        "hmm-tagger",
        "char-tagger",
        "dates",
    ),
    *(
        "lds-forecast",
        "gru-forecast",
        "transformer-forecast",
        "shapes",
        "glimpse-digits",
        "patch-transformer",
    ),
    *("caption-features", "luong-dot", "transformer-tiny", "tuned-tagger"),
)


def collect_losses(collection: Any, *, quick: bool = False) -> None:
    """Train each recipe for three steps, those that begin with another model last."""
    known = sorted(
        json.loads(command("recipes", "--json")),
        key=lambda each: (each["name"] in STARTS, each["name"]),
    )
    collection.add("losses/recipes", lambda: {each["name"]: each["task"] for each in known})
    for each in known:
        if not quick or each["name"] in QUICK:
            collection.add(f"losses/{each['name']}", _first_losses, each["name"], each["task"])


def _first_losses(recipe: str, task: str) -> dict[str, Any]:
    """The log of a short run, and what is said of the model that it leaves."""
    out = f"losses-{recipe}"
    start = f"losses-{STARTS[recipe]}" if recipe in STARTS else None
    settings = (*SETTINGS, *OTHER_SETTINGS.get(recipe, ()))
    log = train(recipe, task, OTHER_DATA.get(recipe, DATA[task]), settings, out, start=start)
    return {"log": log, "info": info_of(out)}


def info_of(out: str) -> dict[str, Any]:
    """Sizes, and scores beside their baselines, of a trained model."""
    facts = json.loads(command("info", out, "--json"))
    metrics = {name: value for name, value in facts["metrics"].items() if name not in VOLATILE}
    sizes = {name: facts[name] for name in ("task", "parameters", "vocabulary", "weights")}
    return {**sizes, "metrics": metrics}
