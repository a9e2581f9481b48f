"""The page in a real browser with a real server: each pane shows the numbers that the library computes."""

import json
import random
import re
import shutil
import subprocess
import sys
from itertools import islice
from pathlib import Path
from urllib.parse import parse_qs, quote, urlencode

import numpy as np
import pytest

from seqlab import lab
from seqlab.corpus.examples import held_out
from seqlab.data.png import png
from seqlab.data.scenes import make_pictures
from seqlab.explain import palette
from seqlab.model import RUN, STORES
from seqlab.serve.inference import next_tokens

PAGE = Path(__file__).parents[2] / "seqlab" / "serve" / "page"
CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
PANES = ("follow", "decode", "attention", "beam", "inside", "what-if", "compare", "training")
MONTHS = ("janvier", "mars", "mai", "juin")
LSTM = ["model.embedding=8", "model.encoder.size=12", "model.decoder.size=12"]
PICTURES = [
    *(
        "image.height=8",
        "image.width=8",
        "model.encoder.size=8",
        "model.encoder.layers=2",
        "model.encoder.channels=4",
    ),
    *(
        "model.embedding=8",
        "model.decoder.size=8",
        "target.min_count=1",
        "decode.max_length=6",
        "data.validation=0.5",
    ),
]
BLOCKS = " ".join(
    f"model.{side}.{what}"
    for side in ("encoder", "decoder")
    for what in ("size=16", "layers=2", "heads=2")
)
UNNAMED = """() => {
  const described = e => (e.getAttribute("aria-describedby") ?? "").split(" ")
    .map(id => document.getElementById(id)?.textContent ?? "").join("")
  const named = e => e.getAttribute("aria-label") || e.labels?.length || e.textContent.trim() || e.title
  const explained = e => described(e) || e.title || e.getAttribute("aria-label") || e.tagName === "BUTTON"
  return [...document.querySelectorAll("input, select, textarea, button, canvas, svg[role=img]")]
    .filter(e => e.getAttribute("aria-hidden") !== "true" && !(named(e) && explained(e)))
    .map(e => e.outerHTML.slice(0, 120))
}"""
DATE, SENTENCE, TEXT, WORDS = "3 mai 1997", "a b c d", "the cat sat", "the dog ran home"


def _write(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return path


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Small models by name, trained in seconds; only what the page shows matters, not their quality."""
    folder, keyed = tmp_path_factory.mktemp("pages"), random.Random(1)
    days = [
        (keyed.randint(1, 28), keyed.randint(0, 3), keyed.randint(1950, 2020)) for _ in range(80)
    ]
    dates = _write(
        folder / "dates.tsv", [f"{d} {MONTHS[m]} {y}\t{y}-{m + 1:02}-{d:02}" for d, m, y in days]
    )
    texts = [" ".join(keyed.choices("abcdefg", k=keyed.randint(2, 5))) for _ in range(80)]
    pairs = _write(folder / "pairs.tsv", [f"{text}\t{text[::-1].upper()}" for text in texts])
    words = [
        "the cat sat on the mat.",
        '"no," said the dog (the big one).',
        "the time traveller ran home.",
    ] * 12
    book = _write(folder / "book.txt", words)
    tags = [
        f"{word}\t{'DET' if word == 'the' else 'NOUN'}" for word in ["the", "cat", "the", "dog"]
    ]
    tagged = _write(folder / "tags.conll", ([*tags, ""] * 60))
    short = ["train.steps=24", "train.validate_every=8", "train.batch_tokens=128"]
    small = [*short, *LSTM, "decode.max_length=14"]
    lab.train("translate", dates, recipe="dates-attention", settings=small, out=folder / "dates")
    settings = [
        *short,
        *BLOCKS.split(),
        "model.encoder.norm=post",
        "source.kind=characters",
        "train.warmup=4",
        "decode.max_length=10",
    ]
    lab.train(
        "translate", pairs, recipe="transformer-tiny", settings=settings, out=folder / "turned"
    )
    settings = [
        *short[:2],
        "train.bptt=16",
        "train.batch_rows=4",
        "model.embedding=8",
        "model.decoder.size=12",
    ]
    lab.train("lm", book, recipe="char-lstm", settings=settings, out=folder / "book")
    settings = [*short, "model.embedding=8", "model.encoder.size=8", "source.min_count=1"]
    lab.train("tag", tagged, settings=settings, out=folder / "tagger")
    make_pictures("shapes", 24, folder / "shapes.npz", seed=1)
    lab.train("caption", folder / "shapes.npz", settings=[*short, *PICTURES], out=folder / "scenes")
    return {
        name: lab.load(folder / name) for name in ("dates", "turned", "book", "tagger", "scenes")
    }


@pytest.fixture(scope="module")
def address(models):
    """The address of a server of these models, in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "seqlab",
        "serve",
        *(str(model.path) for model in models.values()),
        "--port",
        "0",
    ]
    server = subprocess.Popen(
        [*command, "--threads", "1"], stderr=subprocess.PIPE, text=True, cwd=PAGE.parents[2]
    )
    said = server.stderr.readline()
    yield re.search(r"http://\S+", said)[0]
    server.terminate()
    server.wait(20)


