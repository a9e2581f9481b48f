"""Guess the encoding of a text that is not UTF-8.

Encodings that cannot decode the bytes are ruled out. Of the others, the best is the one in which the most characters
are frequent in its language: a tenth of all Chinese characters make half of a Chinese text, and Russian bytes in the
wrong Cyrillic table give letters that Russian hardly uses.
"""

import codecs
import unicodedata
from dataclasses import dataclass
from itertools import islice

from seqlab.errors import UsageError

SAMPLE = 1 << 20  # bytes from the beginning of a file
_MAX_LINES = 300  # lines outside ASCII on which the encodings are tried
_MIN_CHARACTERS = 5  # outside ASCII, for a certain guess
_HIRAGANA = "".join(map(chr, range(0x3041, 0x3094)))
_KATAKANA = "".join(map(chr, range(0x30A1, 0x30F7))) + "ー"
_CJK_MARKS = "，。！？、：；（）「」『』《》“”…～　"
_BOTH_CHINESE = (
    "的一是不了人我在有他之大以中上到和地也子道出而要就下得可你年生自那能事其所去行家"
    "十用天如然作方成者多日都三小二同法起好看分此心前面又定只主公很"
)
_SIMPLE_CHINESE = (
    _BOTH_CHINESE + "这为来个们说国时于会后对里过发军无么经当与学进种将还见没从吃味送点给太"
)
_FULL_CHINESE = (
    _BOTH_CHINESE + "這為來個們說國時於會後對裡過發軍無麼經當與學進種將還見沒從吃味送點給太"
)
_KOREAN = "이다는을의에가고하지한도로기사어나인대리은자를시아일서해제부정들그보있라과수습니요면게만것전여주장원"
_MARKS = "’‘“”„–—…«»°€£©®™§\xa0"
_TURKISH = ("windows-1254",)
_CYRILLIC = ("windows-1251", "koi8-r", "iso8859-5", "cp866")
_CENTRAL = ("windows-1250", "iso8859-2")
_WESTERN = ("windows-1252",)


@dataclass(frozen=True)
class _Language:
    """A language: its encodings, and its frequent characters outside ASCII."""

    encodings: tuple[str, ...]
    frequent: str
    usual: float  # the share of these among the characters outside ASCII in an ordinary text
    latin: bool = False  # whether words mix these with ASCII letters

    @property
    def single_byte(self) -> bool:
        return self.encodings[0] not in ("gb18030", "big5", "shift_jis", "euc_kr")


_LATIN = (
    (_WESTERN, "éèàùçâêîôûëïœÉÀ"),  # French
    (_WESTERN, "áéíóúñü¿¡ÁÉÓ"),  # Spanish
    (_WESTERN, "ãõáéíóúâêôàçÉÇ"),  # Portuguese
    (_WESTERN, "èéàìòùÈ"),  # Italian
    (_WESTERN, "äöüßÄÖÜ"),  # German
    (_WESTERN, "åäöøæéÅÄÖØ"),  # Danish, Norwegian, Swedish, Finnish
    (_WESTERN, "ðþáéíóúæöÞÁÍÓÖ"),  # Icelandic
    (_CENTRAL, "ąćęłńóśźżŁŚŻ"),  # Polish
    (_CENTRAL, "áčďéěíňóřšťúůýžČŠŽŘ"),  # Czech, Slovak, Slovene, Croatian
    (_CENTRAL, "áéíóöőúüűÁÉÖ"),  # Hungarian
    (_CENTRAL, "ăâîşţÎŞ"),  # Romanian
    (_TURKISH, "ışğçöüİŞÇÖÜ"),
)
_LANGUAGES = (
    _Language(("gb18030",), _SIMPLE_CHINESE + _CJK_MARKS, 0.45),
    _Language(("big5",), _FULL_CHINESE + _CJK_MARKS, 0.45),
    _Language(("shift_jis", "euc_jp"), _HIRAGANA + _KATAKANA + _CJK_MARKS, 0.6),
    _Language(("euc_kr",), _KOREAN, 0.45),
    _Language(_CYRILLIC, "оеаинтсрвлкм", 0.72),
    _Language(("windows-1253",), "αοιετνσηρκπμόίάς", 0.8),
    _Language(("windows-1255",), "יוהלאתרבשםמנ", 0.8),
    _Language(("windows-1256",), "اليمنوترهبعد", 0.75),
    _Language(("cp874",), "านรอกเงยลมดว่้", 0.65),
    *(_Language(encodings, letters + _MARKS, 0.95, latin=True) for encodings, letters in _LATIN),
)
_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


