"""What a column of a table holds, and which columns a task reads: texts, labels, files, numbers, times, identifiers.

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
_BESIDE = re.compile(  # a code of a currency, a unit, a flag or a footnote beside a number
    r"^[A-Z]{3}\s+(?=[\d.+-])"
    r"|(?<=\d)\s*(?:[%\u2030]|\u00b0\s?[CFK]?|\*+|\s(?:[A-Z]{3}|[a-z]|[kMG]?Wh?|[kcm]?m|[km\u00b5]?g|[hk]?Pa|mbar|ppm))$"
)
_TIMES = {"K": 1e3, "k": 1e3, "M": 1e6, "B": 1e9}  # 12.5K
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
_LONG = 40  # characters of a label
_WORD_OF_AN_ID = re.compile(r"[\w:.#/-]*\d[\w:.#/-]*$")
NAMES = {  # what the columns of each role are called, the likeliest first
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
    """Whether all cells are times, in one form; what begins unlike any time is soon seen to be none."""
    if not cells or not all(_BEGINS_A_TIME.match(cell) for cell in cells):
        return False
    return read_times(cells, numbers=False) is not None


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
            pass
        bare = bare_number(text)
        if bare != text:
            return self.number(bare)
        value = self.number(text[:-1]) if len(text) > 1 and text[-1] in _TIMES else None
        return None if value is None else value * _TIMES[text[-1]]


def bare_number(text: str) -> str:
    """The figures of a number without the signs, the unit or the blanks that stand with them."""
    if text.isascii() and not (
        text[:1] in "$(" or text[:1].isupper() or text[-1:] in "$%*" or " " in text or "'" in text
    ):
        return text
    plain = "".join(c for c in text.translate(_MINUS) if unicodedata.category(c) != "Sc").strip()
    plain = _NEGATIVE.sub(r"-\1", plain)
    return _GROUPS.sub("", _BESIDE.sub("", plain))


def find_numerals(cells: Sequence[str], delimiter: str) -> Numerals:
    """How the numbers of a column are written; "1,234" has decimals where semicolons separate the cells."""
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
    """Whether a cell says that there is no value: a usual word, or marks without letters and figures."""
    return text.lower() in MISSING or not any(map(str.isalnum, text))


@dataclass(frozen=True)
class Profile:
    """The first cells of a column, and what they have in common."""

    name: str
    cells: tuple[str, ...]  # without blanks around them, and without those that are empty
    filled: float = 1.0  # the share of cells that are not empty

    @cached_property
    def num_distinct(self) -> int:
        return len(set(self.cells))

    @cached_property
    def length(self) -> float:
        return sum(map(len, self.cells)) / max(1, len(self.cells))

    @cached_property
    def is_numeric(self) -> bool:
        there = [cell for cell in self.cells if not is_missing(cell)]
        return sum(map(is_number, there)) > 0.9 * len(there)

    @cached_property
    def is_file(self) -> bool:
        return self._most(FILE.search)

    @cached_property
    def is_time(self) -> bool:
        return are_times(self.cells[:50])

    @cached_property
    def is_label(self) -> bool:
        """Short values that come again, in nearly every row; longer ones if they are very few."""
        few = self.length > _LONG
        return (
            self.filled > 0.9
            and bool(self.cells)
            and self.num_distinct <= (min(20, len(self.cells) / 10) if few else len(self.cells) / 2)
        )

    @cached_property
    def is_id(self) -> bool:
        """A number of its own for each row, or a code of letters and digits."""
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
            and self._most(_WORD_OF_AN_ID.match)
        )

    @cached_property
    def is_text(self) -> bool:
        return bool(self.cells) and not (
            self.is_numeric or self.is_file or self.is_time or self.is_id
        )

    def _most(self, like: Callable[[str], object]) -> bool:
        count = sum(bool(like(cell)) for cell in self.cells)
        return count > 0.9 * len(self.cells) and count > 0


def profiles_of(names: Sequence[str] | None, rows: Sequence[Sequence[str | None]]) -> list[Profile]:
    """A profile of each column."""
    width = max(map(len, rows), default=0) if names is None else len(names)
    columns = [[row[place] for row in rows if place < len(row)] for place in range(width)]
    cells = [tuple(cell.strip() for cell in column if cell and cell.strip()) for column in columns]
    return [
        Profile(names[place] if names else str(place + 1), column, len(column) / max(1, len(rows)))
        for place, column in enumerate(cells)
    ]


def by_usual_name(profiles: Sequence[Profile], role: str, taken: int | None) -> int | None:
    """The column that is called as those of this role are; one of labels may be called so in part, if it holds some."""
    lowered = [profile.name.lower() for profile in profiles]
    any_rows = any(profile.cells for profile in profiles)
    names = NAMES.get(role, (role,))
    places = [lowered.index(name) for name in names if name in lowered]
    if role == "label":
        words = [set(re.split(r"[\W_]+", name)) for name in lowered]
        places += [
            place for name in names[:10] for place in range(len(words)) if name in words[place]
        ]
        places = [place for place in places if profiles[place].is_label or lowered[place] == role]
    return next((p for p in places if p != taken and 2 * profiles[p].filled >= any_rows), None)


def by_content(
    profiles: Sequence[Profile], roles: tuple[str, str], usual: tuple[int, int]
) -> tuple[int, int] | None:
    """The two columns whose cells fit two roles; None where nothing speaks for other columns than the usual ones."""
    if roles[0] in ("file", "image"):
        files = _places(profiles, lambda each: each.is_file)
        rest = _places(profiles, lambda each: not each.is_file and not each.is_id)
        return (files[0], rest[0]) if files and rest else None
    if roles == ("text", "label"):
        return _text_and_label(profiles, usual)
    if roles == ("words", "tags"):
        return _words_and_tags(profiles)
    texts = _places(profiles, lambda each: each.is_text)
    others = _places(profiles, lambda each: not each.is_id and not each.is_time)
    chosen = texts if len(texts) > 1 else others
    return (chosen[0], chosen[1]) if len(chosen) > 1 else None


def _places(
    profiles: Sequence[Profile], like: Callable[[Profile], bool], taken: int | None = None
) -> list[int]:
    """The columns that hold something and are like this, but for one that is taken."""
    return [
        place for place, each in enumerate(profiles) if place != taken and each.cells and like(each)
    ]


def _text_and_label(profiles: Sequence[Profile], usual: tuple[int, int]) -> tuple[int, int] | None:
    if len(profiles) == 2:
        return usual[::-1] if _are_swapped(profiles[usual[0]], profiles[usual[1]]) else None
    texts = _places(profiles, lambda each: each.is_text)
    if not texts:  # numbers, as in "0 1 1 0", are texts where there is nothing else
        texts = _places(profiles, lambda each: not each.is_id)
    longest = max(texts, key=lambda place: _size(profiles[place]), default=None)
    labels = _places(
        profiles, lambda each: each.is_label and not each.is_time and each.num_distinct > 1, longest
    )
    labels = labels or _places(profiles, lambda each: not each.is_id and not each.is_time, longest)
    if longest is None or not labels:
        return None
    return longest, min(labels, key=lambda place: _kind_of_label(profiles[place]))


def _kind_of_label(profile: Profile) -> tuple[bool, bool, int]:
    """What is least like a label comes last: always the same, then numbers, then many values."""
    constant = profile.num_distinct < 2
    return constant, profile.is_numeric and not constant, profile.num_distinct


def _are_swapped(text: Profile, label: Profile) -> bool:
    """Whether what should be texts are labels, and the other way round."""
    if min(len(text.cells), len(label.cells)) >= 10 and text.is_label != label.is_label:
        return text.is_label
    if text.is_label and label.is_label:
        return label.num_distinct > 2 * text.num_distinct and label.length > text.length
    several = sum(len(cell.split()) > 1 for cell in label.cells)
    return 2 * several > len(label.cells) and all(len(cell.split()) == 1 for cell in text.cells)


def _size(profile: Profile) -> tuple[bool, float]:
    """What a text has more of than a label: values of its own, and letters."""
    return not profile.is_label, profile.length


def _words_and_tags(profiles: Sequence[Profile]) -> tuple[int, int] | None:
    """The two columns with as many words in each row: words and their tags."""
    words = [list(map(words_of, each.cells)) for each in profiles]
    if all(len(row) == 1 for column in words for row in column):  # letters, as of proteins
        words = [[list(row[0]) for row in column] for column in words]
    counts = [list(map(len, cells)) for cells in words]
    for one, other in combinations(range(len(profiles)), 2):
        if counts[one] == counts[other] and max(counts[one], default=0) > 1:
            swapped = _are_tags(list(chain(*words[one])), list(chain(*words[other])))
            return (other, one) if swapped else (one, other)
    return None


def words_of(cell: str) -> list[str]:
    """The words of a cell: what stands between blanks, or in a list as Python or JSON writes it."""
    if cell[:1] == "[" and cell[-1:] == "]":
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            return list(map(str, literal_eval(cell)))
    return cell.split()


def _are_tags(these: Sequence[str], those: Sequence[str]) -> bool:
    """Whether these are tags of those, rather than the other way round: only they are numbers, or far fewer differ."""
    numbers = [
        2 * sum(_are_numbers(word) for word in words) > len(words) for words in (these, those)
    ]
    return numbers[0] > numbers[1] or (
        numbers[0] == numbers[1] and 2 * len(set(these)) < len(set(those))
    )


def _are_numbers(word: str) -> bool:
    return all(map(is_number, word.split(",")))