@pytest.fixture(scope="module")
def browser():
    if not Path(CHROMIUM).exists():
        pytest.skip("needs the browser chromium")
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="needs playwright, which drives the browser"
    )
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM)
        yield opened
        opened.close()


@pytest.fixture
def look(browser, address):
    """A function that opens a view by its link; at the end, nothing was logged and only the server was contacted."""
    complaints, asked, contexts = [], [], []

    def opened(model="", given=None, pane="", width=1280, **controls):
        contexts.append(browser.new_context(viewport={"width": width, "height": 900}))
        page = contexts[-1].new_page()
        page.set_default_timeout(20_000)
        page.on(
            "console",
            lambda message: (
                complaints.append(message.text) if message.type in ("error", "warning") else None
            ),
        )
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        said = {"model": model, "input": given, "pane": pane, **controls}
        page.goto(
            f"{address}/#{urlencode({k: v for k, v in said.items() if v not in ('', None)}, quote_via=quote)}"
        )
        settled(page)
        return page

    yield opened
    for context in contexts:
        context.close()
    refused = [
        text for text in complaints if "422" not in text
    ]  # the browser logs each refusal of the server itself
    assert refused == []
    assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []


def settled(page):
    """Wait until the pane has drawn its result."""
    page.evaluate(
        "new Promise(done => setTimeout(done, 50))"
    )  # what a click has started comes first
    page.wait_for_selector("#pane:not([busy]) .result > *")
    page.wait_for_load_state("networkidle")


def state(page):
    return {key: values[0] for key, values in parse_qs(page.url.partition("#")[2]).items()}


def value(page, selector):
    return float(page.get_attribute(selector, "data-value"))


def hover(page, name, row, column):
    """Move the pointer to a cell of a matrix."""
    matrix = page.locator(f"seq-matrix[data-name={name}]")
    matrix.scroll_into_view_if_needed()
    box = matrix.locator("canvas").bounding_box()
    left, top, wide, tall = matrix.evaluate(
        "({place: p}) => [p.left, p.top, p.cellWidth, p.cellHeight]"
    )
    x, y = box["x"] + left + (column + 0.5) * wide, box["y"] + top + (row + 0.5) * tall
    page.mouse.move(x, y)
    return x, y


def until(page, condition):
    """Wait for a condition without a selector; the page's security policy forbids `wait_for_function`."""
    for _ in range(200):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    raise AssertionError(condition)


def texts(found):
    return [each["output"] or "(nothing)" for each in found]


def ranked(page, which):
    return page.locator(f".ranking.{which} bdi").all_text_contents()


# The panes


