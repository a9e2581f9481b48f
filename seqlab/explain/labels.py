"""Texts and numbers as labels of a picture: how they are written, and how wide they are in columns and in pixels."""

import unicodedata
from collections.abc import Iterable

Pixels = int | float
SMALL = 11.0  # the size of labels
LONGEST = 18  # columns of a label; what is longer is cut
_SIGNS = {"\n": "↵", "\r": "␍", "\t": "⇥", "\x7f": "␡", "\u2028": "↵", "\u2029": "↵"}
_FORBIDDEN = set("\ufffe\uffff\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_NARROW, _BROAD = set("fijlrtI.,:;'|!()[]{}/\\` "), set("mwMW@%—&<>=+~#")


def visible(text: str) -> str:
    """The text on one line: a control becomes a sign that shows it, a lone blank ␣, and what XML forbids or turns the
    direction of its neighbours �."""
    if text and not text.strip(" "):
        return "␣" * len(text)
    return text if text.isascii() and text.isprintable() else "".join(map(_sign, text))


def display_width(text: str) -> int:
    """Columns in a terminal: 2 for wide letters and emoji, 0 for what is put upon or joined to the letter before."""
    width, before = 0, ""
    for letter in text:
        wide = unicodedata.east_asian_width(letter) in "WF"
        if letter == "\ufe0f":  # "as an emoji": the letter before becomes wide
            width += before != "" and unicodedata.east_asian_width(before) not in "WF"
        elif unicodedata.category(letter) not in ("Mn", "Me", "Cf") and not (wide and before == "\u200d"):
            width += 0 if "\U0001f3fb" <= letter <= "\U0001f3ff" else 2 if wide else 1
        before = letter
    return width


def cut(text: str, columns: int) -> str:
    """The text made visible and, where it is longer than `columns`, ended by …"""
    text = visible(text)
    if display_width(text) <= columns:
        return text
    kept = text[:columns]
    while kept and display_width(kept) > columns - 1:
        kept = kept[:-1]
    return (kept + "…")[:columns]


def fitted(text: str, columns: int, *, right: bool = False) -> str:
    """The text in exactly so many columns, at their left or right end."""
    text = cut(text, columns)
    blank = " " * (columns - display_width(text))
    return blank + text if right else text + blank


def text_width(text: str, size: Pixels, *, monospace: bool = False) -> float:
    """About how many pixels a text takes; rather too many, for each machine has its own letters."""
    if monospace:
        return 0.602 * size * display_width(text)
    return size * sum((_share(letter) for letter in visible(text)), 0.0)


def widest(texts: Iterable[str], size: Pixels) -> float:
    """The pixels that the longest of these texts takes."""
    return max((text_width(text, size) for text in texts), default=0.0)


def number(value: Pixels) -> str:
    """A number as it stands in a picture: short, with a true minus."""
    shown = f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}" if abs(value) < 1e6 else f"{value:.4g}"
    return shown.replace("-", "−")


def cell(value: Pixels) -> str:
    """A number in a cell of a small table: two decimals where they matter."""
    return number(value) if abs(value) >= 10 or value == 0 else f"{value:.2f}".replace("-", "−")


def _share(letter: str) -> float:
    if letter in _NARROW:
        return 0.38
    return 0.95 if letter in _BROAD else 0.68 if letter.isupper() else 0.61 * display_width(letter)


def _sign(letter: str) -> str:
    if letter in _SIGNS:
        return _SIGNS[letter]
    if letter in _FORBIDDEN or unicodedata.category(letter) == "Cs" or "\x80" <= letter <= "\x9f":
        return "�"
    return chr(0x2400 + ord(letter)) if letter < " " else letter
