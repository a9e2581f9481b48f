"""Pictures that need no download: coloured shapes at known positions, and small handwritten digits.

shapes          captions "a red circle above a blue square" and "a blue square below a red circle" of one picture
digits          scikit-learn's 8 x 8 digits, four in five of them; digits-test is the rest
shifted-digits  the same at random positions on a field of 20 x 20; shifted-digits-test likewise
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, UInt8

from seqlab.errors import UsageError, package

SIDE = 32
COLOURS = {
    "red": (220, 40, 40),
    "green": (40, 190, 60),
    "blue": (60, 80, 230),
    "yellow": (235, 215, 50),
    "purple": (170, 60, 200),
    "white": (240, 240, 240),
}
SHAPES = ("circle", "square", "triangle", "cross", "ring")
SETS = ("shapes", "digits", "digits-test", "shifted-digits", "shifted-digits-test")
FIELD = 20  # pixels on a side of a shifted digit's field
_SAMPLES = 4  # points per side of a pixel, for smooth edges


class Scene(NamedTuple):
    """A picture of two shapes, two captions, and a box for each noun: left, top, right, bottom, as fractions."""

    pixels: UInt8[np.ndarray, "H W C"]
    captions: tuple[str, str]
    nouns: tuple[str, str]
    boxes: tuple[tuple[float, ...], tuple[float, ...]]


def make_pictures(kind: str, num: int, path: str | Path, *, seed: int) -> int:
    """Write a set of pictures as an .npz that `train` reads; return the number of pictures."""
    if kind not in SETS:
        raise UsageError(
            f"there is no set of pictures '{kind}'", hint=f"there are: {', '.join(SETS)}."
        )
    if Path(path).suffix != ".npz":
        raise UsageError(
            f"{path}: pictures are written into an .npz file", hint="give a name that ends in .npz."
        )
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    if kind == "shapes":
        scenes = [scene(row, seed=seed) for row in range(num)]
        np.savez_compressed(
            path,
            images=np.stack([each.pixels for each in scenes]),
            captions=[each.captions for each in scenes],
            nouns=[each.nouns for each in scenes],
            boxes=np.asarray([each.boxes for each in scenes], dtype=np.float32),
        )
        return num
    images, labels = _digits(test=kind.endswith("-test"))
    if kind.startswith("shifted"):
        images = np.stack([_shifted(digit, row, seed=seed) for row, digit in enumerate(images)])
    np.savez_compressed(path, images=images, labels=labels)
    return len(images)


def scene(row: int, *, seed: int) -> Scene:
    """Draw picture `row` of the set; it depends on (seed, row) alone."""
    random = np.random.default_rng((seed, row))
    upright = bool(random.integers(2))
    nouns = random.choice(SHAPES, 2, replace=False).tolist()
    colours = random.choice(list(COLOURS), 2).tolist()
    while (
        True
    ):  # until they do not overlap, and are further apart in one direction than in the other
        radii = random.integers(10, 15, 2) / 2
        first, second = (random.uniform(r, SIDE - r, 2) for r in radii)
        across, along = (second - first) if upright else (second - first)[::-1]
        if along > radii.sum() + 1 and along > abs(across) + 3:
            break
    pixels = random.integers(20, 100) + random.normal(0, 6, (SIDE, SIDE, 3))
    for noun, colour, radius, centre in zip(nouns, colours, radii, (first, second), strict=True):
        shade = np.asarray(COLOURS[colour]) + random.normal(0, 8, 3)
        coverage = _coverage(noun, float(radius), centre)[..., None]
        pixels = (1 - coverage) * pixels + coverage * shade
    relation, inverse = ("above", "below") if upright else ("left of", "right of")
    left, right = (f"a {colour} {noun}" for colour, noun in zip(colours, nouns, strict=True))
    boxes = [
        tuple(float(corner) / SIDE for corner in (*(centre - radius), *(centre + radius)))
        for centre, radius in zip((first, second), radii, strict=True)
    ]
    return Scene(
        pixels.clip(0, 255).astype(np.uint8),
        (f"{left} {relation} {right}", f"{right} {inverse} {left}"),
        (nouns[0], nouns[1]),
        (boxes[0], boxes[1]),
    )


def _coverage(
    noun: str, radius: float, centre: Float[np.ndarray, " 2"]
) -> Float[np.ndarray, "H W"]:
    """Return the share of each pixel that a shape covers."""
    points = (np.arange(SIDE * _SAMPLES) + 0.5) / _SAMPLES
    x = (points - centre[0])[None, :] / radius
    y = (points - centre[1])[:, None] / radius
    return _inside(noun, x, y).reshape(SIDE, _SAMPLES, SIDE, _SAMPLES).mean((1, 3))


def _inside(
    noun: str, x: Float[np.ndarray, "1 W"], y: Float[np.ndarray, "H 1"]
) -> Bool[np.ndarray, "H W"]:
    """Whether each point is inside a shape of radius 1 around the origin."""
    match noun:
        case "circle":
            return x**2 + y**2 <= 1
        case "square":
            return np.maximum(abs(x), abs(y)) <= 0.9
        case "triangle":
            return (abs(x) <= (y + 1) / 2) & (y <= 1)
        case "cross":
            return (np.minimum(abs(x), abs(y)) <= 0.3) & (np.maximum(abs(x), abs(y)) <= 1)
        case _:
            return (x**2 + y**2 <= 1) & (x**2 + y**2 >= 0.3)


def _digits(*, test: bool) -> tuple[UInt8[np.ndarray, "N H W"], np.ndarray]:
    hint = "pip install scikit-learn; or save pictures of your own: np.savez(path, images=..., labels=...)."
    datasets = package(
        "sklearn.datasets", "the digits come with the package scikit-learn", hint=hint
    )
    pictures, labels = datasets.load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    order = order[: len(order) // 5] if test else order[len(order) // 5 :]
    return (pictures[order].reshape(-1, 8, 8) * (255 / 16)).round().astype(np.uint8), labels[order]


def _shifted(digit: UInt8[np.ndarray, "h w"], row: int, *, seed: int) -> UInt8[np.ndarray, "H W"]:
    field = np.zeros((FIELD, FIELD), dtype=np.uint8)
    down, right = np.random.default_rng((seed, row)).integers(0, FIELD - len(digit) + 1, 2)
    field[down : down + len(digit), right : right + len(digit)] = digit
    return field