@pytest.mark.browser
@pytest.mark.parametrize(
    ("name", "given", "stage", "cell", "equation"),
    [
        ("dates", DATE, "decoder.attention.score", "2,3", "E43"),
        ("dates", DATE, "encoder.0.backward.i", "1,5", "E24"),
        ("turned", SENTENCE, "encoder.0.attention.score", "1,2", "E44"),
        ("turned", SENTENCE, "encoder.1.output", "1,7", "E50"),
        ("book", TEXT, "decoder.0.c", "4,2", "E24"),
        ("tagger", WORDS, "logits", "1,1", "E18"),
    ],
)
def test_follow_fills_the_equation_with_the_numbers(
    look, models, name, given, stage, cell, equation
):
    page = look(name, given, "follow", stage=stage, cell=cell)
    page.wait_for_selector(".formula")
    whole = ("0," if stage.endswith("attention.score") and name == "turned" else "") + cell
    said = models[name].explain(given, "number", layer=stage, cell=whole).data
    lens = next(s for s in models[name].explain(given, "lens").data["stages"] if s["name"] == stage)
    recorded = lens["values"][tuple(map(int, whole.split(",")))]
    assert page.inner_text(".formula .badge") == equation == said["equation"]
    assert value(page, ".outcome b") == pytest.approx(recorded, rel=1e-3, abs=1e-5)
    assert said["formula"] in page.inner_text(".formula")


@pytest.mark.browser
def test_follow_goes_from_the_whole_to_one_number_by_clicks(look, models):
    page = look("dates", DATE, "follow")
    page.click("summary:has-text('Block 1') >> nth=0")
    page.click("[data-key='stage-encoder.0.forward.f']")
    settled(page)
    page.mouse.click(*hover(page, "stage", 2, 4))
    page.wait_for_selector("text=f[2, 4]")
    assert state(page)["stage"] == "encoder.0.forward.f"
    assert state(page)["cell"] == "2,4"
    f = models["dates"].explain(DATE, "number", layer="encoder.0.forward.f", cell="2,4").data
    assert value(page, ".outcome b") == pytest.approx(f["value"], rel=1e-4)
    assert "embedding·U" in page.inner_text(".formula")
    first = models["dates"].explain(DATE, "lens").data["likeliest"][0][0]
    page.click("[data-key=answer-0]")
    page.wait_for_selector("h4:has-text('at 1')")
    assert value(page, ".bars td") == pytest.approx(first["probability"], rel=1e-4)


@pytest.mark.browser
def test_decode_shows_probabilities_and_accepts_a_forced_token(look, models):
    page = look("book", TEXT, "decode", temperature="0.5", top_k="5", top_p="0.9")
    settings = {"temperature": 0.5, "top_k": 5, "top_p": 0.9, "most": 50}
    said = next_tokens(models["book"].bundle, TEXT, [], **settings)["candidates"]
    shown = page.locator(".candidates tr:has(td)")
    assert shown.count() == min(12, len(said))
    for row, candidate in zip(range(3), said, strict=False):
        cells = shown.nth(row).locator("td")
        assert float(cells.nth(0).get_attribute("data-value")) == pytest.approx(
            candidate["probability"], rel=1e-5
        )
        assert float(cells.nth(2).get_attribute("data-adjusted")) == pytest.approx(
            candidate["adjusted"], rel=1e-5
        )
    assert shown.nth(6).locator("td").nth(2).inner_text() == "cut"
    likeliest, forced = said[0]["id"], said[3]["id"]
    page.click(f"[data-id='{forced}']")
    page.wait_for_selector("[data-key=written-0]")
    settled(page)
    assert state(page)["written"] == str(forced) != str(likeliest)
    after = next_tokens(models["book"].bundle, TEXT, [forced], **settings)["candidates"]
    assert value(page, ".candidates td") == pytest.approx(after[0]["probability"], rel=1e-5)


