"""What requests ask of a model, as plain functions that run in the one thread that computes."""

import base64
import json
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import numpy as np

from seqlab.assemble.pictured import is_pictured
from seqlab.data.images import picture_values
from seqlab.data.sources import Picture
from seqlab.errors import DataError, SeqlabError, UsageError
from seqlab.explain.subject import subject
from seqlab.explain.view import View
from seqlab.forecasting import forecast
from seqlab.model import Model, decode_settings
from seqlab.predict import predict, score
from seqlab.reading import Source
from seqlab.recipe import Decode
from seqlab.serve.bodies import Decoding
from seqlab.serve.limits import MOST_LETTERS, MOST_LOOKED_AT

TYPES = {
    "json": "application/json",
    "html": "text/html; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "trace": "application/octet-stream",
}


def settings_of(model: Model, asked: Decoding) -> Decode:
    """The recipe's [decode] with what a request asks for instead."""
    given = asked.model_dump(exclude={"n_best"}, exclude_none=True)
    if asked.n_best is not None and not {"beam", "method"} & given.keys():
        given["beam"] = asked.n_best
    return decode_settings(model.recipe.decode, given)


@contextmanager
def read(model: Model, given: Any, *, most: int = MOST_LETTERS) -> Iterator[Source]:
    """An input as the model takes it. A text is never the name of a file: for a forecaster it is the table itself."""
    if not isinstance(given, str):
        if model.bundle.vocabularies.features is None and model.recipe.task != "forecast":
            raise UsageError("this model reads text, not numbers", hint="give a string.")
        yield _array(given, pixels=model.recipe.image is not None)
    elif model.recipe.task == "forecast":
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "series.csv")
            with open(path, "w", encoding="utf-8") as file:
                file.write(given)
            try:
                yield path
            except SeqlabError as error:
                raise DataError(str(error).replace(path, "the series"), hint=error.hint) from None
    elif model.recipe.image is not None and given.startswith("data:image/"):
        yield Picture("", picture_values(_file_of(given), "the picture", model.recipe.image))
    elif is_pictured(model.recipe) or model.bundle.vocabularies.features is not None:
        raise UsageError(
            "this model reads numbers, and the server opens no files",
            hint="give a list of rows of numbers; of a picture, its pixels, or its file as data:image/png;base64,...",
        )
    elif len(given) > most:
        raise UsageError(f"{len(given):,} letters where {most:,} are the most", hint="send less at a time.")
    else:
        yield given


def _file_of(address: str) -> bytes:
    """The file that an address spells out."""
    try:
        return base64.b64decode(address.partition(",")[2], validate=True)
    except ValueError:
        raise UsageError("the picture is not spelt in base64", hint="data:image/png;base64, then the file.") from None


def _array(given: Any, *, pixels: bool) -> np.ndarray:
    """Rows of numbers. Pixels are fractions, or whole numbers up to 255, which JSON does not tell apart."""
    try:
        array = np.asarray(given, dtype=np.float32)
    except ValueError:
        raise UsageError("rows of unequal length", hint="give each row as many numbers as the others.") from None
    whole = pixels and array.size > 0 and array.max() > 1 and (array == array.round()).all()
    return array.astype(np.int64) if whole else array


def predict_together(
    model: Model, decode: Decode, seed: int, prefix: str, requests: Sequence[list[Any]]
) -> list[list[dict[str, Any]] | SeqlabError]:
    """The answers to several requests, decoded in one go; where that fails, each alone, so that each has its own."""
    try:
        return cast(list[list[dict[str, Any]] | SeqlabError], _in_one_go(model, decode, seed, prefix, requests))
    except SeqlabError as error:
        if len(requests) == 1:
            return [error]
        return [predict_together(model, decode, seed, prefix, [request])[0] for request in requests]


def _in_one_go(
    model: Model, decode: Decode, seed: int, prefix: str, requests: Sequence[list[Any]]
) -> list[list[dict[str, Any]]]:
    if model.recipe.task == "forecast":
        return [[_forecast(model, given) for given in request] for request in requests]
    rows = [row for request in requests for row in range(len(request))]
    inputs = []
    for request in requests:
        for given in request:
            with read(model, given) as source:
                inputs.append(source)
    said = predict(model.bundle, inputs, decode=decode, seed=seed, prefix=prefix, rows=rows)
    answers = iter([{"input": each.input, "output": each.output, **each.details} for each in said])
    return [[next(answers) for _ in request] for request in requests]


def _forecast(model: Model, given: Any) -> dict[str, Any]:
    with read(model, given) as series:
        return forecast(model.bundle, cast(Any, series)).to_json()


def scores_of(model: Model, sources: list[Any], targets: list[str]) -> list[float]:
    reads = model.recipe.task != "lm"
    if len(sources) != (len(targets) if reads else 0):
        hint = "give a source for each target." if reads else "a language model scores targets alone."
        raise UsageError(f"{len(sources)} sources for {len(targets)} targets", hint=hint)
    inputs = []
    for given in sources:
        with read(model, given) as source:
            inputs.append(source)
    return score(model.bundle, cast(Any, inputs), targets)


def explained(model: Model, view: str, given: Any, options: dict[str, Any], form: str) -> bytes:
    """A view in the form that was asked for."""
    if "pattern" in options:
        _refuse_endless(options["pattern"])
    if given is None:
        if form == "trace":
            raise UsageError("a trace is of an input", hint="give one.")
        return _formed(model.explain(None, view, **options), form)
    with read(model, given, most=MOST_LOOKED_AT) as source:
        if form == "trace":
            about = {name: options[name] for name in ("output", "hypothesis") if name in options}
            return subject(model.bundle, source, **about).trace().to_bytes()
        return _formed(model.explain(source, view, **options), form)


def _formed(view: View, form: str) -> bytes:
    if form == "png":
        return view.to_png()
    if form == "json":
        drawn = [{"title": canvas.title, "svg": canvas.to_svg()} for canvas in view.canvases]
        text = f'{view.to_json()[:-1]},"pictures":{json.dumps(drawn, ensure_ascii=False)}}}'
    else:
        text = view.to_html() if form == "html" else view.to_svg()
    return text.encode("utf-8", "backslashreplace")


def _refuse_endless(pattern: str) -> None:
    """Matching cannot be interrupted, so what could take for ever is not begun: a repeated group, or many choices."""
    choices = re.findall(r"[*+?{|]", pattern)
    if re.search(r"\)[*+?{]", pattern) or len(choices) > 4 or len([c for c in choices if c in "*+{"]) > 1:
        raise UsageError(
            f"the pattern {pattern!r} could take for ever",
            hint="use at most one of * + {}, and at most four with ? and |, and repeat no group; "
            "`seqlab explain` on your own machine takes any pattern.",
        )
