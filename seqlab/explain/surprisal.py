"""How surprising each token was to the model: −log2 of its probability, in bits, as bars over the tokens."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from seqlab.bundle import Bundle
from seqlab.codecs.labels import answer_names
from seqlab.equations.decoding import perplexity
from seqlab.errors import UsageError
from seqlab.explain.canvas import Canvas, Item, Rect, Text
from seqlab.explain.labels import Pixels, cut, display_width, number, text_width, visible
from seqlab.explain.palette import CATEGORICAL
from seqlab.explain.terminal import painted
from seqlab.explain.view import View
from seqlab.subject import Subject
from seqlab.tasks import subject as subject_of

NOTABLE = 5  # tokens at most that are named in words
LONGEST = 18  # columns of a token; what is longer is cut
WIDTH, TALLEST = 720.0, 64.0  # pixels of the picture, and of its highest bar
LINES, EIGHTHS = 4, " ▁▂▃▄▅▆▇█"  # of the highest bar in a terminal, and the parts of one line


def surprisal_view(bundle: Bundle, given: Any, *, output: str | None = None) -> View:
    """How surprising each token of a text, a translation or the labels is, in bits; and what was expected instead."""
    subject = subject_of(bundle, given, output=output)
    count = len(subject.answers) - (subject.reads is None)  # a language model's last answer is its own guess
    if not count:
        raise UsageError("one token alone is not predicted from anything", hint="give a longer text.")
    with torch.inference_mode():
        log_p = subject.logits()[:count].double().log_softmax(-1) / math.log(2)
    bits = log_p[torch.arange(count), list(subject.answers[:count])].neg().numpy()
    total, mean = float(bits.sum()), float(bits.mean())
    tokens = _names(subject)[:count]
    ranked = np.argsort(-bits, kind="stable")[:NOTABLE].tolist()
    notable = [place for place in ranked if bits[place] >= mean]
    likeliest, names = log_p.max(-1), answer_names(bundle.codec)
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
    summary = f"{number(total)} bits in {length}: {number(mean)} bits a token, a perplexity of {number(guesses)}"
    lines = ["", summary, "most surprising:", *map(_sentence, surprises)]
    data = {"source": subject.source, "tokens": tokens, "bits": bits, "total": total, "mean": mean}
    return View(
        "surprisal",
        f"how surprising each token is to {bundle.recipe.name}",
        data | {"perplexity": guesses, "most_surprising": surprises},
        (_picture(tokens, bits, notable, summary),),
        lambda width, colour: "\n".join([_letters(tokens, bits, notable, width, colour=colour), *lines]),
    )


def _names(subject: Subject) -> list[str]:
    """The answers; a label together with the token it belongs to."""
    if subject.writes or len(subject.source) != len(subject.answered):
        return list(subject.answered)
    pairs = zip(subject.source, subject.answered, strict=True)
    return [answer if answer == token else f"{token}/{answer}" for token, answer in pairs]


def _sentence(surprise: dict[str, Any]) -> str:
    bits, better = surprise["bits"], surprise["expected_bits"]
    words = f"{number(bits):>8} bits  {visible(surprise['token'])!r} at {surprise['position']}, p = {2**-bits:.2g}"
    if better == bits:
        return f"{words}, the likeliest"
    return f"{words}; expected {visible(surprise['expected'])!r}, p = {2**-better:.2g}"


def _shares(bits: Float[np.ndarray, " N"]) -> list[float]:
    """Heights from 0 to 1; what the model thought impossible is as high as the highest."""
    highest = max(1.0, float(bits.max(initial=0.0, where=np.isfinite(bits))))
    return np.minimum(bits / highest, 1.0).tolist()


def _wrapped(widths: Sequence[Pixels], room: Pixels) -> list[list[int]]:
    """The places of the tokens, in as many rows as it takes."""
    rows: list[list[int]] = [[]]
    used: Pixels = 0
    for place, width in enumerate(widths):
        if rows[-1] and used + width > room:
            rows.append([])
            used = 0
        rows[-1].append(place)
        used += width
    return rows


def _picture(tokens: Sequence[str], bits: Float[np.ndarray, " N"], notable: Sequence[int], title: str) -> Canvas:
    """Running text with a bar over each token; the most surprising ones have another colour and their number."""
    names = [cut(token, LONGEST) for token in tokens]
    widths = [text_width(name, 13, monospace=True) + 6 for name in names]
    heights = [max(1.0, TALLEST * share) for share in _shares(bits)]
    items, base = list[Item](), 0.0
    for row in _wrapped(widths, WIDTH - 48):
        x, base = 24.0, base + 16 + max(heights[place] for place in row)
        for place in row:
            strong, hint = place in notable, f"{visible(tokens[place])}: {number(float(bits[place]))} bits"
            middle, top = x + widths[place] / 2 - 1, base - heights[place]
            items.append(Rect(x, top, widths[place] - 2, heights[place], CATEGORICAL[strong], hint=hint))
            items.append(Text(middle, base + 17, names[place], 13, anchor="middle", monospace=True, hint=hint))
            if strong:
                items.append(Text(middle, base + 30, f"{bits[place]:.2g}", 8, CATEGORICAL[1], "middle"))
            x += widths[place]
        base += 36
    return Canvas(WIDTH, base + 8, tuple(items), title)


def _letters(
    tokens: Sequence[str], bits: Float[np.ndarray, " N"], notable: Sequence[int], width: int, *, colour: bool
) -> str:
    """The same in letters, each bar in eighths of a line."""
    names = [cut(token, min(LONGEST, width)) for token in tokens]
    gap = " " * any(len(name) > 1 for name in names)
    heights = [math.ceil(8 * LINES * share) for share in _shares(bits)]
    lines: list[str] = []
    for row in _wrapped([display_width(name + gap) for name in names], width + len(gap)):
        for floor in range(8 * (LINES - 1), -1, -8):
            parts = {place: EIGHTHS[min(max(heights[place] - floor, 0), 8)] for place in row}
            if set(parts.values()) == {" "}:
                continue  # no bar is that high
            bars = [part * display_width(names[place]) for place, part in parts.items()]
            if colour:
                bars = [painted(bar, CATEGORICAL[place in notable]) for place, bar in zip(row, bars, strict=True)]
            lines.append(gap.join(bars).rstrip())
        lines.append(gap.join(names[place] for place in row))
    return "\n".join(lines)
