"""Numbers as people write them: 1234.5, 1,234.5, 1.234,5 and 1234,5, with a currency or a percent sign beside them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

MISSING = {"", "na", "nan", "n/a", "null", "none", "?", "-"}
_SIGNS = re.compile(r"^[$€£¥]\s*|\s*[$€£¥%]$")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?$")
NUMBER = re.compile(r"[+-]?(\d{1,3}([.,]\d{3})+([.,]\d+)?|\d+[.,]?\d*|[.,]\d+)([eE][+-]?\d+)?$")
_DECIMAL_COMMA = re.compile(r"[+-]?\d{1,3}(\.\d{3})+,\d+$|[+-]?\d*,\d+$")


@dataclass(frozen=True)
class Numerals:
    """Which mark separates the decimals, and which the thousands."""

    decimal: str = "."
    thousands: str = ""

    def number(self, text: str) -> float | None:
        """The number that is written there; None if it is none."""
        plain = (
            text.replace(self.thousands, "").replace(self.decimal, ".") if self.thousands else text
        )
        try:
            return float(plain) if "_" not in plain else None
        except ValueError:
            bare = bare_number(text)
            return self.number(bare) if bare != text else None


def bare_number(text: str) -> str:
    """The figures of a number without the currency or the percent sign beside them."""
    return _SIGNS.sub("", text)


def find_numerals(cells: Sequence[str], separator: str) -> Numerals:
    """How the numbers of a column are written; "1,234" has decimals where semicolons separate the cells."""
    marked = [bare_number(cell.strip()) for cell in cells if "," in cell]
    if not marked:
        return Numerals()
    if all(map(_THOUSANDS.match, marked)) and (
        separator in ("comma", "") or any("." in text for text in marked)
    ):
        return Numerals(thousands=",")
    if all(map(_DECIMAL_COMMA.match, marked)):
        return Numerals(decimal=",", thousands=".")
    return Numerals()