@pytest.mark.browser
def test_decode_plays_to_the_end_and_pauses(look, models):
    page = look("dates", DATE, "decode")
    page.click("[data-key=play]")
    page.wait_for_selector("[data-key=written-2]")
    page.click("[data-key=play]")
    page.wait_for_selector("[data-key=play]:has-text('Play')")
    settled(page)
    written = [int(i) for i in state(page)["written"].split(",")]
    ids = []
    for _ in written:
        ids.append(
            next_tokens(
                models["dates"].bundle, DATE, ids, temperature=1.0, top_k=0, top_p=1.0, most=50
            )["candidates"][0]["id"]
        )
    assert written == ids
    page.locator("[data-key=step]").evaluate(
        "step => { step.click(); step.click() }"
    )  # the second click comes before the answer to the first
    page.wait_for_selector(f"[data-key=written-{len(ids)}]")
    settled(page)
    page.click("[data-key=back]")
    page.wait_for_selector(f"[data-key=written-{len(ids)}]", state="detached")
    settled(page)
    assert state(page)["written"] == ",".join(map(str, ids))
    page.click("[data-key=back]")
    page.wait_for_selector(f"[data-key=written-{len(ids) - 1}]", state="detached")
    assert state(page)["written"] == ",".join(map(str, ids[:-1]))


@pytest.mark.browser
def test_pointing_at_attention_shows_the_weight(look, models):
    page = look("turned", SENTENCE, "attention", layer="encoder.1.attention", head="2")
    maps = models["turned"].explain(SENTENCE, "attention").data["maps"]
    weights = next(m for m in maps if m["name"] == "encoder.1.attention")["weights"]
    hover(page, "attention", 2, 1)
    assert value(page, "seq-matrix .readout b") == pytest.approx(weights[1, 2, 1], rel=1e-5)
    assert page.locator("button.head").count() == sum(len(m["weights"]) for m in maps)
    page.click("[data-key='head-decoder.0.cross-0']")
    page.wait_for_selector("h3:has-text('decoder.0.cross, head 1')")
    cross = next(m for m in maps if m["name"] == "decoder.0.cross")["weights"]
    page.focus("seq-matrix canvas")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert value(page, "seq-matrix .readout b") == pytest.approx(cross[0, 1, 1], rel=1e-5)
    page.focus("seq-lines canvas")
    page.keyboard.press("ArrowDown")
    assert "attends to" in page.inner_text("seq-lines .readout")


@pytest.mark.browser
def test_attention_of_another_hypothesis(look, models):
    page = look("turned", SENTENCE, "attention", hypothesis="2")
    second = models["turned"].explain(SENTENCE, "attention", hypothesis=2).data["maps"][-1]
    hover(page, "attention", 0, 1)
    assert value(page, "seq-matrix .readout b") == pytest.approx(
        second["weights"][:, 0, 1].mean(), rel=1e-4
    )


@pytest.mark.browser
def test_attention_of_a_long_input_comes_from_its_trace(look, models):
    long = "3 mai 1997 " * 30
    page = look("dates", long, "attention")
    maps = models["dates"].explain(long, "attention").data["maps"]
    assert "weights" not in maps[0]
    hover(page, "attention", 0, int(maps[0]["looks_at"][0, 0]))
    assert value(page, "seq-matrix .readout b") == pytest.approx(maps[0]["weight"][0, 0], abs=0.06)


@pytest.mark.browser
def test_attention_over_a_served_or_uploaded_picture(look, models, tmp_path):
    model, page = models["scenes"], look("scenes", None, "attention")
    shown = page.locator(".examples img")
    assert shown.count() == 5
    different = {each.source.place: each.source for each in held_out(model.path / RUN / STORES)}
    for place, source in islice(enumerate(different.values()), 0, 5, 3):
        shown.nth(place).click()
        settled(page)
        weights = model.explain(source, "attention").data["maps"][-1]["weights"]
        hover(page, "attention", 0, 2)
        assert value(page, "seq-matrix .readout b") == pytest.approx(
            weights[:, 0, 2].mean(), rel=1e-4
        )
        assert page.locator("figure svg image").count() >= 1
    pixels = np.load(model.path.parent / "shapes.npz")["images"][0]
    (tmp_path / "mine.png").write_bytes(png(pixels))
    page.set_input_files("input[type=file]", tmp_path / "mine.png")
    until(page, "location.hash.includes('mine.png')")
    page.click("#tab-compare")
    page.wait_for_selector(".answer bdi")
    assert page.locator(".answer bdi").first.inner_text() == (
        model.predict([pixels])[0].output or "(nothing)"
    )


