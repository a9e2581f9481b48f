"""Each view's JSON on tiny models that are trained here, and the answers and scores of these models."""

import json
from dataclasses import dataclass
from typing import Any

from verbs import VOLATILE, command, predict, train


@dataclass(frozen=True)
class Tiny:
    """A model that trains in a second, what it is asked, and the views that show something of it."""

    recipe: str
    task: str
    data: str
    settings: str
    given: str
    views: str
    steps: int = 100


SIZES = "model.embedding=4 model.encoder.size=6"
READER = f"{SIZES} train.learning_rate=0.02 train.average=none"
ATTENTIVE = f"{READER} model.pooling=attention"
PAIR = f"{SIZES} model.decoder.size=6 train.learning_rate=0.01 decode.max_length=12"
SMALL_BLOCKS = " ".join(
    f"model.{side}.{setting}"
    for side in ("encoder", "decoder")
    for setting in ("size=8", "layers=1", "heads=2", "feed_forward=12", "activation=gelu")
)
# Softmax does not change when all keys move together, so that the gradient of this move is only rounding error. Plain
# gradient descent leaves it as small as it is; AdamW and Muon would enlarge it until processors disagree.
DESCENT = "train.optimizer=sgd train.learning_rate=0.3"
TEXT = "lens number gradients cells saliency embeddings training"
DATE = "3 May 1997"
CLAUSE = "the cat sees the sea"
PICTURE = "image.height=8 image.width=8 model.encoder.size=6 model.encoder.layers=1 model.encoder.channels=4"
MODELS: dict[str, Tiny] = {
    "char-lstm": Tiny(
        *("char-lstm", "lm", "text.txt"),
        "model.embedding=4 model.decoder.size=6 train.bptt=16 train.batch_rows=4 decode.max_length=8",
        *("the (cat)", f"{TEXT} beam"),
    ),
    "gpt": Tiny(
        *("gpt-tiny", "lm", "text.txt"),
        "model.decoder.size=8 model.decoder.layers=1 model.decoder.heads=2 model.decoder.window=12 train.bptt=16 "
        "train.batch_rows=4 decode.max_length=8",
        *("the cat", f"{TEXT} attention beam positions"),
    ),
    "seq2seq": Tiny("dates", "translate", "dates.tsv", PAIR, DATE, f"{TEXT} beam", 60),
    "attention": Tiny(
        "dates-attention", "translate", "dates.tsv", PAIR, DATE, f"{TEXT} attention beam", 60
    ),
    "transformer": Tiny(
        *("transformer-tiny", "translate", "pairs.tsv"),
        f"{SMALL_BLOCKS} {DESCENT} source.kind=words decode.max_length=8",
        *(CLAUSE, f"{TEXT} attention beam positions"),
        30,
    ),
    "universal": Tiny(
        *("universal-transformer", "translate", "pairs.tsv"),
        f"{SMALL_BLOCKS.replace('layers=1', 'layers=2')} {DESCENT} source.kind=words decode.max_length=6",
        *(CLAUSE, "attention lens number beam gradients saliency training"),
        30,
    ),
    "classifier": Tiny(
        "bilstm-classifier", "classify", "labelled.tsv", ATTENTIVE, CLAUSE, f"{TEXT} attention"
    ),
    "hops": Tiny("self-attentive", "classify", "labelled.tsv", READER, CLAUSE, "attention"),
    "tagger": Tiny(
        *(
            "bilstm-tagger",
            "tag",
            "tagged.conll",
            f"{READER} model.encoder.layers=1",
            "the cat sees a red bird",
            TEXT,
        ),
    ),
    "hmm-tagger": Tiny(
        "hmm-tagger", "tag", "tagged.conll", "", "the cat sees a red bird", "trellis lens number"
    ),
    "hmm-lm": Tiny(
        *("hmm-lm", "lm", "text.txt", "model.hmm.states=4 decode.max_length=8", "the cat sees"),
        "trellis lens number beam training",
        8,
    ),
    "masked": Tiny(
        *("bert-tiny", "mask", "text.txt"),
        f"{DESCENT} source.size=280 model.encoder.size=8 model.encoder.layers=1 model.encoder.heads=2",
        *("the cat sees the [MASK]", f"{TEXT} attention positions bpe"),
    ),
    "bilm": Tiny(
        *(
            "elmo",
            "bilm",
            "text.txt",
            "model.embedding=6 model.encoder.size=6 model.encoder.layers=1",
        ),
        *("the cat sees", "embeddings"),
        20,
    ),
    "forecaster": Tiny(
        *("gru-forecast", "forecast", "series.csv"),
        f"{SIZES} forecast.look_back=16 forecast.horizon=4 forecast.patch=4",
        *("series.csv", "band training"),
        40,
    ),
    "kalman": Tiny(
        *("lds-forecast", "forecast", "series.csv"),
        "forecast.look_back=48 forecast.horizon=4 model.lds.harmonics=1",
        *("series.csv", "band training"),
        4,
    ),
    "captioner": Tiny(
        *(
            "shapes",
            "caption",
            "pictures.npz",
            f"{PICTURE} model.embedding=4 model.decoder.size=6 decode.max_length=6",
        ),
        *("pictures.npz/images/3", "maps attention lens number beam gradients saliency training"),
    ),
    "caption-blocks": Tiny(
        *("caption-transformer", "caption", "pictures.npz"),
        f"{PICTURE} {DESCENT} model.encoder.size=8 model.decoder.size=8 model.decoder.layers=1 model.decoder.heads=2 "
        "target.min_count=1 decode.max_length=6",
        *("pictures.npz/images/3", "maps attention"),
        60,
    ),
    "glimpses": Tiny(
        *("glimpse-digits", "classify", "digits.npz"),
        "model.encoder.size=6 model.encoder.glimpses=3 model.encoder.window=3",
        *("digits.npz/images/3", "glimpses lens number gradients cells training"),
    ),
}
# model, view, options: what a view can be told
TOLD: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "attention-of-second-best": ("transformer", "attention", ("--hypothesis", "2")),
    "attention-of-a-given-output": ("attention", "attention", ("--output", "1997-05-03")),
    "attention-one-head": (
        "transformer",
        "attention",
        ("--layer", "decoder.0.cross", "--head", "2"),
    ),
    "lens-one-layer": ("char-lstm", "lens", ("--layer", "decoder.0.f")),
    "lens-ponder": ("universal", "lens", ("--layer", "decoder.ponder")),
    "number-one-cell": (
        "transformer",
        "number",
        ("--layer", "decoder.0.cross.score", "--cell", "1,0,2"),
    ),
    "beam-replayed": (
        "attention",
        "beam",
        ("--beam", "3", "--replay-beam", "2", "--replay-penalty", "0"),
    ),
    "gradients-at-a-position": ("seq2seq", "gradients", ("--position", "2")),
    "cells-pattern": ("char-lstm", "cells", ("--pattern", r"\(.*\)")),
    "cells-one-unit": ("tagger", "cells", ("--unit", "3")),
    "saliency-gradient": ("tagger", "saliency", ("--method", "gradient", "--position", "3")),
    "saliency-leave-one-out": ("classifier", "saliency", ("--method", "leave-one-out")),
    "what-if-ablated": ("transformer", "what-if", ("--ablate", "decoder.0.cross.heads:1")),
    "what-if-replaced": ("tagger", "what-if", ("--replace", "2=dog")),
    "what-if-prefix": ("attention", "what-if", ("--prefix", "20")),
    "what-if-sampled": ("char-lstm", "what-if", ("--temperature", "0.7")),
    "band-of-a-column": ("kalman", "band", ("--column", "high")),
}
# shipped models: an input, and views that stay small
SHIPPED: dict[str, tuple[str, str]] = {
    "dates": ("samedi 3 mai 1997", "attention beam gradients number saliency"),
    "en-fr": ("Where is he?", "attention beam bpe gradients saliency"),
    "time-machine": ("the time trav", "cells gradients saliency"),
}
INT8 = ("classifier", "char-lstm")


