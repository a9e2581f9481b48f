import io
import math
import re
import time
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from seqlab.explain.canvas import Circle, Grid, Polyline, Rect, Text
from seqlab.explain.charts import Bars, HeatMap, bipartite
from seqlab.explain.figure_text import number, text_width, visible
from seqlab.explain.palette import (
    CATEGORICAL,
    DIVERGING,
    MISSING,
    SEQUENTIAL,
    colour_of,
    colours,
    levels,
    rgb,
)
from seqlab.explain.plots import Band, Curve, Lines, scatter, ticks
from seqlab.explain.token_figures import ColouredText, Node, Tree

LONG = "a rather long label indeed"
NASTY = [
    "<script>alert(1)</script>",
    "\"quotes\" & 'more'",
    "שלום עולם",
    "日本 😀👩‍👩‍👧",
    "\x00\x1b[31",
    LONG,
]
RNG = np.random.default_rng(0)
WAVE = np.sin(np.arange(40) / 4)
TREE = [
    Node("<s>", 0.0, best=True),
    Node("a", -1.0, 0, best=True),
    Node("b", -1.5, 0),
    Node("c", -9.0, 1, pruned=True),
]
CANVASES = {
    "line": Lines(
        [Curve(NASTY[0], WAVE), Curve(NASTY[2], WAVE * 1000 - 1e5, dashed=True)],
        [Band(NASTY[3], WAVE - 9, WAVE + 9)],
        titles=("steps", NASTY[1]),
        mark=(30.0, NASTY[5]),
        x_labels=[f"2024-01-{day}" for day in range(40)],
    ).draw(),
    "heat": HeatMap(
        RNG.normal(size=(6, 6)), NASTY, NASTY, diverging=True, titles=("rows", "columns")
    ).draw(),
    "bipartite": bipartite(RNG.random((6, 6)), NASTY, NASTY),
    "scatter": scatter(RNG.normal(size=(6, 2)), NASTY, NASTY),
    "bars": Bars(RNG.normal(size=6), NASTY, x_title="difference").draw(),
    "text": ColouredText(NASTY * 4, RNG.normal(size=24)).draw(),
    "tree": Tree([Node("root"), *(Node(text, -k * 1.5, k) for k, text in enumerate(NASTY))]).draw(),
}


def kind(canvas, of):
    return [item for item in canvas.items if isinstance(item, of)]


def text(canvas, label):
    return next(item for item in kind(canvas, Text) if item.text == label)


@pytest.mark.parametrize("name", CANVASES)
def test_every_chart_is_valid_svg_and_renders_as_png(name):
    canvas = CANVASES[name]
    root = ElementTree.fromstring(canvas.to_svg())
    assert not [element for element in root.iter() if "script" in element.tag]
    texts = {e.text or "" for e in root.iter() if e.tag.endswith(("}text", "}title"))}
    assert all(
        any(visible(nasty)[:8] in words for words in texts) for nasty in (NASTY[2], NASTY[3])
    )
    assert Image.open(io.BytesIO(canvas.to_png(scale=1))).size == (
        round(canvas.width),
        round(canvas.height),
    )


@pytest.mark.parametrize("name", CANVASES)
def test_all_text_is_inside_the_picture(name):
    canvas = CANVASES[name]
    for item in kind(canvas, Text):
        long = text_width(item.text, item.size, monospace=item.monospace)
        start = {"start": 0, "middle": -0.5, "end": -1}[item.anchor] * long
        turn = math.radians(item.rotation)
        for along in (start, start + long):
            assert -1 <= item.x + along * math.cos(turn) <= canvas.width + 1, item
            assert 0 <= item.y + along * math.sin(turn) <= canvas.height, item


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (-3, 12, [0, 5, 10]),
        (0.011, 0.023, [0.012, 0.014, 0.016, 0.018, 0.02, 0.022]),
        (1e6, 3e6, [1e6, 1.5e6, 2e6, 2.5e6, 3e6]),
    ],
)
def test_ticks_are_round_numbers_within_the_range(low, high, expected):
    assert ticks(float(low), float(high)) == pytest.approx(expected)


def test_numbers_are_short():
    assert [number(v) for v in (0.0, -0.12345, 12.0, 1234.5, -2.5e7)] == [
        "0",
        "−0.123",
        "12",
        "1,234",
        "−2.5e+07",
    ]


