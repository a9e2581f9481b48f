"""Models of pictures from inside: where a captioner looked for each word, and through which windows a reader saw."""

from typing import Any

import numpy as np

from seqlab.bundle import Bundle
from seqlab.codecs.picture import PictureSource
from seqlab.errors import UsageError
from seqlab.explain.canvas import Canvas, Grid, Matrix, Rect
from seqlab.explain.charts import PANEL, HeatMap, Panel, panels
from seqlab.explain.palette import CATEGORICAL, SEQUENTIAL, levels
from seqlab.explain.view import Letters, View
from seqlab.subject import Subject
from seqlab.tasks import predict
from seqlab.tasks.caption import word_maps
from seqlab.tasks.examples import encode_inputs

GREYS = ("#000000", "#ffffff")
ACROSS = 5  # small pictures side by side


def maps_view(bundle: Bundle, given: Any, *, output: str | None = None) -> View:
    """For each word of a caption, where in the picture the model looked when it wrote that (S9)."""
    source = bundle.codec.source
    if not isinstance(source, PictureSource) or "target" not in bundle.codec.tokenizers:
        raise UsageError(
            f"a '{bundle.recipe.task}' model says nothing of a picture", hint="give a captioner."
        )
    caption = predict(bundle, [given])[0].output if output is None else output
    words = word_maps(bundle, [given], [caption])[0]
    light = _light(bundle, given)
    below, opacity = ((), 1.0) if light is None else ((_grey(light),), 0.6)
    maps = [each.double().numpy() for _, each in words]
    row = list[Panel]()
    parts: list[str | Letters] = []
    for (word, _), weights in zip(words, maps, strict=True):
        cells = levels(weights / max(float(weights.max()), 1e-12), 0.0, 1.0)
        grid = Grid(0.0, 0.0, PANEL, PANEL, cells, SEQUENTIAL, opacity=opacity)
        row.append((word, (*below, grid)))
        tall, wide = weights.shape
        place = divmod(int(weights.argmax()), wide)
        parts += ["", f"{word} ({place})", HeatMap(weights, [""] * tall, [""] * wide).letters]
    return View(
        "maps",
        f"{source.show(given)}: {caption}",
        {"caption": caption, "words": [word for word, _ in words], "maps": maps},
        [_wrapped(row, "the darker, the more it looked there"), *parts[1:]],
    )


def glimpses_view(subject: Subject) -> View:
    """The windows through which a model read a picture, one after the other (S22, E64)."""
    bundle = subject.bundle
    trace = subject.trace()
    light = _light(bundle, subject.input)
    if "glimpse.window" not in trace or light is None:
        raise UsageError(
            "this model reads through no windows", hint="give one of recipe glimpse-digits."
        )
    windows = trace["glimpse.window"][0].double().tolist()
    across = trace["glimpse.patch"].shape[-2] - 1
    unit = PANEL / max(light.shape)
    row = list[Panel]()
    lines = []
    for step, (x, y, stride, *_) in enumerate(windows, start=1):
        side = stride * across
        left = (x - side / 2 + 0.5) * unit
        top = (y - side / 2 + 0.5) * unit
        window = Rect(left, top, side * unit, side * unit, stroke=CATEGORICAL[1])
        row.append((f"glimpse {step}", (_grey(light), window)))
        lines.append(f"glimpse {step}: centre ({x:.1f}, {y:.1f}), {side:.1f} pixels wide")
    names = ("x", "y", "stride", "variance", "intensity")
    answer = subject.answer_names[0]
    title = f"{bundle.codec.source.show(subject.input)}: {answer}"
    named = [dict(zip(names, window, strict=True)) for window in windows]
    data = {"answer": answer, "windows": named}
    return View("glimpses", title, data, [_wrapped(row, "each window"), *lines])


def _light(bundle: Bundle, given: Any) -> Matrix | None:
    """How bright each pixel is, where the model reads pixels row by row."""
    image = bundle.recipe.image
    if image is None or image.patch is not None:
        return None
    row = np.asarray(encode_inputs(bundle, [given])[0], dtype=np.float64)
    return row.reshape(image.height, image.width, image.channels).mean(-1) / 255


def _grey(light: Matrix) -> Grid:
    tall, wide = (PANEL * n / max(light.shape) for n in light.shape)
    return Grid(0.0, 0.0, wide, tall, levels(light, 0.0, 1.0), GREYS)


def _wrapped(row: list[Panel], title: str) -> Canvas:
    """Small pictures in as many rows as it takes."""
    return panels([("", row[k : k + ACROSS]) for k in range(0, len(row), ACROSS)], title=title)