@pytest.mark.browser
def test_beam_replays_another_width(look, models):
    asked = {"beam": 4, "length_penalty": 1.0, "replay_beam": 2, "replay_penalty": 0.0}
    page = look("dates", DATE, "beam", beam="4", penalty="1", replay_beam="2", replay_penalty="0")
    said = models["dates"].explain(DATE, "beam", **asked).data
    assert ranked(page, "found") == texts(said["hypotheses"])
    assert ranked(page, "replayed") == texts(said["replayed"])
    assert page.locator(".tree .node").count() == len(said["nodes"]) + 1
    assert page.locator(".tree .node.best").count() == len(said["hypotheses"][0]["path"]) + 1
    page.locator("input[type=range]").nth(2).evaluate(
        "s => { s.value = 4; s.dispatchEvent(new Event('input')) }"
    )
    until(page, "location.hash.includes('replay_beam=4')")
    settled(page)
    again = models["dates"].explain(DATE, "beam", **{**asked, "replay_beam": 4}).data["replayed"]
    assert ranked(page, "replayed") == texts(again) != []
    assert value(page, ".ranking.replayed td") == pytest.approx(again[0]["score"], rel=1e-4)


@pytest.mark.browser
def test_inside_gates_through_time(look, models):
    page = look("book", TEXT, "inside", look="gates", unit="3")
    stages = {stage["name"]: stage for stage in models["book"].explain(TEXT, "lens").data["stages"]}
    forget, cell = (stages[f"decoder.0.{leaf}"]["values"] for leaf in "fc")
    assert value(page, "[data-series='forget gate']") == pytest.approx(forget[-1, 3], rel=1e-5)
    assert value(page, "[data-series=cell]") == pytest.approx(cell[-1, 3], rel=1e-5)


@pytest.mark.browser
def test_inside_text_by_a_unit_and_saliency(look, models):
    page = look("book", TEXT, "inside", look="cells", layer="decoder.0.c", unit="2")
    cells = models["book"].explain(TEXT, "cells", layer="decoder.0.c", unit=2).data
    assert value(page, ".tokens .token >> nth=4") == pytest.approx(cells["values"][4], rel=1e-5)
    page = look("dates", DATE, "inside", look="saliency", position="2", method="gradient")
    tokens, shares = (
        models["dates"].explain(DATE, "saliency", position=2, method="gradient").data["source"]
    )
    shown = page.locator("[aria-label^='The source'] .token")
    assert shown.count() == len(tokens)
    assert float(shown.nth(3).get_attribute("data-value")) == pytest.approx(shares[3], rel=1e-4)


@pytest.mark.browser
def test_inside_shows_any_view(look, models):
    """A new view needs no code on the page: it is offered under its name, and its pictures are drawn."""
    page = look("book", TEXT, "inside", look="surprisal")
    assert "surprisal" in page.locator("select option").all_inner_texts()
    assert page.locator("main svg").count() >= 1


@pytest.mark.browser
def test_inside_gradient_verdict(look, models):
    page = look("book", TEXT, "inside", look="gradients")
    said = models["book"].explain(TEXT, "gradients").data
    assert [
        page.locator(".verdict").nth(k).inner_text() for k in range(len(said["sentences"]))
    ] == said["sentences"]
    assert page.locator(f".verdict.{said['verdicts'][0]}").count() >= 1


