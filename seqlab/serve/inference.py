"""The computations that requests need, as plain functions; they run in the thread of the batcher."""

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
from seqlab.serve.limits import MOST_LETTERS
from seqlab.serve.schemas import Decoding
from seqlab.tasks import predict, subject, task_of
from seqlab.tasks.examples import max_positions

TYPES = {
    "json": "application/json",
    "html": "text/html; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "trace": "application/octet-stream",
}


def decode_config(model: Model, decoding: Decoding) -> DecodeConfig:
    """Return [decode] of the model's recipe, changed by the options of a request."""
    changes = decoding.model_dump(exclude_none=True)
    n_best = changes.pop("n_best", None)
    if not {"beam", "method"} & changes.keys():
        changes["beam"] = n_best
    return decode_settings(model.recipe.decode, changes)


def parse(model: Model, value: Any, *, most: int = MOST_LETTERS) -> Any:
    """Return an input from JSON as the model takes it; a text is never read as a file name."""
    return model.bundle.codec.source.parse(value, most=most)


def predict_batch(
    model: Model, decode: DecodeConfig, seed: int, prefix: str, requests: Sequence[list[Any]]
) -> Sequence[list[dict[str, Any]] | SeqlabError]:
    """Return the answers to several requests, decoded in one batch.

    If that fails, each request is computed alone, so that only the one at fault gets the error.
    """
    try:
        rows = [row for request in requests for row in range(len(request))]
        inputs = [parse(model, value) for request in requests for value in request]
        results = predict(model.bundle, inputs, decode=decode, seed=seed, prefix=prefix, rows=rows)
    except SeqlabError as error:
        if len(requests) == 1:
            return [error]
        return [predict_batch(model, decode, seed, prefix, [request])[0] for request in requests]
    answers = iter([{"input": r.input, "output": r.output, **r.details} for r in results])
    return [list(islice(answers, len(request))) for request in requests]


def explain(model: Model, view: str, value: Any, options: dict[str, Any], form: str) -> bytes:
    """Return a view, or the trace it is made from, as the bytes of a file."""
    if "pattern" in options:
        _check_pattern(options["pattern"])
    source = None if value is None else parse(model, value, most=MAX_EXPLAINED)
    if form != "trace":
        return _to_bytes(model.explain(source, view, **options), form)
    if value is None:
        raise UsageError("a trace needs an input", hint="send it as 'input'.")
    about = {name: options[name] for name in ("output", "hypothesis") if name in options}
    return subject(model.bundle, source, **about).trace().to_bytes()


def _to_bytes(view: View, form: str) -> bytes:
    if form == "png":
        return view.to_png()
    if form == "json":
        pictures = [{"title": canvas.title, "svg": canvas.to_svg()} for canvas in view.canvases]
        text = f'{view.to_json()[:-1]},"pictures":{json.dumps(pictures, ensure_ascii=False)}}}'
    else:
        text = view.to_html() if form == "html" else view.to_svg()
    return text.encode("utf-8", "backslashreplace")


def _check_pattern(pattern: str) -> None:
    """Raise a UsageError for a pattern that could take exponential time; matching cannot be interrupted."""
    operators = re.findall(r"[*+?{|]", pattern)
    num_repeats = sum(operator in "*+{" for operator in operators)
    repeats_group = re.search(r"\)[*+?{]", pattern)
    if repeats_group or num_repeats > 1 or len(operators) > 4:
        raise UsageError(
            f"the pattern {pattern!r} could take exponential time",
            hint="use at most one of * + {}, at most four of these, ? and | together, and repeat no group; "
            "`seqlab explain` on the command line takes any pattern.",
        )


@torch.inference_mode()
def next_tokens(
    bundle: Bundle,
    source: Any,
    written: Sequence[int],
    *,
    temperature: float,
    top_k: int,
    top_p: float,
    most: int,
) -> dict[str, Any]:
    """Return the most probable next tokens: softmax(logits), and the probabilities that sampling would use (E59)."""
    if bundle.codec.reads and isinstance(source, str) and not source.strip():
        raise UsageError("the input is empty", hint="send a text that is not empty.")
    start = task_of(bundle.recipe).decoder_start(bundle, source, bundle.recipe.decode)
    tokenizer = bundle.codec.target_tokenizer
    limits = start.limits
    if any(not 0 <= token < len(tokenizer) for token in written):
        raise UsageError(
            "a number in 'written' is no token",
            hint=f"tokens are 0 to {len(tokenizer) - 1}.",
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
            f"{len(tokens)} tokens are too many: this model has {max_positions(bundle.recipe)} positions",
            hint="send fewer tokens in 'written'.",
        )
    decoder = bundle.model.decoder
    context, state = decoder.start(start.memory)
    logits = decoder.read(torch.tensor([tokens]), context, state)[0][:, -1]
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
