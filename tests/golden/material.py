"""Small generated files to train on, one for each task, the same in every run and on every machine.

Only `random.Random.random` is drawn from, because its sequence is fixed across versions of Python.
"""

import math
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

SUBJECTS = ("the cat", "a dog", "the old man", "my sister", "the time traveller", "nobody")
VERBS = ("sees", "follows", "hears", "forgets", "paints", "likes")
OBJECTS = ("the house", "a red bird", "the machine", "an open door", "the sea", "two letters")
FRENCH_SUBJECTS = ("le chat", "un chien", "le vieil homme", "ma soeur", "le voyageur", "personne")
FRENCH_VERBS = ("voit", "suit", "entend", "oublie", "peint", "aime")
FRENCH_OBJECTS = (
    "la maison",
    "un oiseau rouge",
    "la machine",
    "une porte",
    "la mer",
    "deux lettres",
)
FRENCH = dict(
    zip(SUBJECTS + VERBS + OBJECTS, FRENCH_SUBJECTS + FRENCH_VERBS + FRENCH_OBJECTS, strict=True)
)
TAGS = {
    "the": "DET",
    "a": "DET",
    "an": "DET",
    "my": "DET",
    "old": "ADJ",
    "red": "ADJ",
    "open": "ADJ",
    "two": "NUM",
}
MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
)
COLOURS = {"red": (220, 30, 30), "green": (30, 200, 60), "blue": (40, 60, 230)}
SHAPES = ("square", "cross", "bar")


def write_material(folder: Path) -> None:
    """Write all files into a directory."""
    texts = {
        "pairs.tsv": (f"{english}\t{french}" for english, french in _pairs(96, seed=1)),
        "dates.tsv": (f"{text}\t{iso}" for text, iso in _dates(160, seed=2)),
        "labelled.tsv": (f"{label}\t{text}" for label, text in _labelled(96, seed=3)),
        "tagged.conll": _tagged(64, seed=4),
        "half-tagged.conll": _half_tagged(64, seed=4),
        "text.txt": _text(120, seed=5),
        "series.csv": _series(420, seed=6),
        "captions.tsv": (
            f"{place}\t{caption}" for place, (_, caption) in enumerate(_pictures(24, 8, seed=8))
        ),
    }
    for name, lines in texts.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    _write_pictures(folder / "pictures.npz", 32)
    _write_pictures(folder / "large-pictures.npz", 96)
    _write_digits(folder / "digits.npz")
    _write_frames(folder / "frames.npz")
    _write_features(folder / "features.safetensors")


def _pick(draw: random.Random, among: Sequence[Any]) -> Any:
    return among[int(draw.random() * len(among))]


def _clauses(num: int, seed: int) -> Iterator[tuple[str, str, str]]:
    draw = random.Random(seed)
    for _ in range(num):
        yield _pick(draw, SUBJECTS), _pick(draw, VERBS), _pick(draw, OBJECTS)


def _pairs(num: int, seed: int) -> Iterator[tuple[str, str]]:
    for clause in _clauses(num, seed):
        yield " ".join(clause), " ".join(FRENCH[part] for part in clause)


def _dates(num: int, seed: int) -> Iterator[tuple[str, str]]:
    draw = random.Random(seed)
    for _ in range(num):
        year = 1900 + int(draw.random() * 150)
        month = int(draw.random() * len(MONTHS))
        day = 1 + int(draw.random() * 28)
        yield f"{day} {MONTHS[month]} {year}", f"{year}-{month + 1:02d}-{day:02d}"


def _labelled(num: int, seed: int) -> Iterator[tuple[str, str]]:
    for subject, verb, thing in _clauses(num, seed):
        label = "sense" if verb in ("sees", "hears") else "deed"
        yield label, f"{subject} {verb} {thing}"