@pytest.mark.browser
def test_what_if_ablates_a_head_or_replaces_a_word(look, models):
    page = look("turned", SENTENCE, "what-if")
    page.click("[data-ablate='decoder.1.cross.heads:1']")
    page.wait_for_selector(".answer.after")
    said = models["turned"].explain(SENTENCE, "what-if", ablate=["decoder.1.cross.heads:1"]).data
    assert page.inner_text(".answer.before bdi") == (said["before"] or "(nothing)")
    assert page.inner_text(".answer.after bdi") == (said["after"] or "(nothing)")
    change = said["log_probability_after"][0] - said["log_probability_before"][0]
    assert value(page, ".bars td") == pytest.approx(change, rel=1e-3, abs=1e-6)
    page.click("[data-key=undo]")
    page.wait_for_selector(".answer.after", state="detached")
    page.fill("[data-key=word-1]", "g")
    page.press("[data-key=word-1]", "Enter")
    page.wait_for_selector(".answer.after")
    edited = models["turned"].explain(SENTENCE, "what-if", replace="2=g").data
    assert page.inner_text(".answer.after bdi") == (edited["after"] or "(nothing)")


@pytest.mark.browser
def test_compare_two_models_and_a_checkpoint(look, models):
    page = look("turned", SENTENCE, "compare", **{"with": "dates"})
    said = [models[name].predict([SENTENCE])[0].output for name in ("turned", "dates")]
    assert page.locator(".answer bdi").all_text_contents() == [text or "(nothing)" for text in said]
    page = look("turned", SENTENCE, "compare", **{"with": "turned@last"})
    assert page.locator("h3").all_inner_texts() == ["turned", "turned@last"]


@pytest.mark.browser
def test_training_draws_the_run_and_its_new_lines(look, models):
    log = models["book"].path / "run" / "metrics.jsonl"
    rows = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    last = [row["loss"] for row in rows if "loss" in row][-1]
    page = look("book", TEXT, "training")
    assert value(page, "[data-series=loss]") == pytest.approx(last, rel=1e-9)
    assert (
        value(page, "[data-series='validation loss']")
        == [r["validation"]["loss"] for r in rows if "validation" in r][-1]
    )
    assert page.inner_text("[class~=control] output") in lab.checkpoints(models["book"].path)
    with log.open("a", encoding="utf-8") as file:
        file.write(
            json.dumps({"step": rows[-1]["step"] + 1, "loss": 0.125, "seconds": 99.0}) + "\n"
        )
    page = look("book", TEXT, "training")
    assert value(page, "[data-series=loss]") == 0.125
    assert "in progress" in page.inner_text("[role=status].hint")
    with log.open("a", encoding="utf-8") as file:
        file.write(
            json.dumps({"step": rows[-1]["step"] + 2, "loss": 0.0625, "seconds": 99.5}) + "\n"
        )
    page.wait_for_selector("[data-series=loss][data-value='0.0625']")


# The page as a whole


@pytest.mark.browser
def test_a_pane_that_does_not_apply_names_those_that_do(look):
    page = look("tagger", WORDS, "decode")
    assert "does not generate token by token" in page.inner_text(".empty")
    assert page.locator(".empty button").all_inner_texts() == [
        "Follow",
        "Inside",
        "What if",
        "Compare",
        "Training",
    ]
    page.click(".empty button >> nth=1")
    page.wait_for_selector("#tab-inside[aria-selected=true]")


@pytest.mark.browser
def test_the_address_is_the_state(look):
    page = look("dates", DATE, "attention")
    page.click("#tab-beam")
    settled(page)
    page.fill("textarea", "4 juin 1960")
    page.press("textarea", "Enter")
    settled(page)
    assert state(page) | {"model": "dates", "input": "4 juin 1960", "pane": "beam"} == state(page)
    link = page.url
    page.go_back()
    until(page, "document.querySelector('textarea').value.includes('mai')")
    page.goto(link)
    page.reload()
    settled(page)
    assert page.input_value("textarea") == "4 juin 1960"
    assert page.get_attribute("#tab-beam", "aria-selected") == "true"


