"""The content of a column (texts, labels, files, numbers, times, identifiers), and the columns that a task reads.

Numbers are read as people write them: 1234.5, 1,234.5, 1.234,5, 1 234,5, (12), 3 %, USD 5, 12.5K.
"""

import re
import unicodedata
from ast import literal_eval
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations

from seqlab.data.time_formats import read_times

MISSING = {"", "na", "nan", "n/a", "n.a.", "#n/a", "null", "none", "missing", "?", "-"}
_MINUS = str.maketrans({"\u2212": "-", "\u2013": "-"})
_GROUPS = re.compile(r"(?<=\d)[\s'\u2019](?=\d{3}(?!\d))")
_NEGATIVE = re.compile(r"\((.*)\)$")
# A currency code, a unit, a flag or a footnote next to a number.
_NUMBER_EXTRAS = re.compile(
    r"^[A-Z]{3}\s+(?=[\d.+-])"
    r"|(?<=\d)\s*(?:[%\u2030]|\u00b0\s?[CFK]?|\*+|\s(?:[A-Z]{3}|[a-z]|[kMG]?Wh?|[kcm]?m|[km\u00b5]?g|[hk]?Pa|mbar|ppm))$"
)
_FACTORS = {"K": 1e3, "k": 1e3, "M": 1e6, "B": 1e9}  # 12.5K
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?$")
NUMBER = re.compile(
    r"[+-]?(\d{1,3}([.,]\d{3})+([.,]\d+)?|\d+[.,]?\d*|[.,]\d+)([eE][+-]?\d+)?[KkMB]?$"
)
_DECIMAL_COMMA = re.compile(r"[+-]?\d{1,3}(\.\d{3})+,\d+$|[+-]?\d*,\d+$")
FILE = re.compile(r"\.(npy|jpe?g|png|gif|bmp|webp|tiff?)(#\d+)?$", re.IGNORECASE)
_BEGINS_A_TIME = re.compile(
    r"\s*([-.\d]|q|mon|tue|wed|thu|fri|sat|sun|jan|gen|ene|f[eé][bv]|m[aäe][rijgy]|mrz|apr|abr|avr|ju[nil]|giu|lug|"
    r"aug|ao[uû]|ago|sep|set|oct|okt|ott|out|nov|d[eéi][czs])",
    re.IGNORECASE,
)
_LONG_LABEL = 40  # characters
_ID_WORD = re.compile(r"[\w:.#/-]*\d[\w:.#/-]*$")
# The usual names of the columns of each role, the likeliest first.
NAMES = {
    role: tuple(names.split())
    for role, names in {
        "text": "text sentence sentences review reviews content comment comments message tweet utterance question "
        "query phrase document body headline article news sms email description title input source review_text "
        "reviewtext sentence1 words tokens 评论 内容 文本",
        "label": "label labels class category categories sentiment target intent topic polarity emotion tag tags type "
        "language lang genre y output stars rating score group 标签 类别",
        "source": "source src input question prompt original text article document",
        "target": "target tgt trg output answer translation reference summary label",
        "words": "words tokens word token sentence text form source",
        "tags": "tags tag ner_tags pos_tags labels label pos upos ner target",
        "file": "file path filename file_name filepath",
        "image": "image file path filename file_name image_name picture",
        "caption": "caption captions text description sentence comment",
        "id": "id idx index no no. nr row key uid uuid guid _id line docid",
        "language": "en de fr es it pt nl pl cs ru zh ja ko ar tr hi sv fi english german french spanish italian "
        "chinese russian",
        "other": "date time user name",
    }.items()
}
KNOWN_NAMES = {name for names in NAMES.values() for name in names} | {"unnamed: 0"}
IDS = (*NAMES["id"], "unnamed: 0")


def is_number(cell: str) -> bool:
    return NUMBER.match(bare_number(cell)) is not None


def is_time(cell: str) -> bool:
    return are_times([cell])


def are_times(cells: Sequence[str]) -> bool:
    """Whether all cells are times in one format."""
    if not cells or not all(_BEGINS_A_TIME.match(cell) for cell in cells):
        return False
    return read_times(cells, numbers=False) is not None


@dataclass(frozen=True)
class Numerals:
    """The decimal mark and the thousands separator of numbers."""

    decimal: str = "."
    thousands: str = ""

    def number(self, text: str) -> float | None:
        """Parse a number; return None if the text is not one."""
        plain = text
        if self.thousands:
            plain = text.replace(self.thousands, "").replace(self.decimal, ".")
        try:
            return float(plain) if "_" not in plain else None
        except ValueError:
            pass
        bare = bare_number(text)
        if bare != text:
            return self.number(bare)
        if len(text) < 2 or text[-1] not in _FACTORS:
            return None
        value = self.number(text[:-1])
        return None if value is None else value * _FACTORS[text[-1]]


