"""Models of pictures from inside: where a captioner looked for each word, and through which windows a reader saw."""

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
from seqlab.tasks import predict, subject
from seqlab.tasks.caption import word_maps
from seqlab.tasks.examples import encode_inputs

GREYS = ("#000000", "#ffffff")
SIDE, GAP, ACROSS = 128.0, 16.0, 5  # pixels of a panel and between two, and how many stand side by side


def maps_view(bundle: Bundle, given: Any, *, output: str | None = None) -> View:
    """For each word of a caption, where in the picture the model looked when it wrote that (S9)."""
    source = bundle.codec.source
    if not isinstance(source, PictureSource) or "target" not in bundle.codec.tokenizers:
        raise UsageError(f"a '{bundle.recipe.task}' model says nothing of a picture", hint="give a captioner.")
    said = predict(bundle, [given])[0].output if output is None else output
    found = word_maps(bundle, [given], [said])[0]
    words, maps = [word for word, _ in found], [weights.double().numpy() for _, weights in found]
    light = _light(bundle, given)
    panels = [
        (word, [] if light is None else [_grey(light)], weights / max(float(weights.max()), 1e-12))
        for word, weights in zip(words, maps, strict=True)
    ]
    drawn = [
        (word, [*below, Grid(0.0, 0.0, SIDE, SIDE, levels(w, 0.0, 1.0), SEQUENTIAL, opacity=0.6 if below else 1.0)])
        for word, below, w in panels
    ]
    rows = [f"{word} ({divmod(int(w.argmax()), w.shape[1])})" for word, w in zip(words, maps, strict=True)]
    return View(
        "maps",
        f"{source.show(given)}: {said}",
        {"caption": said, "words": words, "maps": maps},
        (_panels(drawn, "the darker, the more it looked there"),),
        lambda width, colour: "\n\n".join(
            f"{row}\n" + terminal.heat_map(w, [""] * len(w), [""] * w.shape[1], width=width, colour=colour)
            for row, w in zip(rows, maps, strict=True)
        ),
    )


def glimpses_view(bundle: Bundle, given: Any) -> View:
    """The windows through which a model read a picture, one after the other (S22, E64)."""
    looked = subject(bundle, given)
    trace = looked.trace()
    light = _light(bundle, given)
    if "glimpse.window" not in trace or light is None:
        raise UsageError("this model reads through no windows", hint="give one of recipe glimpse-digits.")
    windows, n = trace["glimpse.window"][0].double().numpy(), trace["glimpse.patch"].shape[-2]
    unit = SIDE / max(light.shape)
    drawn = []
    for step, (x, y, stride, *_) in enumerate(windows.tolist(), start=1):
        reach = stride * (n - 1) / 2
        corner, side = ((x - reach + 0.5) * unit, (y - reach + 0.5) * unit), 2 * reach * unit
        window = Rect(*corner, side, side, stroke=CATEGORICAL[1])
        drawn.append((f"glimpse {step}", [_grey(light), window]))
    names = ("x", "y", "stride", "variance", "intensity")
    return View(
        "glimpses",
        f"{bundle.codec.source.show(given)}: {looked.answered[0]}",
        {"answer": looked.answered[0], "windows": [dict(zip(names, w, strict=True)) for w in windows.tolist()]},
        (_panels(drawn, "each window"),),
        lambda width, colour: "\n".join(
            f"glimpse {step}: centre ({w[0]:.1f}, {w[1]:.1f}), {w[2] * (n - 1):.1f} pixels wide"
            for step, w in enumerate(windows.tolist(), start=1)
        ),
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


def _panels(drawn: Sequence[tuple[str, Sequence[Item]]], title: str) -> Canvas:
    """Named panels side by side, in as many rows as it takes."""
    items, pitch = list[Item](), SIDE + GAP + 22
    for place, (name, inside) in enumerate(drawn):
        row, column = divmod(place, ACROSS)
        x, y = 20 + column * (SIDE + GAP), 12 + row * pitch
        items += [Group(x, y, tuple(inside)), Text(x, y + SIDE + 16, name, 12)]
    across, rows = min(len(drawn), ACROSS), -(-len(drawn) // ACROSS)
    return Canvas(40 + across * (SIDE + GAP), 12 + rows * pitch, tuple(items), title)
