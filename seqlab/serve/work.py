"""What requests ask of a model, as plain functions that run in the one thread that computes."""

import json
import re
from collections.abc import Sequence
from itertools import islice
from typing import Any

import torch

from seqlab.bundle import Bundle
from seqlab.decode.generate import Sample
from seqlab.errors import SeqlabError, UsageError
from seqlab.explain.view import View
from seqlab.model import Model, decode_settings
from seqlab.options import MAX_EXPLAINED
from seqlab.recipe import DecodeConfig
from seqlab.serve.bodies import Decoding
from seqlab.serve.limits import MOST_LETTERS
from seqlab.tasks import predict, subject, task_of
from seqlab.tasks.examples import max_positions

TYPES = {
    "json": "application/json",
    "html": "text/html; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "trace": "application/octet-stream",
}


def settings_of(model: Model, decoding: Decoding) -> DecodeConfig:
    """The recipe's [decode] with what a request asks for instead."""
    changes = decoding.model_dump(exclude_none=True)
    n_best = changes.pop("n_best", None)
    if not {"beam", "method"} & changes.keys():
        changes["beam"] = n_best
    return decode_settings(model.recipe.decode, changes)


def parse(model: Model, given: Any, *, most: int = MOST_LETTERS) -> Any:
    """An input as the model takes it. A text is never the name of a file."""
    return model.bundle.codec.source.parse(given, most=most)


def predict_together(
    model: Model, decode: DecodeConfig, seed: int, prefix: str, requests: Sequence[list[Any]]
) -> Sequence[list[dict[str, Any]] | SeqlabError]:
    """The answers to several requests, decoded in one go; where that fails, each alone, so that each has its own."""
    try:
        rows = [row for request in requests for row in range(len(request))]
        inputs = [parse(model, value) for request in requests for value in request]
        results = predict(model.bundle, inputs, decode=decode, seed=seed, prefix=prefix, rows=rows)
    except SeqlabError as error:
        if len(requests) == 1:
            return [error]
        return [predict_together(model, decode, seed, prefix, [request])[0] for request in requests]
    answers = iter(
        [{"input": each.input, "output": each.output, **each.details} for each in results]
    )
    return [list(islice(answers, len(request))) for request in requests]


def explained(model: Model, view: str, given: Any, options: dict[str, Any], form: str) -> bytes:
    """A view in the form that was asked for."""
    if "pattern" in options:
        _refuse_endless(options["pattern"])
    source = None if given is None else parse(model, given, most=MAX_EXPLAINED)
    if form != "trace":
        return _formed(model.explain(source, view, **options), form)
    if given is None:
        raise UsageError("a trace is of an input", hint="give one.")
    about = {name: options[name] for name in ("output", "hypothesis") if name in options}
    return subject(model.bundle, source, **about).trace().to_bytes()


def _formed(view: View, form: str) -> bytes:
    if form == "png":
        return view.to_png()
    if form == "json":
        pictures = [{"title": canvas.title, "svg": canvas.to_svg()} for canvas in view.canvases]
        text = f'{view.to_json()[:-1]},"pictures":{json.dumps(pictures, ensure_ascii=False)}}}'
    else:
        text = view.to_html() if form == "html" else view.to_svg()
    return text.encode("utf-8", "backslashreplace")


def _refuse_endless(pattern: str) -> None:
    """Matching cannot be interrupted, so what could take for ever is not begun: a repeated group, or many choices."""
    choices = re.findall(r"[*+?{|]", pattern)
    if (
        re.search(r"\)[*+?{]", pattern)
        or len(choices) > 4
        or len([c for c in choices if c in "*+{"]) > 1
    ):
        raise UsageError(
            f"the pattern {pattern!r} could take for ever",
            hint="use at most one of * + {}, and at most four with ? and |, and repeat no group; "
            "`seqlab explain` on your own machine takes any pattern.",
        )


@torch.inference_mode()
def next_tokens(
    bundle: Bundle,
    given: Any,
    written: Sequence[int],
    *,
    temperature: float,
    top_k: int,
    top_p: float,
    most: int,
) -> dict[str, Any]:
    """The likeliest tokens after what is written: p = softmax(logits), and E59's p where a sampler would draw."""
    if bundle.codec.reads and isinstance(given, str) and not given.strip():
        raise UsageError("there is nothing in the input", hint="give a text that is not empty.")
    start = task_of(bundle.recipe).decoder_start(bundle, given, bundle.recipe.decode)
    tokenizer = bundle.codec.target_tokenizer
    limits = start.limits
    if any(not 0 <= token < len(tokenizer) for token in written):
        raise UsageError(
            "'written' holds what is no token",
            hint=f"tokens are numbers from 0 to {len(tokenizer) - 1}.",
        )
    text = {
        "written": [
            {"id": i, "piece": p} for i, p in zip(written, tokenizer.pieces(written), strict=True)
        ],
        "text": tokenizer.decode([token for token in written if token != limits.end]),
    }
    if limits.end in written:
        return {**text, "ended": True, "candidates": [], "entropy": 0.0}
    tokens = [*start.tokens, *written]
    if len(tokens) > max_positions(bundle.recipe):
        raise UsageError(
            f"{len(tokens)} tokens, and this model learned {max_positions(bundle.recipe)} positions",
            hint="write less.",
        )
    decoder = bundle.model.decoder
    context, state = decoder.start(start.memory)
    logits = decoder.read(torch.tensor([tokens]), context, state)[0][
        :, -1
    ]  # after its prompt and all that was written
    adjusted = Sample(temperature, top_k or None, top_p).probabilities(logits, limits.never)[0]
    p = logits.double().softmax(-1)[0]
    best = p.topk(min(most, len(p))).indices.tolist()
    candidates = [
        {"id": i, "piece": piece, "probability": float(p[i]), "adjusted": float(adjusted[i])}
        for i, piece in zip(best, tokenizer.pieces(best), strict=True)
    ]
    return {
        **text,
        "ended": False,
        "candidates": candidates,
        "entropy": float(torch.special.entr(p).sum()),
    }