@pytest.mark.browser
def test_the_keyboard_moves_between_tabs(look):
    page = look("dates", DATE, "follow")
    page.focus("#tab-follow")
    for key, pane in (
        ("ArrowRight", "decode"),
        ("End", "training"),
        ("ArrowRight", "follow"),
        ("ArrowLeft", "training"),
    ):
        page.keyboard.press(key)
        page.wait_for_selector(f"#tab-{pane}[aria-selected=true]")
        assert page.evaluate("document.activeElement.id") == f"tab-{pane}"
    assert page.locator("[role=tab][tabindex='0']").count() == 1


@pytest.mark.browser
def test_every_control_has_a_name_and_an_explanation(look):
    page = look("turned", SENTENCE, "follow")
    for pane in PANES:
        page.click(f"#tab-{pane}")
        settled(page)
        unnamed = page.evaluate(UNNAMED)
        assert unnamed == [], pane


@pytest.mark.browser
def test_nothing_scrolls_sideways_on_a_small_screen(look):
    page = look("turned", SENTENCE, "follow", width=400)
    for pane in PANES:
        page.click(f"#tab-{pane}")
        settled(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= 400, pane


@pytest.mark.browser
def test_text_is_not_interpreted_as_html(look):
    given = '<script>document.title="gone"</script> "שלום" 🦊'
    page = look("book", given, "decode")
    assert page.inner_text(".token.prompt") == given
    assert page.input_value("textarea") == given
    assert page.title().startswith("Decode")
    for pane in PANES:
        page.click(f"#tab-{pane}")
        settled(page)
        assert page.locator("main script").count() == 0
    assert page.title().startswith("Training")


@pytest.mark.browser
def test_errors_of_the_server_are_shown(look):
    page = look("dates", DATE, "inside", look="saliency", position="99")
    assert page.inner_text(".empty.error p") == "There is no position 99 in the answer"
    assert page.inner_text(".empty.error .hint").startswith("Positions are: 1 ")
    page = look("no-such-model")
    assert "no model 'no-such-model'" in page.inner_text("#message")


@pytest.mark.browser
def test_a_view_can_be_saved_as_a_file(look):
    page = look("dates", DATE, "beam")
    with page.expect_download() as saved:
        page.click("text=Save this view")
    text = Path(saved.value.path()).read_text("utf-8")
    assert saved.value.suggested_filename == "dates-beam.html"
    assert "beam search of dates-attention" in text
    assert "src=" not in text.split("<body>")[0]


# What needs no browser


def test_the_page_has_the_colours_of_the_pictures():
    style, script = (PAGE / "page.css").read_text("utf-8"), (PAGE / "palette.js").read_text("utf-8")
    light, dark = re.findall(r":root \{(.*?)\}", style, re.S)[:2]
    for role, (on_light, on_dark) in palette.ROLES.items():
        assert f"--{role}: {on_light}" in light
        assert f"--{role}: {on_dark}" in dark
        assert (
            f".fill-{role} {{ fill: var(--{role}) }} .stroke-{role} {{ stroke: var(--{role}) }}"
            in style
        )
    # the first category is the page's accent; the grey of the last fits both themes
    for stops in (palette.SEQUENTIAL, palette.DIVERGING, palette.CATEGORICAL[1:-1]):
        assert list(stops) == re.findall(
            r'"(#\w{6})"', script[script.index(stops[0]) - 1 : script.index(stops[-1]) + 8]
        )


def test_the_page_is_small_and_loads_nothing_from_elsewhere():
    scripts = {file.name: file.read_text("utf-8") for file in PAGE.glob("*.js")}
    assert sum(len(text.splitlines()) for text in scripts.values()) < 4000
    for name, text in (scripts | {"page.css": (PAGE / "page.css").read_text("utf-8")}).items():
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b", text
        ), name
        assert set(re.findall(r"https?://[^\s\"']+", text)) <= {"http://www.w3.org/2000/svg"}, name
        assert max(map(len, text.splitlines())) <= 120, name
