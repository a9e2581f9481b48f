"""Pictures of every view of every kind of model: `make gallery` trains ten small models on generated data.

Pictures go to docs/gallery, with a page of them (README.md); models stay in `runs/gallery`, and are not trained again.
"""

import datetime
import math
import random
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from seqlab import lab
from seqlab.data.scenes import make_pictures, scene
from seqlab.data.synthetic import split_dates
from seqlab.errors import UsageError
from seqlab.explain.views import VIEWS

PICTURES = Path(__file__).parents[1] / "docs" / "gallery"
RUNS = Path("runs/gallery")
MONTHS = ["janvier", "février", "mars", "avril", "mai", "juin"]
MONTHS += ["juillet", "août", "septembre", "octobre", "novembre", "décembre"]
DAYS = ["lundi", "mardi", "mercredi", "jeudi", "vendredi", "samedi", "dimanche"]
DATE = "samedi 3 mai 1997"
PROSE = 'A model (`seqlab train`, "on your own file") is measured (in `docs/results.md`) beside its baseline.'
SENTENCE = "rendez-vous samedi 3 mai 1997 à Lyon"

# name: task, recipe, settings, data, what it is given
MODELS: dict[str, tuple[str, str, list[str], Callable[[Path], list[Path]], str]] = {
    "char-lstm": (
        "lm",
        "char-lstm",
        ["model.decoder.size=192", "train.steps=1500"],
        lambda f: [_prose(f)],
        PROSE,
    ),
    "gpt-tiny": (
        "lm",
        "gpt-tiny",
        ["train.steps=1500"],
        lambda f: [_prose(f)],
        "the model reads a line, and the ",
    ),
    "seq2seq": ("translate", "dates", [], lambda f: [_dates(f)], DATE),
    "attention": ("translate", "dates-attention", [], lambda f: [_dates(f)], DATE),
    "transformer": (
        "translate",
        "dates",
        [
            *(
                f"model.{side}.{key}"
                for side in ("encoder", "decoder")
                for key in ("kind=transformer", "layers=2")
            ),
            *("model.embedding=128", "train.optimizer=muon", "train.steps=1500"),
        ],
        lambda f: [_dates(f)],
        DATE,
    ),
    "universal": (
        "translate",
        "dates",
        [
            *(
                f"model.{side}.{key}"
                for side in ("encoder", "decoder")
                for key in ("kind=universal", "layers=4")
            ),
            *("model.embedding=128", "train.optimizer=muon", "train.steps=1000"),
        ],
        lambda f: [_dates(f)],
        DATE,
    ),
    "tagger": (
        "tag",
        "bilstm-tagger",
        ["train.epochs=2", "train.batch_tokens=512"],
        lambda f: [_tagged(f)],
        SENTENCE,
    ),
    "hmm": ("tag", "hmm-tagger", [], lambda f: [_tagged(f)], SENTENCE),
    "masked": (
        "mask",
        "bert-tiny",
        ["source.size=1500", "model.encoder.size=128", "train.steps=1200"],
        lambda f: [_prose(f)],
        "a model is a [MASK] of its parts, and a recipe says how",
    ),
    "captioner": (
        "caption",
        "shapes",
        ["train.steps=1200"],
        lambda f: [_captioned(f)],
        "captioned.npz/3",
    ),
    "glimpses": (
        "classify",
        "glimpse-digits",
        ["image.height=32", "image.width=32", "image.channels=3", "train.steps=800"],
        lambda f: [_circles(f)],
        "circles.npz/3",
    ),
    "kalman": ("forecast", "lds-forecast", ["train.steps=20"], lambda f: [_waves(f)], "waves.csv"),
}

# model, view, options: what is worth a place on the page
SHOWN: list[tuple[str, str, dict[str, Any]]] = [
    ("attention", "attention", {}),
    ("transformer", "attention", {}),
    ("universal", "lens", {"layer": "decoder.ponder"}),
    ("gpt-tiny", "attention", {}),
    ("masked", "attention", {}),
    ("attention", "lens", {"layer": "decoder.attention.weights"}),
    ("char-lstm", "lens", {"layer": "decoder.0.f"}),
    ("char-lstm", "surprisal", {}),
    ("attention", "beam", {}),
    ("char-lstm", "gradients", {}),
    ("transformer", "gradients", {}),
    ("char-lstm", "cells", {}),
    ("tagger", "saliency", {}),
    ("seq2seq", "saliency", {}),
    ("transformer", "what-if", {"ablate": ["decoder.0.cross.heads"]}),
    ("transformer", "positions", {}),
    ("tagger", "embeddings", {}),
    ("masked", "bpe", {}),
    ("attention", "training", {}),
    ("hmm", "trellis", {}),
    ("kalman", "band", {}),
    ("captioner", "maps", {}),
    ("glimpses", "glimpses", {}),
]


