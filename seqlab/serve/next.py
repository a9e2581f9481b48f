"""One step of a decoder by hand: what could come next, before and after temperature, top-k and top-p."""

from collections.abc import Sequence
from typing import Any

import torch

from seqlab.bundle import Bundle
from seqlab.decode.generate import Sample
from seqlab.errors import UsageError
from seqlab.tasks import task_of
from seqlab.tasks.examples import room


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
    opening = task_of(bundle.recipe).opening(bundle, given, bundle.recipe.decode)
    tokenizer = bundle.codec.target_tokenizer
    limits = opening.limits
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
    tokens = [*opening.tokens, *written]
    if len(tokens) > room(bundle.recipe):
        raise UsageError(
            f"{len(tokens)} tokens, and this model learned {room(bundle.recipe)} positions",
            hint="write less.",
        )
    decoder = bundle.model.decoder
    context, state = decoder.start(opening.memory)
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
