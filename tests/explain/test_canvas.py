import io
import sys
from functools import partial
from xml.etree import ElementTree

import numpy as np
import pytest
import resvg_py
from PIL import Image

from seqlab.data.png import png
from seqlab.errors import UsageError
from seqlab.explain import canvas as raster
from seqlab.explain.canvas import Canvas, Circle, Grid, Group, Polyline, Rect, Text, line, stack
from seqlab.explain.figure_text import visible
from seqlab.explain.palette import CATEGORICAL, SEQUENTIAL, colours, levels, rgb

SVG = "{http://www.w3.org/2000/svg}"
NASTY = [
    "<script>alert(1)</script>",
    "\"quotes\" & 'more'",
    "שלום עולם",
    "日本 😀👩‍👩‍👧",
    "\x00\x1b[31m",
    "\ud800\u202e",
]
BLUE = rgb(CATEGORICAL[0])


def pixels(canvas, scale=2.0):
    return np.asarray(Image.open(io.BytesIO(canvas.to_png(scale=scale))).convert("RGB"))


def inked(image):
    """Return the bounding box of the drawing: left, top, right, bottom."""
    rows, columns = np.nonzero((image != 255).any(-1))
    return columns.min(), rows.min(), columns.max() + 1, rows.max() + 1


@pytest.mark.parametrize("text", NASTY)
def test_any_text_gives_a_valid_document(text):
    grid = Grid(0, 0, 9, 9, np.zeros((1, 1), np.uint8), SEQUENTIAL, [text], [text])
    items = (Text(5, 15, text), Rect(0, 0, 5, 5, "ink", hint=text), grid)
    root = ElementTree.fromstring(Canvas(90, 30, items, title=text).to_svg().encode())
    assert [found.text for found in root.iter(SVG + "text")] == [visible(text)]
    assert [found.text for found in root.iter(SVG + "title")] == [visible(text)] * 2
    assert {found.tag.removeprefix(SVG) for found in root.iter()} == {
        "svg",
        "title",
        "style",
        "rect",
        "text",
        "image",
    }


def test_the_direction_of_a_label_does_not_change_its_neighbours():
    """A right-to-left label changes neither the direction of other labels nor its own anchor."""
    svg = Canvas(90, 30, (Text(5, 15, "שלום", anchor="end"), Text(50, 15, "abc"))).to_svg()
    assert "text{unicode-bidi:plaintext" in svg
    assert 'text-anchor="end"' in svg
    assert "direction" not in svg


def test_a_matrix_is_one_image_whose_pixels_are_its_cells():
    values = np.random.default_rng(1).random((512, 300))
    cells = levels(values, 0.0, 1.0)
    decoded = np.asarray(Image.open(io.BytesIO(png(cells, colours(SEQUENTIAL)))).convert("RGB"))
    np.testing.assert_array_equal(decoded, colours(SEQUENTIAL)[cells])
    root = ElementTree.fromstring(
        Canvas(600, 600, (Grid(0, 0, 600, 600, cells, SEQUENTIAL),)).to_svg()
    )
    assert len(list(root)) == 3  # a style, the paper, one image


def test_shapes_are_drawn_at_their_coordinates():
    items = (Group(10, 20, (Rect(0, 0, 30, 10, "#ff0000"),)), Circle(70, 25, 8, "#00ff00"))
    image = pixels(Canvas(100, 50, items))
    assert image.shape == (100, 200, 3)
    assert tuple(image[50, 40]) == (255, 0, 0)
    assert inked(image[:, :100]) == (20, 40, 80, 60)
    assert tuple(image[50, 140]) == (0, 255, 0)
    left, top, right, bottom = inked(image[:, 100:])
    assert (left + 100, top, right + 100, bottom) == pytest.approx((124, 34, 156, 66), abs=2)


def test_a_band_is_blended_with_the_background():
    corners = np.array([[5.0, 5.0], [45.0, 5.0], [45.0, 25.0], [5.0, 25.0]])
    image = pixels(Canvas(50, 30, (Polyline(corners, fill="#0000ff", opacity=0.25),)))
    assert tuple(image[30, 50]) == pytest.approx((191, 191, 255), abs=1)