def main() -> None:
    RUNS.mkdir(parents=True, exist_ok=True)
    models = {name: _trained(name) for name in MODELS}
    page = [
        "# Gallery",
        "",
        "Each view on a small model, made by `make gallery`. The data are generated, or this project's own documents.",
        "",
    ]
    for name, view, options in SHOWN:
        model, given = models[name]
        file = PICTURES / f"{view}-{name}.png"
        seen = model.explain(given, view, **options)
        Image.open(BytesIO(seen.to_png(scale=1.25))).convert("RGB").quantize(64).save(
            file, optimize=True
        )
        page += [f"## `{view}`: {name}", "", f"![{seen.title}]({file.name})", ""]
        print(f"{file.name}: {file.stat().st_size / 1e3:.0f} kB", flush=True)
    page += [
        "# The page",
        "",
        "Made by `python experiments/screenshots.py ADDRESS`, of a server with models of real data.",
        "",
    ]
    for file in sorted(PICTURES.glob("page-*.png")):
        page += [
            f"## {file.stem.removeprefix('page-')}",
            "",
            f"![the page: {file.stem}]({file.name})",
            "",
        ]
    (PICTURES / "README.md").write_text("\n".join(page), "utf-8")
    for name, (model, given) in models.items():
        print(f"{name}: {', '.join(_applying(model, given))}", flush=True)


def _trained(name: str) -> tuple[lab.Model, Any]:
    task, recipe, settings, data, given = MODELS[name]
    folder = RUNS / name
    if not (folder / "manifest.json").exists():
        print(f"training {name}", flush=True)
        files = data(RUNS)
        lab.train(task, files, recipe=recipe, settings=settings, out=folder, overwrite=True)
    if (RUNS / given.split("/")[0]).is_file():
        given = str(RUNS / given)
    return lab.load(folder), given


def _applying(model: lab.Model, given: Any) -> Iterator[str]:
    """Yield the views that this model supports."""
    for view in VIEWS:
        try:
            model.explain(given, view)
        except UsageError:
            continue
        yield view


def _prose(folder: Path) -> Path:
    """Write the documents of this project as one text."""
    path = folder / "prose.txt"
    documents = (Path("README.md"), *sorted(PICTURES.parent.glob("*.md")))
    path.write_text("\n".join(file.read_text("utf-8") for file in documents), "utf-8")
    return path


def _dates(folder: Path) -> Path:
    path = folder / "dates.tsv"
    train, _ = split_dates(40_000, 1_000, seed=1)
    path.write_text("".join(f"{text}\t{iso}\n" for text, iso, _ in train), "utf-8")
    return path


def _tagged(folder: Path) -> Path:
    """Write French sentences with a date, as words with tags."""
    path, draw = folder / "tagged.tsv", random.Random(1)
    rows = []
    for _ in range(4000):
        day = datetime.date(1900, 1, 1) + datetime.timedelta(draw.randrange(73_000))
        words = [
            (DAYS[day.weekday()], "WEEKDAY"),
            (str(day.day), "DAY"),
            (MONTHS[day.month - 1], "MONTH"),
        ]
        words += [(str(day.year), "YEAR")] if draw.random() < 0.7 else []
        before = draw.choice(
            ["rendez-vous", "départ le", "née le", "il pleut depuis", "fermé jusqu'à"]
        ).split()
        after = draw.choice(
            ["", "à Lyon", "à midi", "au 3 rue de mai", "pour 12 personnes"]
        ).split()
        tagged = [(word, "O") for word in before] + words + [(word, "O") for word in after]
        rows.append("".join(f"{word}\t{label}\n" for word, label in tagged))
    path.write_text("\n".join(rows), "utf-8")
    return path


def _captioned(folder: Path) -> Path:
    path = folder / "captioned.npz"
    make_pictures("shapes", 6000, path, seed=1)
    return path


def _circles(folder: Path) -> Path:
    """Write pictures of two shapes, labelled by whether one is a circle."""
    path = folder / "circles.npz"
    scenes = [scene(row, seed=2) for row in range(4000)]
    labels = ["circle" if "circle" in each.nouns else "no circle" for each in scenes]
    np.savez_compressed(path, images=np.stack([each.pixels for each in scenes]), labels=labels)
    return path


def _waves(folder: Path) -> Path:
    """Write a year of daily values: a weekly and a slow wave, noise, and a gap."""
    path, draw = folder / "waves.csv", random.Random(1)
    lines = ["day,value"]
    for t in range(730):
        day = datetime.date(2024, 1, 1) + datetime.timedelta(t)
        value = (
            10
            + 3 * math.sin(2 * math.pi * t / 7)
            + 2 * math.sin(2 * math.pi * t / 200)
            + draw.gauss(0, 0.7)
        )
        lines.append(f"{day},{'' if 690 <= t < 700 else round(value, 2)}")
    path.write_text("\n".join(lines) + "\n")
    return path


if __name__ == "__main__":
    main()
