import json
import re
import subprocess
import sys
import time
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest

from seqlab.errors import UsageError
from seqlab.explain.charts import HeatMap, bipartite
from seqlab.explain.view import View

NASTY = [
    "<script>alert(1)</script>",
    "</script><img src=x onerror=y>",
    "\"q\" & 'm'",
    "שלום 😀",
    "\u2028\ud800\x00",
]
WEIGHTS = np.array([[0.5, 0.25, 0.25, 0.0, 0.0], [np.nan, 1 / 3, 0, 0, 0]])


class Page(HTMLParser):
    """The elements of a page, and what stands inside of each."""

    def __init__(self, text):
        super().__init__()
        self.found, self.said = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))
        self.said.append("")
        self.inside = True

    def handle_data(self, data):
        if self.said and self.inside:
            self.said[-1] += data

    def handle_endtag(self, tag):
        self.inside = False

    def of(self, tag):
        return [
            (attributes, said)
            for (name, attributes), said in zip(self.found, self.said, strict=True)
            if name == tag
        ]


def sample(title=NASTY[0]):
    names, heads = NASTY[:2], NASTY
    return View(
        "attention",
        title,
        {
            "weights": WEIGHTS,
            "tokens": NASTY,
            "layer": 2,
            "best": np.float32(0.1),
            "few": [-1.23456789e-9, 1e12 / 3],
        },
        (
            HeatMap(WEIGHTS, names, heads, title="weights"),
            bipartite(WEIGHTS, names, heads, title=NASTY[1]),
        ),
    )


def test_the_page_runs_its_own_script_alone_and_holds_the_numbers():
    page = Page(sample().to_html())
    (_, data), (_, script) = page.of("script")
    assert json.loads(data)["tokens"][:4] == NASTY[:4]
    assert json.loads(data)["weights"][1][0] is None
    (policy,) = [
        a["content"] for a, _ in page.of("meta") if a.get("http-equiv") == "Content-Security-Policy"
    ]
    own = b64encode(sha256(script.encode()).digest()).decode()
    assert (
        policy
        == f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{own}'"
    )
    assert not page.of("img")
    assert page.of("title")[0][1] == page.of("h1")[0][1] == NASTY[0]


def test_the_page_asks_nobody_for_anything():
    html = sample().to_html().replace("http://www.w3.org/2000/svg", "")  # a name, not an address
    assert not re.search(r"https?:|//[a-z]|@import|url\(", html)
    links = [
        value
        for _, attributes in Page(html).found
        for key, value in attributes.items()
        if key in ("src", "href")
    ]
    assert links
    assert all(link.startswith("data:image/png;base64,") for link in links)


def test_the_page_has_a_dark_sheet():
    html = sample().to_html()
    assert "@media (prefers-color-scheme:dark)" in html
    assert ".fill-ink{fill:#e6e8eb}" in html
    assert 'class="fill-ink"' in html


def test_a_notebook_gets_the_page_in_a_frame_of_its_own():
    ((frame, _),) = Page(sample()._repr_html_()).of("iframe")
    assert frame["srcdoc"] == sample().to_html()
    assert frame["sandbox"] == "allow-scripts"


def test_numbers_are_kept_to_six_digits():
    document = json.loads(sample("a title").to_json())
    assert document["view"] == "attention"
    assert document["title"] == "a title"
    assert document["weights"] == [[0.5, 0.25, 0.25, 0, 0], [None, 0.333333, 0, 0, 0]]
    assert document["best"] == 0.1
    assert document["few"] == [-1.23457e-9, 333333000000]


def test_the_terminal_gets_text_alone():
    drawn = sample().to_text(width=60)
    assert drawn.startswith("<script>alert(1)</script>\n")
    assert "\x1b" not in drawn
    assert "\x1b[" in sample().to_text(colour=True)


def test_show_honours_no_color(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "60")
    sample().show()
    assert capsys.readouterr().out == sample().to_text(width=60, colour=True) + "\n"
    monkeypatch.setenv("NO_COLOR", "1")
    sample().show()
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize("suffix", [".html", ".svg", ".png", ".json", ".SVG"])
def test_the_name_of_a_file_says_what_it_is(suffix, tmp_path):
    path = sample().save(tmp_path / f"view{suffix}")
    written = path.read_bytes()
    if suffix == ".png":
        assert written.startswith(b"\x89PNG")
    elif suffix == ".json":
        assert json.loads(written)["tokens"] == NASTY
    elif suffix == ".html":
        assert written.decode().startswith("<!doctype html>")
    else:
        assert ElementTree.fromstring(written).tag.endswith("svg")


@pytest.mark.parametrize("name", ["view.pdf", "view"])
def test_other_files_are_refused_by_name(name, tmp_path):
    with pytest.raises(
        UsageError, match=f"{name}: a view cannot be saved as '{name[4:]}'"
    ) as error:
        sample().save(tmp_path / name)
    assert error.value.hint == "use one of .html, .svg, .png, .json."
    assert not list(tmp_path.iterdir())


def test_a_page_of_five_hundred_tokens(tmp_path):
    weights, tokens = (
        np.random.default_rng(0).random((512, 512)) ** 8,
        [f"token{k}" for k in range(512)],
    )
    began = time.process_time()
    pictures = (HeatMap(weights, tokens, tokens), bipartite(weights, tokens, tokens))
    path = View("attention", "large", {"weights": weights, "tokens": tokens}, pictures).save(
        tmp_path / "v.html"
    )
    assert time.process_time() - began < 2
    assert path.stat().st_size < 10e6


def test_drawing_waits_for_neither_torch_nor_a_picture_library():
    late = "{'torch', 'PIL', 'resvg_py'}"
    code = f"import sys, seqlab.explain.view, seqlab.explain.token_figures; print({late} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