def collect_views(collection: Any, *, quick: bool = False) -> None:
    """Train each tiny model, ask it, score it, and look into it."""
    for name, tiny in MODELS.items():
        collection.add(f"models/{name}/log", _train, name, tiny)
        collection.add(f"models/{name}/answer", _answer, name, tiny)
        collection.add(f"models/{name}/evaluated", _evaluated, name)
        for view in tiny.views.split():
            collection.add(f"views/{view}/{name}", _view, name, view)
    for name in INT8:
        collection.add(
            f"models/{name}/int8", predict, _folder(name), MODELS[name].given, options=("--int8",)
        )
    for title, (name, view, options) in TOLD.items():
        collection.add(f"views/{view}/{title}", _view, name, view, *options)
    for name, (given, views) in SHIPPED.items():
        for view in views.split():
            collection.add(
                f"views/{view}/{name}", _document, "explain", name, given, "--view", view, "--json"
            )
        collection.add(f"views/usual/{name}", _document, "explain", name, given, "--json")
    collection.add("views/names", _names)


def _folder(name: str) -> str:
    return f"tiny-{name}"


def _train(name: str, tiny: Tiny) -> Any:
    length = (f"train.steps={tiny.steps}", f"train.validate_every={tiny.steps}", "train.warmup=2")
    settings = (*tiny.settings.split(), *length, "data.validation=0.1")
    return train(tiny.recipe, tiny.task, [tiny.data], settings, _folder(name))


def _answer(name: str, tiny: Tiny) -> Any:
    options = ("--embed",) if tiny.task == "bilm" else ("--json",)
    if tiny.task == "forecast":
        return _document("predict", _folder(name), tiny.given, *options)
    return [
        json.loads(line)
        for line in command("predict", _folder(name), tiny.given, *options).splitlines()
    ]


def _evaluated(name: str) -> Any:
    """Scores on what training held out."""
    return _document("evaluate", _folder(name), "--json")


def _view(name: str, view: str, *options: str) -> Any:
    given = () if view in ("positions", "training") else (MODELS[name].given,)
    document = _document("explain", _folder(name), *given, "--view", view, "--json", *options)
    return {key: value for key, value in document.items() if key not in VOLATILE}


def _document(*words: str) -> Any:
    return json.loads(command(*words))


def _names() -> list[str]:
    """The views that the package lists."""
    rows = [
        line.split("│")[1].strip()
        for line in command("explain", "--list").splitlines()
        if line.count("│") > 2
    ]
    return [name for name in rows if name]
