"""Models of pictures from inside: where a captioner looked for each word, and through which windows a reader saw."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from seqlab.bundle import Bundle
from seqlab.codecs.picture import PictureSource
from seqlab.errors import UsageError
from seqlab.explain import terminal
from seqlab.explain.canvas import Canvas, Grid, Group, Item, Rect, Text
from seqlab.explain.palette import CATEGORICAL, SEQUENTIAL, levels
from seqlab.explain.view import View
from seqlab.tasks import predict
from seqlab.tasks import subject as subject_of
from seqlab.tasks.caption import word_maps
from seqlab.tasks.examples import encode_inputs

GREYS = ("#000000", "#ffffff")
SIDE, GAP, ACROSS = 128.0, 16.0, 5  # pixels of a panel and between two, and how many stand side by side


def maps_view(bundle: Bundle, given: Any, *, output: str | None = None) -> View:
    """For each word of a caption, where in the picture the model looked when it wrote that (S9)."""
    source = bundle.codec.source
    if not isinstance(source, PictureSource) or "target" not in bundle.codec.tokenizers:
        raise UsageError(f"a '{bundle.recipe.task}' model says nothing of a picture", hint="give a captioner.")
    caption = predict(bundle, [given])[0].output if output is None else output
    looks = [(word, weights.double().numpy()) for word, weights in word_maps(bundle, [given], [caption])[0]]
    light = _light(bundle, given)
    below, opacity = ([], 1.0) if light is None else ([_grey(light)], 0.6)
    panels = []
    for word, weights in looks:
        cells = levels(weights / max(float(weights.max()), 1e-12), 0.0, 1.0)
        panels.append((word, [*below, Grid(0.0, 0.0, SIDE, SIDE, cells, SEQUENTIAL, opacity=opacity)]))

    def letters(width: int, colour: bool) -> str:
        parts = []
        for word, weights in looks:
            tall, wide = weights.shape
            grid = terminal.heat_map(weights, [""] * tall, [""] * wide, width=width, colour=colour)
            parts.append(f"{word} ({divmod(int(weights.argmax()), wide)})\n{grid}")
        return "\n\n".join(parts)

    return View(
        "maps",
        f"{source.show(given)}: {caption}",
        {"caption": caption, "words": [word for word, _ in looks], "maps": [weights for _, weights in looks]},
        (_panels(panels, "the darker, the more it looked there"),),
        letters,
    )


def glimpses_view(bundle: Bundle, given: Any) -> View:
    """The windows through which a model read a picture, one after the other (S22, E64)."""
    subject = subject_of(bundle, given)
    trace = subject.trace()
    light = _light(bundle, given)
    if "glimpse.window" not in trace or light is None:
        raise UsageError("this model reads through no windows", hint="give one of recipe glimpse-digits.")
    windows, across = trace["glimpse.window"][0].double().tolist(), trace["glimpse.patch"].shape[-2] - 1
    unit = SIDE / max(light.shape)
    panels, lines = [], []
    for step, (x, y, stride, *_) in enumerate(windows, start=1):
        side = stride * across
        left, top = (x - side / 2 + 0.5) * unit, (y - side / 2 + 0.5) * unit
        window = Rect(left, top, side * unit, side * unit, stroke=CATEGORICAL[1])
        panels.append((f"glimpse {step}", [_grey(light), window]))
        lines.append(f"glimpse {step}: centre ({x:.1f}, {y:.1f}), {side:.1f} pixels wide")
    names = ("x", "y", "stride", "variance", "intensity")
    return View(
        "glimpses",
        f"{bundle.codec.source.show(given)}: {subject.answered[0]}",
        {"answer": subject.answered[0], "windows": [dict(zip(names, window, strict=True)) for window in windows]},
        (_panels(panels, "each window"),),
        lambda width, colour: "\n".join(lines),
    )


def _light(bundle: Bundle, given: Any) -> Float[np.ndarray, "H W"] | None:
    """How bright each pixel is, where the model reads pixels row by row."""
    image = bundle.recipe.image
    if image is None or image.patch is not None:
        return None
    row = np.asarray(encode_inputs(bundle, [given])[0], dtype=np.float64)
    return row.reshape(image.height, image.width, image.channels).mean(-1) / 255


def _grey(light: Float[np.ndarray, "H W"]) -> Grid:
    tall, wide = (SIDE * n / max(light.shape) for n in light.shape)
    return Grid(0.0, 0.0, wide, tall, levels(light, 0.0, 1.0), GREYS)


def _panels(panels: Sequence[tuple[str, Sequence[Item]]], title: str) -> Canvas:
    """Named panels side by side, in as many rows as it takes."""
    items, pitch = list[Item](), SIDE + GAP + 22
    for place, (name, inside) in enumerate(panels):
        row, column = divmod(place, ACROSS)
        x, y = 20 + column * (SIDE + GAP), 12 + row * pitch
        items += [Group(x, y, tuple(inside)), Text(x, y + SIDE + 16, name, 12)]
    across, rows = min(len(panels), ACROSS), math.ceil(len(panels) / ACROSS)
    return Canvas(40 + across * (SIDE + GAP), 12 + rows * pitch, tuple(items), title)
