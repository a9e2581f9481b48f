"""The view `surprisal`: −log2 of each token's probability, in bits, as bars over the tokens."""

import math
from typing import Any

import numpy as np
import torch

from seqlab.codecs.labels import answer_names
from seqlab.equations.decoding import perplexity
from seqlab.errors import UsageError
from seqlab.explain.figure_text import number, visible
from seqlab.explain.token_figures import TokenBars
from seqlab.explain.view import View
from seqlab.subject import Subject

MAX_NOTABLE = 5  # tokens that are listed as the most surprising


def surprisal_view(subject: Subject) -> View:
    """Show the surprisal of each token of a text, a translation or the labels, and what the model expected instead."""
    count = len(subject.answers)
    if subject.reads is None:
        count -= 1  # the last answer of a language model is its own continuation
    if not count:
        raise UsageError(
            "a single token has no context to be predicted from", hint="give a longer text."
        )
    with torch.inference_mode():
        log_p = subject.logits()[:count].double().log_softmax(-1) / math.log(2)
    bits = log_p[torch.arange(count), list(subject.answers[:count])].neg().numpy()
    total = float(bits.sum())
    mean = float(bits.mean())
    tokens = _names(subject)[:count]
    ranked = np.argsort(-bits, kind="stable")[:MAX_NOTABLE].tolist()
    notable = [place for place in ranked if bits[place] >= mean]
    likeliest = log_p.max(-1)
    names = answer_names(subject.bundle.codec)
    surprises = [
        {
            "position": place + 1,
            "token": tokens[place],
            "bits": float(bits[place]),
            "expected": names[int(likeliest.indices[place])],
            "expected_bits": -float(likeliest.values[place]),
        }
        for place in notable
    ]
    guesses = perplexity(mean * math.log(2))
    length = f"{count} token{'s' * (count > 1)}"
    summary = f"{number(total)} bits in {length}: {number(mean)} bits per token, perplexity {number(guesses)}"
    bars = TokenBars(tokens, bits, notable, "bits", summary)
    data = {"source": subject.source, "tokens": tokens, "bits": bits, "total": total, "mean": mean}
    data |= {"perplexity": guesses, "most_surprising": surprises}
    title = f"how surprising each token is to {subject.bundle.recipe.name}"
    lines = ["", summary, "most surprising:", *map(_sentence, surprises)]
    return View("surprisal", title, data, [bars, *lines])


def _names(subject: Subject) -> list[str]:
    """Return the names of the answers; a label is written together with its token, as token/label."""
    if subject.writes or len(subject.source) != len(subject.answer_names):
        return list(subject.answer_names)
    pairs = zip(subject.source, subject.answer_names, strict=True)
    return [answer if answer == token else f"{token}/{answer}" for token, answer in pairs]


def _sentence(surprise: dict[str, Any]) -> str:
    bits = surprise["bits"]
    better = surprise["expected_bits"]
    words = f"{number(bits):>8} bits  {visible(surprise['token'])!r} at {surprise['position']}, p = {2**-bits:.2g}"
    if better == bits:
        return f"{words}, the likeliest"
    return f"{words}; expected {visible(surprise['expected'])!r}, p = {2**-better:.2g}"
