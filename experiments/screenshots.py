"""Pictures of the page for the documentation: `python experiments/screenshots.py http://127.0.0.1:8000 [FOLDER]`.

The server must have the models that SHOTS names: `dates-attention` and `dates` of the demo, a translator `en-fr`, a
language model `char-lstm` and a tagger `tagger`. A shot whose model is not there is left out, and said so.
"""

import json
import sys
from pathlib import Path
from urllib.parse import quote, urlencode
from urllib.request import urlopen

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

DATE = "samedi 3 mai 1997"
WORDS = "I think the new cafe in town is good ."
TEXT = "the time traveller said that the machine"
SENTENCE = "A man sleeping in a green room on a couch."
SHOTS = {  # name: (model, input, pane, controls, width, dark)
    "follow": ("en-fr", SENTENCE, "follow", {"stage": "encoder.0.attention.score", "cell": "4,5"}, 1280, False),
    "follow-gate": ("dates-attention", DATE, "follow", {"stage": "decoder.0.f", "cell": "3,17"}, 1280, True),
    "decode": ("char-lstm", TEXT, "decode", {"temperature": "0.7", "top_k": "8", "top_p": "0.95"}, 1280, False),
    "attention": ("en-fr", SENTENCE, "attention", {"layer": "decoder.2.cross"}, 1280, False),
    "attention-dates": ("dates-attention", DATE, "attention", {}, 1280, True),
    "beam": ("en-fr", SENTENCE, "beam", {"beam": "4", "replay_beam": "2", "replay_penalty": "0"}, 1280, False),
    "inside": ("char-lstm", TEXT, "inside", {"look": "gates", "unit": "146", "what": "c"}, 1280, False),
    "inside-saliency": ("tagger", WORDS, "inside", {"look": "saliency", "position": "6"}, 1280, False),
    "what-if": ("en-fr", SENTENCE, "what-if", {"ablate": "decoder.2.cross.heads"}, 1280, False),
    "compare": ("dates-attention", DATE, "compare", {"with": "dates", "view": "saliency"}, 1280, False),
    "training": ("dates-attention", DATE, "training", {}, 1280, False),
    "small": ("dates-attention", DATE, "attention", {}, 400, True),
}  # fmt: skip
TALLEST = 1500  # pixels that are kept of a long page


def main() -> None:
    """Take the pictures of all models that the server has."""
    address = sys.argv[1].rstrip("/")
    folder = (
        Path(sys.argv[2]) if len(sys.argv) > 2 else Path(__file__).parents[1] / "docs" / "gallery"
    )
    with urlopen(f"{address}/v1/models") as answer:
        there = {model["name"] for model in json.load(answer)["models"]}
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path="/usr/bin/chromium")
        for name, (model, given, pane, controls, width, dark) in SHOTS.items():
            if model not in there:
                sys.stderr.write(f"{name}: the server has no model '{model}'\n")
                continue
            said = urlencode(
                {"model": model, "input": given, "pane": pane, **controls}, quote_via=quote
            )
            shoot(
                browser, f"{address}/#{said}", folder / f"page-{name}.png", width=width, dark=dark
            )
        browser.close()


def shoot(browser: Browser, address: str, path: Path, *, width: int, dark: bool) -> None:
    """Take a picture of a view after it is drawn."""
    page = browser.new_page(
        viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light"
    )
    page.goto(address)
    page.wait_for_selector("#pane:not([busy]) .result > *", timeout=60_000)
    for _ in range(20 if "pane=decode" in address else 0):  # so that there is some text
        page.click("[data-key=step]")
        page.wait_for_load_state("networkidle")
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(500)
    height = min(TALLEST, page.evaluate("document.documentElement.scrollHeight"))
    page.screenshot(
        path=path, clip={"x": 0, "y": 0, "width": width, "height": height}, full_page=True
    )
    page.close()
    Image.open(path).convert("RGB").quantize(128, dither=Image.Dither.NONE).save(
        path, optimize=True
    )


if __name__ == "__main__":
    main()