def test_values_are_drawn_at_the_height_of_their_ticks():
    chart = Lines([Curve("loss", np.array([0.0, 10.0, 20.0, 15.0]))]).draw()
    (curve,) = (item for item in kind(chart, Polyline) if item.hint == "loss")
    for place, (tick, along) in enumerate(
        [("0", "0.0"), ("10", "1.0"), ("20", "2.0"), ("15", "3.0")]
    ):
        assert curve.points[place, 1] == pytest.approx(text(chart, tick).y - 4)
        assert curve.points[place, 0] == pytest.approx(text(chart, along).x)


def test_a_missing_value_is_a_gap_and_an_isolated_value_a_dot():
    y = np.array([1.0, 2.0, np.nan, 3.0, np.nan, 2.0, 1.0, 4.0])
    chart = Lines([Curve("y", y)]).draw()
    parts = [item.points for item in kind(chart, Polyline) if item.hint == "y"]
    assert [len(part) for part in parts] == [2, 1, 3]
    (dot,) = kind(chart, Circle)
    assert [dot.x, dot.y] == parts[1][0].tolist()
    chart.to_png()


def test_a_forecast_starts_at_its_mark_inside_its_band():
    x = np.arange(5.0, 9.0)
    chart = Lines(
        [Curve("history", np.arange(6.0), colour="ink"), Curve("forecast", x, x)],
        [Band("90 %", x - 2, x + 2, x)],
        mark=(5.0, "forecast begins"),
    ).draw()
    curves = {item.hint: item for item in kind(chart, Polyline) if item.hint}
    assert curves["forecast"].stroke == curves["90 %"].fill == CATEGORICAL[0]
    begin = curves["forecast"].points[0, 0]
    upright = [item for item in kind(chart, Polyline) if item.dashed]
    assert [item.points[:, 0].tolist() for item in upright] == [[begin, begin]]
    assert text(chart, "forecast begins").x == pytest.approx(begin - 6)
    middle = curves["90 %"].points
    np.testing.assert_allclose(
        (middle[:4, 1] + middle[:3:-1, 1]) / 2, curves["forecast"].points[:, 1]
    )


def test_date_labels_are_thinned_until_they_do_not_overlap():
    days = [f"2024-{1 + day // 28:02}-{1 + day % 28:02}" for day in range(300)]
    chart = Lines([Curve("", np.zeros(300))], x_labels=days).draw()
    shown = [item for item in kind(chart, Text) if "2024" in item.text]
    assert shown[0].text == "2024-01-01"
    assert 4 <= len(shown) <= 8
    assert min(np.diff([item.x for item in shown])) > text_width(days[0], 11)


def test_cells_have_the_colours_of_their_numbers():
    matrix = np.array([[0.0, 0.25, 0.5], [1.0, np.nan, 0.75]])
    canvas = HeatMap(matrix, ["x", "y"], ["a", "b", "c"]).draw()
    (grid,) = (item for item in kind(canvas, Grid) if item.rows)
    image = np.asarray(Image.open(io.BytesIO(canvas.to_png())).convert("RGB"))
    for row, column in np.ndindex(2, 3):
        corner = int(2 * (grid.y + row * 40 + 4)), int(2 * (grid.x + column * 40 + 4))
        expected = colours(SEQUENTIAL)[levels(matrix, 0.0, 1.0)[row, column]]
        assert image[corner].tolist() == expected.tolist()
    assert tuple(image[int(2 * (grid.y + 44)), int(2 * (grid.x + 44))]) == rgb(MISSING)
    assert [item.text for item in kind(canvas, Text) if item.size == 10][:5] == [
        "0",
        "0.25",
        "0.50",
        "1.00",
        "0.75",
    ]


def test_a_wrong_number_of_labels_is_an_error():
    with pytest.raises(ValueError, match="zip"):
        HeatMap(np.zeros((2, 2)), ["a"], ["x", "y"]).draw()


def test_many_labels_are_thinned():
    tokens = [f"token{k}" for k in range(300)]
    canvas = HeatMap(np.eye(300), tokens, tokens).draw()
    rows = [item for item in kind(canvas, Text) if item.anchor == "end" and item.size > 10]
    assert [item.text for item in rows[:2]] == ["token0", "token9"]
    assert min(np.diff([item.y for item in rows])) > 12


def test_the_largest_weights_join_their_tokens():
    weights = np.array([[0.9, 0.0, 0.1], [0.2, 0.7, np.nan]])
    canvas = bipartite(weights, ["a", "b"], ["x", "y", "z"], most=4)
    links = {item.tags: item for item in kind(canvas, Polyline)}
    assert set(links) == {
        ("left0", "right0"),
        ("left1", "right1"),
        ("left1", "right0"),
        ("left0", "right2"),
    }
    strong, weak = links["left0", "right0"], links["left0", "right2"]
    assert strong.opacity > weak.opacity
    assert strong.width > weak.width
    assert strong.hint == "a → x: 0.9"
    begin, end = text(canvas, "b"), text(canvas, "y")
    line = links["left1", "right1"].points
    assert line[0] == pytest.approx([begin.x + 8, begin.y - 0.35 * begin.size])
    assert line[-1] == pytest.approx([end.x - 8, end.y - 0.35 * end.size])