def bare_number(text: str) -> str:
    """Remove currency signs, units and spaces from a number; write (12) as -12."""
    if text.isascii() and not (
        text[:1] in "$(" or text[:1].isupper() or text[-1:] in "$%*" or " " in text or "'" in text
    ):
        return text
    plain = "".join(c for c in text.translate(_MINUS) if unicodedata.category(c) != "Sc").strip()
    plain = _NEGATIVE.sub(r"-\1", plain)
    return _GROUPS.sub("", _NUMBER_EXTRAS.sub("", plain))


def find_numerals(cells: Sequence[str], delimiter: str) -> Numerals:
    """Detect how the numbers of a column are written; "1,234" has decimals if semicolons separate the cells."""
    marked = [bare_number(cell.strip()) for cell in cells if "," in cell]
    marked = [cell for cell in marked if any(map(str.isdigit, cell))]
    if not marked:
        return Numerals()
    if all(map(_THOUSANDS.match, marked)) and (
        delimiter in (",", "") or any("." in text for text in marked)
    ):
        return Numerals(thousands=",")
    if all(map(_DECIMAL_COMMA.match, marked)):
        return Numerals(decimal=",", thousands=".")
    return Numerals()


def is_missing(text: str) -> bool:
    """Whether a cell marks a missing value: by a usual word, or by characters other than letters and digits."""
    return text.lower() in MISSING or not any(map(str.isalnum, text))


@dataclass(frozen=True)
class Profile:
    """The first cells of a column, and the kind of their content."""

    name: str
    cells: tuple[str, ...]  # stripped, without empty ones
    filled: float = 1.0  # the share of cells that are not empty

    @cached_property
    def num_distinct(self) -> int:
        return len(set(self.cells))

    @cached_property
    def length(self) -> float:
        return sum(map(len, self.cells)) / max(1, len(self.cells))

    @cached_property
    def is_numeric(self) -> bool:
        cells = [cell for cell in self.cells if not is_missing(cell)]
        return sum(map(is_number, cells)) > 0.9 * len(cells)

    @cached_property
    def is_file(self) -> bool:
        return self._most(FILE.search)

    @cached_property
    def is_time(self) -> bool:
        return are_times(self.cells[:50])

    @cached_property
    def is_label(self) -> bool:
        """Whether nearly every row has a value, and values are repeated; long ones must be very few."""
        count = len(self.cells)
        limit = min(20, count / 10) if self.length > _LONG_LABEL else count / 2
        return self.filled > 0.9 and count > 0 and self.num_distinct <= limit

    @cached_property
    def is_id(self) -> bool:
        """Whether each row has a number of its own, or a code of letters and digits."""
        if len(self.cells) < 4 or self.num_distinct < len(self.cells):
            return len(self.cells) > 0 and self.name.lower() in IDS
        if self.name.lower() in ("", *IDS):
            return True
        if all(cell.isdecimal() for cell in self.cells):
            steps = {int(b) - int(a) for a, b in zip(self.cells, self.cells[1:], strict=False)}
            return steps == {1} or min(map(len, self.cells)) >= 5
        return (
            not self.is_numeric
            and not self.is_time
            and not self.is_file
            and self._most(_ID_WORD.match)
        )

    @cached_property
    def is_text(self) -> bool:
        return bool(self.cells) and not (
            self.is_numeric or self.is_file or self.is_time or self.is_id
        )

    def _most(self, matches: Callable[[str], object]) -> bool:
        """Whether more than nine in ten cells match."""
        count = sum(bool(matches(cell)) for cell in self.cells)
        return count > 0.9 * len(self.cells) and count > 0


def profiles_of(names: Sequence[str] | None, rows: Sequence[Sequence[str | None]]) -> list[Profile]:
    """Return a profile of each column."""
    width = max(map(len, rows), default=0) if names is None else len(names)
    profiles = []
    for index in range(width):
        column = [row[index] for row in rows if index < len(row)]
        cells = tuple(cell.strip() for cell in column if cell and cell.strip())
        name = names[index] if names else str(index + 1)
        profiles.append(Profile(name, cells, len(cells) / max(1, len(rows))))
    return profiles


def by_usual_name(profiles: Sequence[Profile], role: str, excluded: int | None) -> int | None:
    """Return the column with a usual name of this role; a column of labels may also have one as part of its name."""
    lowered = [profile.name.lower() for profile in profiles]
    any_rows = any(profile.cells for profile in profiles)
    names = NAMES.get(role, (role,))
    candidates = [lowered.index(name) for name in names if name in lowered]
    if role == "label":
        words = [set(re.split(r"[\W_]+", name)) for name in lowered]
        for name in names[:10]:
            candidates += [index for index in range(len(words)) if name in words[index]]
        candidates = [c for c in candidates if profiles[c].is_label or lowered[c] == role]
    for index in candidates:
        if index != excluded and 2 * profiles[index].filled >= any_rows:
            return index
    return None


