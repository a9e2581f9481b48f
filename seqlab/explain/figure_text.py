"""Texts and numbers as labels of figures: how they are written, and how wide they are in columns and in pixels."""

import unicodedata
from collections.abc import Iterable

from rich.cells import cell_len

Pixels = int | float
Range = tuple[Pixels, Pixels]
LABEL_SIZE = 11.0  # the size of labels
MAX_LABEL = 18  # columns of a label; what is longer is cut
_SIGNS = {"\n": "↵", "\r": "␍", "\t": "⇥", "\x7f": "␡", "\u2028": "↵", "\u2029": "↵"}
_FORBIDDEN = set("\ufffe\uffff\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_NARROW = set("fijlrtI.,:;'|!()[]{}/\\` ")
_BROAD = set("mwMW@%—&<>=+~#")


def visible(text: str) -> str:
    """Return the text on one line, with visible signs for control characters and ␣ for a text of blanks only.

    Characters that XML forbids, or that change the direction of the text around them, become �.
    """
    if text and not text.strip(" "):
        return "␣" * len(text)
    return text if text.isascii() and text.isprintable() else "".join(map(_sign, text))


def cut(text: str, columns: int) -> str:
    """Return the visible text, cut to `columns` with … at its end if it is longer."""
    text = visible(text)
    if cell_len(text) <= columns:
        return text
    start = text[:columns]
    while start and cell_len(start) > columns - 1:
        start = start[:-1]
    return (start + "…")[:columns]


def pad_to_width(text: str, columns: int, *, right: bool = False) -> str:
    """Return the text in exactly `columns` columns, left-aligned or right-aligned."""
    text = cut(text, columns)
    blank = " " * (columns - cell_len(text))
    return blank + text if right else text + blank


def text_width(text: str, size: Pixels, *, monospace: bool = False) -> float:
    """Estimate the width of a text in pixels; rather too wide, because fonts differ between machines."""
    if monospace:
        return 0.602 * size * cell_len(text)
    return size * sum((_share(letter) for letter in visible(text)), 0.0)


def max_text_width(texts: Iterable[str], size: Pixels) -> float:
    """Return the width of the widest of these texts in pixels."""
    return max((text_width(text, size) for text in texts), default=0.0)


def max_columns(texts: Iterable[str]) -> int:
    """Return the width of the widest of these texts in terminal columns."""
    return max((cell_len(visible(text)) for text in texts), default=0)


def number(value: Pixels) -> str:
    """Format a number for a figure: three digits or so, with a proper minus sign."""
    form = ".4g"
    if abs(value) < 1000:
        form = ".3g"
    elif abs(value) < 1e6:
        form = ",.0f"
    return f"{value:{form}}".replace("-", "−")


def cell(value: Pixels) -> str:
    """Format a number for a cell of a small table, with two decimals if it is below 10."""
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
