import re

import numpy as np
import pytest

from seqlab.explain.charts import Node
from seqlab.explain.labels import display_width
from seqlab.explain.palette import DIVERGING, SEQUENTIAL, rgb
from seqlab.explain.plots import Curve
from seqlab.explain.terminal import bars, coloured_text, heat_map, line_chart, tree

NASTY = ["<script>", "שלום עולם", "日本 😀👩‍👩‍👧", "\x1b[31mred", "a rather long label that goes on and on and on"]
RNG = np.random.default_rng(0)
WAVE = np.sin(np.arange(40) / 4)
DRAWN = {
    "heat": lambda **look: heat_map(RNG.normal(size=(5, 5)), NASTY, NASTY, diverging=True, **look),
    "large": lambda **look: heat_map(RNG.random((200, 512)), ["日本"] * 200, ["token"] * 512, **look),
    "line": lambda **look: line_chart([Curve(NASTY[4], WAVE), Curve(NASTY[2], -WAVE)], x_labels=NASTY * 8, **look),
    "bars": lambda **look: bars(RNG.normal(size=5), NASTY, **look),
    "text": lambda **look: coloured_text(NASTY * 9, RNG.normal(size=45), **look),
    "tree": lambda **look: tree([Node("root"), *(Node(text, -1.0, k) for k, text in enumerate(NASTY * 8))], **look),
}


def plain(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.mark.parametrize("name", DRAWN)
@pytest.mark.parametrize("width", [40, 80])
@pytest.mark.parametrize("colour", [False, True])
def test_a_picture_keeps_to_its_columns(name, width, colour):
    drawn = DRAWN[name](width=width, colour=colour)
    assert max(display_width(line) for line in plain(drawn).split("\n")) <= width
    assert ("\x1b" in drawn) == (colour and name != "tree")
    assert len(drawn.split("\n")) <= 90


def test_shades_follow_the_numbers():
    drawn = heat_map(np.array([[1.0, 0.0, 0.5], [np.nan, 0.25, 0.7]]), ["x", "yz"], ["a", "b", "c"])
    assert drawn.split("\n") == ["   a b c", " x █   ▒", "yz ? ░ ▓"]


def test_signs_are_seen_without_colour():
    drawn = heat_map(np.array([[1.0, -1.0, 0.5, -0.5]]), ["x"], list("abcd"), diverging=True)
    assert drawn.split("\n")[1] == "x █ = ▒ :"


def test_colours_are_those_of_the_picture():
    drawn = heat_map(np.array([[1.0, 0.0]]), ["x"], ["a", "b"], colour=True)
    shown = [tuple(map(int, found)) for found in re.findall(r"48;2;(\d+);(\d+);(\d+)", drawn)]
    assert shown == [rgb(SEQUENTIAL[-1]), rgb(SEQUENTIAL[0])]
    drawn = coloured_text(["bad"], np.array([-1.0]), colour=True)
    assert "48;2;{};{};{}".format(*rgb(DIVERGING[0])) in drawn


def test_a_large_matrix_keeps_what_is_farthest_from_zero():
    matrix = np.zeros((120, 4))
    matrix[61, 2] = -5.0
    lines = heat_map(matrix, [str(k) for k in range(120)], list("abcd"), diverging=True).split("\n")
    assert len(lines) == 62
    assert [line for line in lines[1:-1] if "=" in line] == [" 60     =  "]
    assert lines[-1] == "each of 2 × 1: the farthest from zero"


def test_a_rising_line_rises_and_a_gap_is_left():
    lines = line_chart([Curve("y", np.arange(50.0))], width=60, height=8).split("\n")
    first = [min(k for k, sign in enumerate(line) if "\u2800" < sign <= "\u28ff") for line in lines[:8]]
    assert first == sorted(first, reverse=True)
    assert lines[0].startswith(" 51.5 ┤")
    assert lines[-1].split() == ["0", "49"]
    y = np.ones(50)
    y[20:30] = np.nan
    drawn = line_chart([Curve("y", y)], width=58, height=3).split("\n")[1]
    assert re.fullmatch(r" *1 ┤\S{20,22} {9,13}\S{20,22}", drawn)


def test_several_lines_without_colour_have_letters_of_their_own():
    lines = line_chart([Curve("up", np.arange(9.0)), Curve("down", np.arange(9.0)[::-1].copy())], width=40).split("\n")
    assert lines[0][-1] == "•"
    assert "x" in lines[0]
    assert [line.strip() for line in lines[-2:]] == ["• up", "x down"]


def test_bars_and_text_say_their_numbers():
    assert bars(np.array([1.0, -0.5]), ["a", "bb"], width=20).split("\n") == [" a ████████████ 1", "bb ▒▒▒▒▒▒ −0.5"]
    assert coloured_text(["good ", "and ", "bad"], np.array([1.0, 0.01, -0.5])) == "good[+1.00] and bad[-0.50]"


def test_a_tree_marks_the_best_and_the_given_up():
    nodes = [Node("<s>", best=True), Node("a", -1.0, 0, best=True), Node("b", -2.0, 0, pruned=True), Node("c", None, 1)]
    assert tree(nodes).split("\n") == ["* <s>", "* ├─a −1", "  │ └─c", "× └─b −2"]
