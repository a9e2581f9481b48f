"""Texts and numbers as labels of a picture: how they are written, and how wide they are in columns and in pixels."""

import unicodedata
from collections.abc import Iterable

from rich.cells import cell_len

Pixels = int | float
Range = tuple[Pixels, Pixels]
SMALL = 11.0  # the size of labels
LONGEST = 18  # columns of a label; what is longer is cut
_SIGNS = {"\n": "↵", "\r": "␍", "\t": "⇥", "\x7f": "␡", "\u2028": "↵", "\u2029": "↵"}
_FORBIDDEN = set("\ufffe\uffff\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_NARROW = set("fijlrtI.,:;'|!()[]{}/\\` ")
_BROAD = set("mwMW@%—&<>=+~#")


def visible(text: str) -> str:
    """The text on one line: a control becomes a sign that shows it, a lone blank ␣, and what XML forbids or turns the
    direction of its neighbours �."""
    if text and not text.strip(" "):
        return "␣" * len(text)
    return text if text.isascii() and text.isprintable() else "".join(map(_sign, text))


def cut(text: str, columns: int) -> str:
    """The text made visible and, where it is longer than `columns`, ended by …"""
    text = visible(text)
    if cell_len(text) <= columns:
        return text
    kept = text[:columns]
    while kept and cell_len(kept) > columns - 1:
        kept = kept[:-1]
    return (kept + "…")[:columns]


def fitted(text: str, columns: int, *, right: bool = False) -> str:
    """The text in exactly so many columns, at their left or right end."""
    text = cut(text, columns)
    blank = " " * (columns - cell_len(text))
    return blank + text if right else text + blank


def text_width(text: str, size: Pixels, *, monospace: bool = False) -> float:
    """About how many pixels a text takes; rather too many, for each machine has its own letters."""
    if monospace:
        return 0.602 * size * cell_len(text)
    return size * sum((_share(letter) for letter in visible(text)), 0.0)


def widest(texts: Iterable[str], size: Pixels) -> float:
    """The pixels that the longest of these texts takes."""
    return max((text_width(text, size) for text in texts), default=0.0)


def longest(texts: Iterable[str]) -> int:
    """The columns that the longest of these texts takes."""
    return max((cell_len(visible(text)) for text in texts), default=0)


def number(value: Pixels) -> str:
    """A number as it stands in a picture: short, with a true minus."""
    form = ".3g" if abs(value) < 1000 else ",.0f" if abs(value) < 1e6 else ".4g"
    return f"{value:{form}}".replace("-", "−")


def cell(value: Pixels) -> str:
    """A number in a cell of a small table: two decimals where they matter."""
    return number(value) if abs(value) >= 10 or value == 0 else f"{value:.2f}".replace("-", "−")


def _share(letter: str) -> float:
    if letter in _NARROW:
        return 0.38
    return 0.95 if letter in _BROAD else 0.68 if letter.isupper() else 0.61 * cell_len(letter)


def _sign(letter: str) -> str:
    if letter in _SIGNS:
        return _SIGNS[letter]
    if letter in _FORBIDDEN or unicodedata.category(letter) == "Cs" or "\x80" <= letter <= "\x9f":
        return "�"
    return chr(0x2400 + ord(letter)) if letter < " " else letter
