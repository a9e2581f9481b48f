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
    """The elements of a page with their text."""

    def __init__(self, text):
        super().__init__()
        self.elements = []
        self.texts = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self.texts.append("")
        self.inside = True

    def handle_data(self, data):
        if self.texts and self.inside:
            self.texts[-1] += data

    def handle_endtag(self, tag):
        self.inside = False

    def of(self, tag):
        return [
            (attributes, text)
            for (name, attributes), text in zip(self.elements, self.texts, strict=True)
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


def test_the_page_holds_the_numbers_and_allows_only_its_own_script():
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


def test_the_page_loads_nothing_from_elsewhere():
    html = sample().to_html().replace("http://www.w3.org/2000/svg", "")  # a name, not an address
    assert not re.search(r"https?:|//[a-z]|@import|url\(", html)
    links = [
        value
        for _, attributes in Page(html).elements
        for key, value in attributes.items()
        if key in ("src", "href")
    ]
    assert links
    assert all(link.startswith("data:image/png;base64,") for link in links)


def test_the_page_has_a_dark_theme():
    html = sample().to_html()
    assert "@media (prefers-color-scheme:dark)" in html
    assert ".fill-ink{fill:#e6e8eb}" in html
    assert 'class="fill-ink"' in html


def test_a_notebook_shows_the_page_in_a_frame():
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


def test_the_terminal_shows_only_text():
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
def test_the_suffix_of_a_file_decides_its_format(suffix, tmp_path):
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
def test_other_suffixes_are_refused(name, tmp_path):
    with pytest.raises(
        UsageError, match=f"{name}: a view cannot be saved as '{name[4:]}'"
    ) as error:
        sample().save(tmp_path / name)
    assert error.value.hint == "use a suffix of .html, .svg, .png, .json."
    assert not list(tmp_path.iterdir())


def test_a_page_of_500_tokens_is_fast_and_small(tmp_path):
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


def test_drawing_imports_neither_torch_nor_an_image_library():
    late = "{'torch', 'PIL', 'resvg_py'}"
    code = f"import sys, seqlab.explain.view, seqlab.explain.token_figures; print({late} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
