"""Pictures on the command line: generate, train, caption, score; and the messages for damaged ones."""

import json
import re
import struct
import zlib

import numpy as np
import pytest
from PIL import Image as Pillow

from seqlab.data.png import png

SETTINGS = (
    *(
        "image.height=8",
        "image.width=8",
        "model.embedding=8",
        "model.encoder.size=8",
        "model.encoder.layers=2",
    ),
    *(
        "model.encoder.channels=4",
        "model.decoder.size=8",
        "target.min_count=1",
        "train.steps=3",
        "decode.max_length=6",
    ),
    "data.validation=0.2",
)
WORDS = [word for setting in SETTINGS for word in ("--set", setting)]


@pytest.fixture(scope="module")
def shapes(run, tmp_path_factory):
    path = tmp_path_factory.mktemp("shapes") / "shapes.npz"
    result = run("data", "make", "shapes", "--num", 24, "--out", path)
    assert result.stdout == f"{path}\n"
    return path


@pytest.fixture(scope="module")
def model(run, shapes, tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "m"
    result = run("train", "caption", shapes, "-o", path, "-q", "--json", *WORDS)
    assert result.code == 0, result.stderr
    assert list(json.loads(result.stdout)["validation"]["baselines"]) == [
        "most frequent caption",
        "shuffled pictures",
    ]
    return path


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_captions_of_pictures(run, model, shapes, here):
    pixels = np.load(shapes)["images"][5]
    (here / "five.png").write_bytes(png(pixels))
    by_path, inside = run("predict", model, "five.png"), run("predict", model, f"{shapes}/images/5")
    assert by_path.code == 0
    assert by_path.stdout == inside.stdout
    assert by_path.stdout.count("\n") == 1
    listed = run("predict", model, stdin=b"five.png\nfive.png\n")
    assert listed.stdout == 2 * by_path.stdout
    [answer] = [
        json.loads(line) for line in run("predict", model, "five.png", "--json").stdout.splitlines()
    ]
    assert answer["input"] == "five.png"


def test_scores_and_report(run, model, shapes, here):
    result = run("evaluate", model, shapes, "--json", "--report", "page.html")
    scores = json.loads(result.stdout)
    assert scores["examples"] == 24
    assert {
        "exact",
        "bleu",
        "bleu_1",
        "likelihood_gap",
        "bootstrap_p",
        "attention_on_object",
    } <= scores.keys()
    page = (here / "page.html").read_text()
    assert page.count("data:image/png;base64,") == 20
    assert "show-attend-tell on 24 pictures" in page


def test_a_report_needs_a_captioner(run, here, models):
    result = run("evaluate", models["classify"], "--report", "page.html")
    assert result.code == 2
    assert result.error[0] == "--report is only for models of the task 'caption'"
    assert not (here / "page.html").exists()


def test_pictures_are_not_printed(run):
    result = run("data", "make", "shapes")
    assert result.code == 2
    assert result.error == (
        "'shapes' is a set of images, which cannot be printed",
        "name the file to write: --out FILE.npz",
    )


def test_looking_at_pictures(run, shapes):
    facts = json.loads(run("data", "look", "caption", shapes, "--json").stdout)
    assert (facts["examples"], facts["repeated_sources"]) == (48, 24)
    assert "images/0" in facts["first"]


def bomb():
    chunk = b"IHDR" + struct.pack(">IIBBBBB", 20_000, 20_000, 8, 2, 0, 0, 0)
    header = struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))
    return b"\x89PNG\r\n\x1a\n" + header + struct.pack(">I", 9) + b"IDAT" + zlib.compress(b"0")


BAD = {
    "cut.jpg": "cut.jpg: this cannot be read as a picture: ",
    "one.png": "one.png: 1 x 1 pixels, where 2 x 2 are needed",
    "huge.png": "huge.png: the picture's header declares too many pixels, more than 64,000,000 in all; "
    "it was not decoded",
    "none.png": "none.png: there is no such picture",
    "eps.png": "eps.png: this cannot be read as a picture: it is none of PNG, ",
}


@pytest.fixture
def bad(here):
    noisy = Pillow.fromarray(np.random.default_rng(1).integers(0, 256, (64, 64, 3), dtype=np.uint8))
    noisy.save("whole.jpg")
    (here / "cut.jpg").write_bytes((here / "whole.jpg").read_bytes()[:1500])
    (here / "one.png").write_bytes(png(np.zeros((1, 1, 3), dtype=np.uint8)))
    (here / "huge.png").write_bytes(bomb())
    noisy.save("eps.png", "eps")
    frames = [Pillow.new("RGB", (8, 8), shade) for shade in ("red", "blue")]
    frames[0].save("moving.gif", save_all=True, append_images=frames[1:])
    return here


@pytest.mark.parametrize("name", BAD)
def test_a_bad_picture_is_reported_by_name(run, model, bad, name):
    result = run("predict", model, name)
    assert result.code == 1
    assert result.error[0].startswith(BAD[name])


@pytest.mark.parametrize("name", BAD)
def test_one_bad_picture_among_good_ones_is_refused_or_skipped(run, bad, name):
    lines = [f"whole.jpg\ta picture {n}\n" for n in range(4)] + [
        f"moving.gif\ta square {n}\n" for n in range(4)
    ]
    (bad / "t.tsv").write_text("".join([*lines, f"{name}\tnothing\n"]))
    refused = run("train", "caption", "t.tsv", "-o", "m", "-q", *WORDS)
    assert refused.code == 1
    assert refused.error[0].startswith(f"t.tsv:9 ({name})")
    assert not (bad / "m").exists()
    skipped = run("train", "caption", "t.tsv", "-o", "m", "-q", *WORDS, "--set", "image.bad=skip")
    assert skipped.code == 0, skipped.stderr
    assert re.search(rf"warning: t.tsv:9 \({name}\): .*; skipped", skipped.stderr)
    assert (
        "warning: t.tsv:5 (moving.gif): 2 pictures in one file; only the first is used"
        in skipped.stderr
    )
    assert (
        "no caption or label" in skipped.stderr
    )  # the other bad ones, of which the table does not speak