def test_names_of_points_hardly_overlap():
    points = np.random.default_rng(3).normal(size=(120, 2))
    canvas = scatter(points, [f"word{k}" for k in range(120)], ["even", "odd"] * 60)
    dots = kind(canvas, Circle)
    assert [dot.hint for dot in dots] == [f"word{k}" for k in range(120)]
    assert {dot.fill for dot in dots} == set(CATEGORICAL[:2])
    x = np.array([dot.x for dot in dots])
    assert np.corrcoef(x, points[:, 0])[0, 1] == pytest.approx(1)
    names = [item for item in kind(canvas, Text) if item.text.startswith("word")]
    assert len(names) > 70
    boxes = np.array([[n.x, n.y - 10, n.x + text_width(n.text, 11), n.y + 2] for n in names])
    shared = np.minimum(boxes[:, None, 2:], boxes[:, 2:]) - np.maximum(
        boxes[:, None, :2], boxes[:, :2]
    )
    covered = shared.clip(0).prod(-1) / (boxes[:, 2:] - boxes[:, :2]).prod(-1)
    assert (covered - np.eye(len(names))).max() < 0.2


def test_bars_are_proportional_to_their_numbers():
    canvas = Bars(np.array([2.0, -1.0, np.nan]), ["a", "b", "c"]).draw()
    first, second, third = kind(canvas, Rect)
    assert first.width == pytest.approx(2 * second.width)
    assert third.width == 0
    assert second.x + second.width == pytest.approx(first.x)
    assert (first.fill, second.fill) == CATEGORICAL[:2]
    assert text(canvas, "−1").anchor == "end"


def test_text_is_coloured_and_wrapped():
    tokens = ["good ", "bad ", "\n", *["word "] * 40]
    canvas = ColouredText(tokens, np.array([1.0, -1.0, 0.0, *[0.5] * 40])).draw()
    boxes = [item for item in kind(canvas, Rect) if item.radius]
    assert [box.fill for box in boxes[:2]] == [DIVERGING[-1], DIVERGING[0]]
    assert boxes[3].fill == colour_of(0.5, DIVERGING, -1.0, 1.0)
    assert len(boxes) == len(tokens)
    assert max(box.x + box.width for box in boxes) <= canvas.width - 24
    assert boxes[3].y > boxes[2].y  # after the end of a line
    assert len({box.y for box in boxes}) == 4


def test_a_tree_is_drawn_from_left_to_right():
    canvas = Tree(TREE).draw()
    boxes = kind(canvas, Rect)
    assert boxes[0].x < boxes[1].x == boxes[2].x < boxes[3].x
    assert boxes[0].y == pytest.approx((boxes[1].y + boxes[2].y) / 2)
    assert [box.opacity < 1 for box in boxes] == [False, False, False, True]
    assert [box.fill == CATEGORICAL[0] for box in boxes] == [True, True, False, False]
    edges = kind(canvas, Polyline)
    assert len(edges) == 3
    assert edges[0].points[0, 0] == pytest.approx(boxes[0].x + boxes[0].width)
    assert edges[0].points[-1].tolist() == pytest.approx([boxes[1].x, boxes[1].y + 11])


def test_a_tree_of_hundreds_does_not_overlap():
    nodes = [Node("root")] + [Node(f"node {k}", -1.0, (k - 1) // 3) for k in range(1, 400)]
    boxes = kind(Tree(nodes).draw(), Rect)
    columns = {}
    for box in boxes:
        columns.setdefault(box.x, []).append(box.y)
    assert len(columns) == 7
    assert min(min(np.diff(sorted(ys)), default=99) for ys in columns.values()) >= 22


def test_500_tokens_are_drawn_in_seconds():
    """It takes 1 to 2 s, and twice that with shape checks on a busy machine."""
    weights, tokens = (
        np.random.default_rng(0).random((512, 512)) ** 8,
        [f"token{k}" for k in range(512)],
    )
    for draw in (lambda *data: HeatMap(*data).draw(), bipartite):
        began = time.process_time()
        canvas = draw(weights, tokens, tokens)
        svg, picture = canvas.to_svg(), canvas.to_png()
        assert time.process_time() - began < 4
        assert len(picture) + len(svg) < 10e6
        assert len(re.findall("<polyline|<image", svg)) <= 300
