import re

import numpy as np
import pytest
from rich.cells import cell_len

from seqlab.explain.charts import Bars, HeatMap
from seqlab.explain.palette import DIVERGING, SEQUENTIAL, rgb
from seqlab.explain.plots import Curve, Lines
from seqlab.explain.token_figures import ColouredText, Node, Tree

NASTY = [
    "<script>",
    "שלום עולם",
    "日本 😀👩‍👩‍👧",
    "\x1b[31mred",
    "a rather long label that goes on and on and on",
]
RNG = np.random.default_rng(0)
WAVE = np.sin(np.arange(40) / 4)
DRAWN = {
    "heat": HeatMap(RNG.normal(size=(5, 5)), NASTY, NASTY, diverging=True),
    "large": HeatMap(RNG.random((200, 512)), ["日本"] * 200, ["token"] * 512),
    "line": Lines([Curve(NASTY[4], WAVE), Curve(NASTY[2], -WAVE)], x_labels=NASTY * 8),
    "bars": Bars(RNG.normal(size=5), NASTY),
    "text": ColouredText(NASTY * 9, RNG.normal(size=45)),
    "tree": Tree([Node("root"), *(Node(text, -1.0, k) for k, text in enumerate(NASTY * 8))]),
}


def plain(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.mark.parametrize("name", DRAWN)
@pytest.mark.parametrize("width", [40, 80])
@pytest.mark.parametrize("colour", [False, True])
def test_a_figure_fits_into_its_columns(name, width, colour):
    drawn = DRAWN[name].as_text(width, colour)
    assert max(cell_len(line) for line in plain(drawn).split("\n")) <= width
    assert ("\x1b" in drawn) == (colour and name != "tree")
    assert len(drawn.split("\n")) <= 90


def test_shades_of_a_heat_map():
    drawn = HeatMap(
        np.array([[1.0, 0.0, 0.5], [np.nan, 0.25, 0.7]]), ["x", "yz"], ["a", "b", "c"]
    ).as_text()
    assert drawn.split("\n") == ["   a b c", " x █   ▒", "yz ? ░ ▓"]


def test_positive_and_negative_numbers_differ_without_colour():
    drawn = HeatMap(
        np.array([[1.0, -1.0, 0.5, -0.5]]), ["x"], list("abcd"), diverging=True
    ).as_text()
    assert drawn.split("\n")[1] == "x █ = ▒ :"


def test_colours_equal_those_of_the_picture():
    drawn = HeatMap(np.array([[1.0, 0.0]]), ["x"], ["a", "b"]).as_text(colour=True)
    shown = [tuple(map(int, found)) for found in re.findall(r"48;2;(\d+);(\d+);(\d+)", drawn)]
    assert shown == [rgb(SEQUENTIAL[-1]), rgb(SEQUENTIAL[0])]
    drawn = ColouredText(["bad"], np.array([-1.0])).as_text(colour=True)
    assert "48;2;{};{};{}".format(*rgb(DIVERGING[0])) in drawn


def test_a_large_matrix_keeps_the_largest_absolute_values():
    matrix = np.zeros((120, 4))
    matrix[61, 2] = -5.0
    lines = (
        HeatMap(matrix, [str(k) for k in range(120)], list("abcd"), diverging=True)
        .as_text()
        .split("\n")
    )
    assert len(lines) == 62
    assert [line for line in lines[1:-1] if "=" in line] == [" 60     =  "]
    assert lines[-1] == "one cell: largest of 2 × 1 numbers"


def test_a_line_rises_and_has_a_gap_at_a_missing_value():
    lines = Lines([Curve("y", np.arange(50.0))]).as_text(60, height=8).split("\n")
    first = [
        min(k for k, sign in enumerate(line) if "\u2800" < sign <= "\u28ff") for line in lines[:8]
    ]
    assert first == sorted(first, reverse=True)
    assert lines[0].startswith(" 51.5 ┤")
    assert lines[-1].split() == ["0", "49"]
    y = np.ones(50)
    y[20:30] = np.nan
    drawn = Lines([Curve("y", y)]).as_text(58, height=3).split("\n")[1]
    assert re.fullmatch(r" *1 ┤\S{20,22} {9,13}\S{20,22}", drawn)


def test_several_lines_without_colour_have_different_markers():
    curves = [Curve("up", np.arange(9.0)), Curve("down", np.arange(9.0)[::-1].copy())]
    lines = Lines(curves).as_text(40).split("\n")
    assert lines[0][-1] == "•"
    assert "x" in lines[0]
    assert [line.strip() for line in lines[-2:]] == ["• up", "x down"]


def test_bars_and_coloured_text_show_their_numbers():
    assert Bars(np.array([1.0, -0.5]), ["a", "bb"]).as_text(20).split("\n") == [
        " a ████████████ 1",
        "bb ▒▒▒▒▒▒ −0.5",
    ]
    text = ColouredText(["good ", "and ", "bad"], np.array([1.0, 0.01, -0.5]))
    assert text.as_text() == "good[+1.00] and bad[-0.50]"


def test_a_tree_marks_the_best_path_and_pruned_nodes():
    nodes = [
        Node("<s>", best=True),
        Node("a", -1.0, 0, best=True),
        Node("b", -2.0, 0, pruned=True),
        Node("c", None, 1),
    ]
    assert Tree(nodes).as_text().split("\n") == ["* <s>", "* ├─a −1", "  │ └─c", "× └─b −2"]
