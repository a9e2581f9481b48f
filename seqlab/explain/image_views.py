"""The views `maps`, the attention of a captioner for each word, and `glimpses`, the windows of a glimpse model."""

from typing import Any

import numpy as np

from seqlab.bundle import Bundle
from seqlab.codecs.picture import PictureSource
from seqlab.errors import UsageError
from seqlab.explain.canvas import Canvas, Grid, Matrix, Rect
from seqlab.explain.charts import PANEL, HeatMap, Panel, panels
from seqlab.explain.palette import CATEGORICAL, SEQUENTIAL, levels
from seqlab.explain.view import TextRenderer, View
from seqlab.subject import Subject
from seqlab.tasks import predict
from seqlab.tasks.caption import word_maps
from seqlab.tasks.examples import encode_inputs

GREYS = ("#000000", "#ffffff")
PANELS_PER_ROW = 5


def maps_view(bundle: Bundle, given: Any, *, output: str | None = None) -> View:
    """Show the attention over the picture for each word of a caption (S9)."""
    source = bundle.codec.source
    if not isinstance(source, PictureSource) or "target" not in bundle.codec.tokenizers:
        raise UsageError(
            f"the view 'maps' needs a captioner; this is a '{bundle.recipe.task}' model",
            hint="use the view 'lens'.",
        )
    caption = predict(bundle, [given])[0].output if output is None else output
    words = word_maps(bundle, [given], [caption])[0]
    pixels = _brightness(bundle, given)
    picture = () if pixels is None else (_grey(pixels),)
    opacity = 1.0 if pixels is None else 0.6
    maps = [each.double().numpy() for _, each in words]
    row = list[Panel]()
    parts: list[str | TextRenderer] = []
    for (word, _), weights in zip(words, maps, strict=True):
        cells = levels(weights / max(float(weights.max()), 1e-12), 0.0, 1.0)
        grid = Grid(0.0, 0.0, PANEL, PANEL, cells, SEQUENTIAL, opacity=opacity)
        row.append((word, (*picture, grid)))
        height, width = weights.shape
        largest = divmod(int(weights.argmax()), width)
        heat = HeatMap(weights, [""] * height, [""] * width)
        parts += ["", f"{word}: largest weight at row and column {largest}", heat.as_text]
    return View(
        "maps",
        f"{source.show(given)}: {caption}",
        {"caption": caption, "words": [word for word, _ in words], "maps": maps},
        [_in_rows(row, "attention weights for each word; darker is larger"), *parts[1:]],
    )


def glimpses_view(subject: Subject) -> View:
    """Show the windows through which a model reads a picture, in order (S22, E64)."""
    bundle = subject.bundle
    trace = subject.trace()
    pixels = _brightness(bundle, subject.input)
    if "glimpse.window" not in trace or pixels is None:
        raise UsageError(
            "the view 'glimpses' needs a model that reads pictures in glimpses",
            hint="use a model of the recipe glimpse-digits.",
        )
    windows = trace["glimpse.window"][0].double().tolist()
    num_strides = trace["glimpse.patch"].shape[-2] - 1
    unit = PANEL / max(pixels.shape)
    row = list[Panel]()
    lines = []
    for step, (x, y, stride, *_) in enumerate(windows, start=1):
        side = stride * num_strides
        left = (x - side / 2 + 0.5) * unit
        top = (y - side / 2 + 0.5) * unit
        window = Rect(left, top, side * unit, side * unit, stroke=CATEGORICAL[1])
        row.append((f"glimpse {step}", (_grey(pixels), window)))
        lines.append(f"glimpse {step}: centre ({x:.1f}, {y:.1f}), {side:.1f} pixels wide")
    names = ("x", "y", "stride", "variance", "intensity")
    answer = subject.answer_names[0]
    title = f"{bundle.codec.source.show(subject.input)}: {answer}"
    named = [dict(zip(names, window, strict=True)) for window in windows]
    data = {"answer": answer, "windows": named}
    return View("glimpses", title, data, [_in_rows(row, "the window of each glimpse"), *lines])


def _brightness(bundle: Bundle, given: Any) -> Matrix | None:
    """Return the brightness of each pixel, or None if the model does not read pixels row by row."""
    image = bundle.recipe.image
    if image is None or image.patch is not None:
        return None
    row = np.asarray(encode_inputs(bundle, [given])[0], dtype=np.float64)
    return row.reshape(image.height, image.width, image.channels).mean(-1) / 255


def _grey(pixels: Matrix) -> Grid:
    height, width = (PANEL * size / max(pixels.shape) for size in pixels.shape)
    return Grid(0.0, 0.0, width, height, levels(pixels, 0.0, 1.0), GREYS)


def _in_rows(pictures: list[Panel], title: str) -> Canvas:
    """Place small pictures in rows of PANELS_PER_ROW."""
    starts = range(0, len(pictures), PANELS_PER_ROW)
    rows = [("", pictures[start : start + PANELS_PER_ROW]) for start in starts]
    return panels(rows, title=title)
