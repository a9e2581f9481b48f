"""The colours of every picture, which colour-blind people can tell apart too."""

from functools import cache

import numpy as np
from jaxtyping import Num, UInt8

# Okabe and Ito (2008), without their yellow, which is too pale for a line on white.
CATEGORICAL = ("blue", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5a5a5a")
# Equal steps of lightness in OKLab (Ottosson 2020), so that equal differences look equal, also when printed in grey.
SEQUENTIAL = (
    "#f7fbfb",
    "#c6e2e7",
    "#91c9da",
    "#60aece",
    "#3d90be",
    "#2a72a7",
    "#24548b",
    "#213869",
    "#192143",
)
_NEGATIVE = ("#033c77", "#265fa3", "#5084c5", "#83aadc", "#bbd0ec")
DIVERGING = (*_NEGATIVE, "#f7f7f7", "#e8cbb4", "#d99d75", "#c76e3c", "#a94313", "#7d260f")
MISSING = "#d9d9d9"
# Colours by their role, in the light and in the dark theme.
ROLES = {
    "paper": ("#ffffff", "#16181c"),
    "ink": ("#22262b", "#e6e8eb"),
    "muted": ("#666d76", "#a0a7b0"),
    "rule": ("#e3e6ea", "#33383f"),
    "blue": ("#0072b2", "#3f9fd8"),
    "edge": ("#a9b0b8", "#656d77"),
}
TOP = 254  # the level of the highest value; 255 is a value that is missing


def levels(values: Num[np.ndarray, "*n"], low: float, high: float) -> UInt8[np.ndarray, "*n"]:
    """Return values as levels from 0 (`low` or less) to 254 (`high` or more); NaN is 255."""
    share = (np.asarray(values, float) - low) / ((high - low) or 1.0)
    return np.where(np.isnan(share), 255, np.nan_to_num(share).clip(0, 1) * TOP + 0.5).astype(
        np.uint8
    )


@cache
def colours(stops: tuple[str, ...]) -> UInt8[np.ndarray, "256 3"]:
    """Return the colour of each level, by linear interpolation between the stops."""
    position = np.linspace(0, len(stops) - 1, TOP + 1)
    channels = [
        np.interp(position, np.arange(len(stops)), channel)
        for channel in zip(*map(rgb, stops), strict=True)
    ]
    return np.vstack([np.stack(channels, 1).round(), [rgb(MISSING)]]).astype(np.uint8)


def colour_of(value: float, stops: tuple[str, ...], low: float, high: float) -> str:
    return "#" + bytes(colours(stops)[levels(np.array([value]), low, high)[0]]).hex()


def limits(values: Num[np.ndarray, "*n"], *, diverging: bool) -> tuple[float, float]:
    """Return the range of a colour map: from 0, or a negative minimum, to the maximum; symmetric if diverging."""
    finite = np.asarray(values, float)[np.isfinite(values)]
    if not finite.size:
        return (-1.0, 1.0) if diverging else (0.0, 1.0)
    far = float(np.abs(finite).max()) or 1.0
    low = min(0.0, float(finite.min()))
    high = float(finite.max())
    return (-far, far) if diverging else (low, high if high > low else low + 1.0)


def rgb(colour: str) -> tuple[int, int, int]:
    """Return red, green and blue of `#rrggbb`, or of a role in the light theme."""
    red, green, blue = bytes.fromhex(ROLES.get(colour, (colour,))[0].removeprefix("#"))
    return red, green, blue


def ink_on(colour: str) -> str:
    """Return the text colour, dark or white, with the better contrast on this colour."""
    red, green, blue = rgb(colour)
    return "#22262b" if 0.299 * red + 0.587 * green + 0.114 * blue > 134 else "#ffffff"


def category_colour(k: int) -> str:
    """Return the colour of the k-th category; the palette is repeated if there are more."""
    return CATEGORICAL[k % len(CATEGORICAL)]


def ansi_coloured(text: str, ink: str, paper: str = "") -> str:
    """Return a text with the ANSI codes of its colours, for a terminal."""
    codes = "38;2;{};{};{}".format(*rgb(ink))
    if paper:
        codes += ";48;2;{};{};{}".format(*rgb(paper))
    return f"\x1b[{codes}m{text}\x1b[0m"