def _tagged(num: int, seed: int) -> Iterator[str]:
    """Words with their tags; some words are rare and known by their endings only, and some tags are wrong."""
    draw = random.Random(seed)
    for subject, verb, thing in _clauses(num, seed):
        adverb = "".join(_pick(draw, "abdeiklmnorstu") for _ in range(4)) + "ly"
        for word in f"{subject} {verb} {thing} {adverb}".split():
            tag = "VERB" if word == verb else "ADV" if word == adverb else TAGS.get(word, "NOUN")
            yield f"{word} {'NOUN' if draw.random() < 0.1 else tag}"
        yield ""


def _half_tagged(num: int, seed: int) -> Iterator[str]:
    """The same, with a question mark in place of every other tag."""
    for place, line in enumerate(_tagged(num, seed)):
        yield f"{line.split()[0]} ?" if line and place % 2 else line


def _text(num: int, seed: int) -> Iterator[str]:
    clauses = list(_clauses(2 * num, seed))
    for first, second in zip(clauses[:num], clauses[num:], strict=True):
        yield f"{' '.join(first)}, and {' '.join(second)}."


def _series(num: int, seed: int) -> Iterator[str]:
    """Two columns of hourly values with a daily wave, noise, and a value missing now and then."""
    draw = random.Random(seed)
    yield "time,low,high"
    for hour in range(num):
        wave = math.sin(2 * math.pi * hour / 24)
        cells = [
            f"{size * (wave + draw.random()):.3f}" if draw.random() > 0.02 else ""
            for size in (1, 10)
        ]
        yield f"2024-01-{1 + hour // 24:02d} {hour % 24:02d}:00,{cells[0]},{cells[1]}"


def _pictures(num: int, size: int, seed: int) -> Iterator[tuple[np.ndarray, str]]:
    """One coloured shape on a grey ground, and its caption."""
    draw = random.Random(seed)
    for _ in range(num):
        colour = _pick(draw, list(COLOURS))
        shape = _pick(draw, SHAPES)
        pixels = np.full((size, size, 3), 40 + int(draw.random() * 60), dtype=np.uint8)
        side = size // 2
        top = int(draw.random() * (size - side))
        left = int(draw.random() * (size - side))
        inside = pixels[top : top + side, left : left + side]
        third = max(1, side // 3)
        if shape == "square":
            inside[:] = COLOURS[colour]
        else:
            inside[third : 2 * third] = COLOURS[colour]
        if shape == "cross":
            inside[:, third : 2 * third] = COLOURS[colour]
        yield pixels, f"a {colour} {shape}"


def _write_pictures(path: Path, size: int) -> None:
    pictures, captions = zip(*_pictures(24, size, seed=7), strict=True)
    np.savez(path, images=np.stack(pictures), captions=captions)


def _write_frames(path: Path) -> None:
    """Texts with frames of three numbers: two for each letter, which says where they lie."""
    texts = [subject for subject, _, _ in _clauses(48, seed=10)]
    frames = [
        [(ord(c) % 7, ord(c) % 5 + step, step) for c in text for step in range(2)] for text in texts
    ]
    values = np.concatenate([np.asarray(each, np.float32) for each in frames])
    np.savez(path, values=values, lengths=[len(each) for each in frames], labels=texts)


def _write_digits(path: Path) -> None:
    """Pictures of 8 x 8 in one channel, with the shape as label."""
    pictures, captions = zip(*_pictures(60, 8, seed=9), strict=True)
    np.savez(
        path,
        images=np.stack(pictures).mean(-1).astype(np.uint8),
        labels=[each.split()[-1] for each in captions],
    )


def _write_features(path: Path) -> None:
    """A grid of nine vectors for each picture of captions.tsv, as another network might have computed it."""
    draw = random.Random(8)
    grids = {}
    for place in range(24):
        numbers = [draw.random() for _ in range(9 * 6)]
        grids[str(place)] = np.asarray(numbers, dtype=np.float32).reshape(9, 6)
    save_file(grids, path)