def by_content(
    profiles: Sequence[Profile], roles: tuple[str, str], usual: tuple[int, int]
) -> tuple[int, int] | None:
    """Return the two columns whose cells fit two roles; None if there is no reason to prefer any to the usual ones."""
    if roles[0] in ("file", "image"):
        files = _indices(profiles, lambda each: each.is_file)
        rest = _indices(profiles, lambda each: not each.is_file and not each.is_id)
        return (files[0], rest[0]) if files and rest else None
    if roles == ("text", "label"):
        return _text_and_label(profiles, usual)
    if roles == ("words", "tags"):
        return _words_and_tags(profiles)
    texts = _indices(profiles, lambda each: each.is_text)
    others = _indices(profiles, lambda each: not each.is_id and not each.is_time)
    chosen = texts if len(texts) > 1 else others
    return (chosen[0], chosen[1]) if len(chosen) > 1 else None


def _indices(
    profiles: Sequence[Profile], matches: Callable[[Profile], bool], excluded: int | None = None
) -> list[int]:
    """Return the indices of the non-empty columns that match, except the excluded one."""
    return [
        index
        for index, profile in enumerate(profiles)
        if index != excluded and profile.cells and matches(profile)
    ]


def _text_and_label(profiles: Sequence[Profile], usual: tuple[int, int]) -> tuple[int, int] | None:
    if len(profiles) == 2:
        return usual[::-1] if _are_swapped(profiles[usual[0]], profiles[usual[1]]) else None
    texts = _indices(profiles, lambda each: each.is_text)
    if not texts:  # numbers, as in "0 1 1 0", are texts if there is nothing else
        texts = _indices(profiles, lambda each: not each.is_id)
    text = max(texts, key=lambda index: _text_likeness(profiles[index]), default=None)
    labels = _indices(
        profiles, lambda each: each.is_label and not each.is_time and each.num_distinct > 1, text
    )
    labels = labels or _indices(profiles, lambda each: not each.is_id and not each.is_time, text)
    if text is None or not labels:
        return None
    return text, min(labels, key=lambda index: _label_order(profiles[index]))


def _text_likeness(profile: Profile) -> tuple[bool, float]:
    """Sort key of columns that may be the text: those without repeated values last, then by length."""
    return not profile.is_label, profile.length


def _label_order(profile: Profile) -> tuple[bool, bool, int]:
    """Sort key of columns that may be the label: constants last, before them numbers, then by the number of values."""
    constant = profile.num_distinct < 2
    return constant, profile.is_numeric and not constant, profile.num_distinct


def _are_swapped(text: Profile, label: Profile) -> bool:
    """Whether the column of texts holds labels, and the column of labels texts."""
    if min(len(text.cells), len(label.cells)) >= 10 and text.is_label != label.is_label:
        return text.is_label
    if text.is_label and label.is_label:
        return label.num_distinct > 2 * text.num_distinct and label.length > text.length
    several = sum(len(cell.split()) > 1 for cell in label.cells)
    return 2 * several > len(label.cells) and all(len(cell.split()) == 1 for cell in text.cells)


def _words_and_tags(profiles: Sequence[Profile]) -> tuple[int, int] | None:
    """Return the first two columns with equally many words in each row: words and their tags."""
    words = [list(map(words_of, each.cells)) for each in profiles]
    if all(len(row) == 1 for column in words for row in column):  # letters, as of proteins
        words = [[list(row[0]) for row in column] for column in words]
    counts = [list(map(len, cells)) for cells in words]
    for left, right in combinations(range(len(profiles)), 2):
        if counts[left] == counts[right] and max(counts[left], default=0) > 1:
            swapped = _are_tags(list(chain(*words[left])), list(chain(*words[right])))
            return (right, left) if swapped else (left, right)
    return None


def words_of(cell: str) -> list[str]:
    """Return the words of a cell: separated by spaces, or in a list as Python or JSON writes it."""
    if cell[:1] == "[" and cell[-1:] == "]":
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            return list(map(str, literal_eval(cell)))
    return cell.split()


def _are_tags(left: Sequence[str], right: Sequence[str]) -> bool:
    """Whether the left ones are the tags: only they are numbers, or they have far fewer different values."""
    left_numeric, right_numeric = (
        2 * sum(map(_are_numbers, words)) > len(words) for words in (left, right)
    )
    if left_numeric != right_numeric:
        return left_numeric
    return 2 * len(set(left)) < len(set(right))


def _are_numbers(word: str) -> bool:
    return all(map(is_number, word.split(",")))