@dataclass(frozen=True)
class Guess:
    """The likeliest encoding, whether it is certain, and a few words decoded by it."""

    name: str
    certain: bool
    sample: str = ""


def guess_encoding(head: bytes) -> Guess:
    """Guess the encoding of a text from its first bytes; "utf-8" also if no encoding fits."""
    for mark, name in _BYTE_ORDER_MARKS.items():
        if head.startswith(mark):
            return Guess(name, certain=True)
    if (wide := _wide_without_mark(head)) is not None:
        return Guess(wide, certain=True)
    head = head[: head.rfind(b"\n") + 1] or head  # a character may be cut at the end
    if _is_utf8(head):
        return Guess("utf-8", certain=True)
    lines = (line for line in head.split(b"\n") if not line.isascii())
    head = b"\n".join(islice(lines, _MAX_LINES))
    scores = [
        (_score(head, name, language), name)
        for language in _LANGUAGES
        for name in language.encodings
    ]
    best, name = max(scores, key=lambda pair: pair[0])  # the first of equal ones
    if best < 0.1:
        return Guess("utf-8", certain=False)
    text = head.decode(name)
    count = sum(character > "\x7f" for character in text)
    threshold = max(0.3, best - 1.2 / count**0.5)
    if name in _WESTERN:  # much more common than encodings that differ in a few letters
        threshold = best
    has_rivals = any(
        score > threshold and other != name and head.decode(other) != text
        for score, other in scores
    )
    certain = best > 0.6 and not has_rivals and count >= _MIN_CHARACTERS
    return Guess(name, certain=certain, sample=_sample_of(text))


def check_encoding(name: str) -> str:
    """Return the name if Python knows the encoding."""
    try:
        b"a".decode(name)
    except LookupError:
        some = ", ".join(dict.fromkeys(each.encodings[0] for each in _LANGUAGES))
        raise UsageError(
            f"there is no encoding '{name}'", hint=f"there are utf-8, utf-16, {some} and others."
        ) from None
    except UnicodeDecodeError:  # half a character
        pass
    return name


def _is_utf8(head: bytes) -> bool:
    """Whether the bytes are UTF-8, perhaps with a few damaged ones."""
    text = head.decode("utf-8", "replace")
    num_damaged = text.count("\ufffd")
    num_good = sum(character > "\x7f" for character in text) - num_damaged
    return num_damaged == 0 or 20 * num_damaged < num_good


def _wide_without_mark(head: bytes) -> str | None:
    """Detect UTF-16 without a byte order mark: every other byte of ASCII characters is 0."""
    num_even = head[0::2].count(0)
    num_odd = head[1::2].count(0)
    if num_even + num_odd < max(4, len(head) // 100):
        return None
    if min(num_even, num_odd) > 0.5 * max(num_even, num_odd):
        return None
    name = "utf-16-le" if num_odd > num_even else "utf-16-be"
    try:
        text = head[: len(head) // 2 * 2].decode(name)
    except UnicodeDecodeError:
        return None
    readable = sum(character.isprintable() or character.isspace() for character in text)
    return name if "\n" in text and readable > 0.95 * len(text) else None


def _score(head: bytes, name: str, language: _Language) -> float:
    """Score how well the bytes fit an ordinary text of a language in this encoding: about 1 if they do.

    Characters that such a text does not have count against it: symbols, capitals within a word, and letters of one
    script within a word of another.
    """
    try:
        text = head.decode(name)
    except UnicodeDecodeError:
        return 0.0
    total = good = run = 0
    for left, character, right in zip(" " + text, text, text[1:] + " ", strict=False):
        if character < "\x80":
            run = 0
            continue
        total += 1
        run = run + 1 if character.isalpha() else 0
        is_frequent = character in language.frequent
        num_ascii = _is_ascii_letter(left) + _is_ascii_letter(right)
        misplaced = run >= 3 if language.latin else num_ascii > (not language.single_byte)
        if language.single_byte:
            misplaced |= character.isupper() and left.islower()
            misplaced |= not is_frequent and unicodedata.category(character)[0] in "SN"
        if misplaced:
            good -= 1
        elif is_frequent:
            good += 1
    return good / total / language.usual if total else 0.0


def _is_ascii_letter(character: str) -> bool:
    return character.isascii() and character.isalpha()


def _sample_of(text: str) -> str:
    """Return the words around the first character outside ASCII."""
    first = next(index for index, character in enumerate(text) if character > "\x7f")
    start = max(text.rfind(space, 0, first) for space in " \n\t") + 1
    return text[start : first + 20].split("\n")[0].split("\t")[0]