def test_a_transparent_line_has_one_opacity_where_its_segments_join():
    bend = np.stack([np.linspace(5, 95, 20), 30 + 8 * np.sin(np.linspace(0, 3, 20))], 1)
    image = pixels(Canvas(100, 60, (Polyline(bend, "#000000", 4, opacity=0.5),)))
    assert 120 <= image.min() <= 135


def test_dashes_are_as_long_as_their_gaps():
    image = pixels(Canvas(100, 20, (line(2, 10, 98, 10, "#000000", dashed=True),)))
    dark = (image[19:22, 4:196] < 200).all(-1).any(0)
    assert dark.mean() == pytest.approx(0.5, abs=0.08)
    assert (
        np.diff(dark.astype(int)).clip(0).sum() == 11
    )  # 12 dashes of 4 in 96, the first at the edge


def test_edges_are_antialiased():
    image = pixels(Canvas(40, 40, (Polyline(np.array([[0.0, 3.0], [40.0, 37.0]]), "#000000", 3),)))
    assert len(np.unique(image)) > 3


def test_text_is_anchored_and_rotated():
    boxes = {
        anchor: inked(pixels(Canvas(200, 60, (Text(100, 40, "Text", 14, anchor=anchor),))))
        for anchor in ("start", "middle", "end")
    }
    assert boxes["start"][0] == pytest.approx(200, abs=4)
    assert sum(boxes["middle"][::2]) / 2 == pytest.approx(200, abs=4)
    assert boxes["end"][2] == pytest.approx(200, abs=4)
    assert boxes["start"][3] == pytest.approx(80, abs=2)  # on its baseline
    left, top, right, bottom = inked(
        pixels(Canvas(200, 200, (Text(100, 100, "upwards", 14, rotation=-90),)))
    )
    assert bottom - top > 2 * (right - left)
    assert bottom == pytest.approx(200, abs=4)
    assert right == pytest.approx(200, abs=10)


@pytest.mark.parametrize("text", NASTY)
@pytest.mark.parametrize("turn", [0, -45])
def test_any_text_can_be_drawn(text, turn):
    image = pixels(Canvas(300, 300, (Text(150, 150, text, 14, bold=True, rotation=turn),)))
    assert (image != 255).any()


def test_blanks_are_kept():
    boxes = [inked(pixels(Canvas(200, 30, (Text(5, 20, text, 14),)))) for text in ("a b", "a    b")]
    assert boxes[1][2] > boxes[0][2] + 15


@pytest.mark.parametrize("monospace", [False, True])
def test_without_system_fonts_that_of_pillow_is_used(monkeypatch, monospace):
    monkeypatch.setattr(
        "resvg_py.svg_to_bytes", partial(resvg_py.svg_to_bytes, skip_system_fonts=True)
    )
    raster._machine_has_fonts.cache_clear()
    left, _, right, _ = inked(
        pixels(Canvas(100, 30, (Text(5, 20, "word", 14, monospace=monospace),)))
    )
    raster._machine_has_fonts.cache_clear()
    assert 30 < right - left < 100


def test_a_very_large_canvas_gets_fewer_pixels():
    height, width, _ = pixels(Canvas(2000, 10000, ())).shape
    assert width * height <= 8.1e6
    assert width / height == pytest.approx(0.2, abs=0.01)


def test_without_resvg_the_error_names_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(
        UsageError, match="saving a PNG needs the package resvg-py, which is not installed"
    ) as error:
        Canvas(10, 10, ()).to_png()
    assert error.value.hint == "pip install 'seqlab[images]', or save the picture as .svg or .html."


def test_stacked_pictures_are_below_their_titles():
    both = stack(
        [Canvas(40, 30, (Rect(0, 0, 40, 30, "#ff0000"),), "first"), Canvas(60, 20, (), "second")],
        title="Two",
    )
    root = ElementTree.fromstring(both.to_svg())
    assert [found.text for found in root.iter(SVG + "text")] == ["Two", "first", "second"]
    assert both.width == 60
    shape = root.find(f"{SVG}g")
    assert shape.get("transform") == "translate(0 70)"
