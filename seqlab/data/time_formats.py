"""Time stamps as people write them: recognised, and rewritten in one standard form.

The format is chosen for a whole column, because 03/04 alone can be a day in March or in April. A format must read
every row; of several such formats, the one with the most regular steps between rows is chosen.
"""

import re
import unicodedata
from calendar import month_abbr
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise

import numpy as np

from seqlab.data.time_steps import Moment, are_comparable, infer_step, only_dates

_MONTH = re.compile(r"(\d{1,4})-(\d{1,2})$")
_QUARTER = re.compile(r"(\d{4})[- ]?Q([1-4])$", re.IGNORECASE)
_QUARTER_FIRST = re.compile(r"(?=Q|.Q)Q?([1-4])Q?[- /]?(\d{4})$", re.IGNORECASE)
# All of these become a hyphen before a date is compared with the formats below.
_SEPARATORS = re.compile(r"[/., \u5e74\u6708\ub144\uc6d4-]+")
# Words around a date: a weekday, a zone after the clock, an ordinal ending, a preposition, the sign for "day".
_DATE_EXTRAS = re.compile(
    r"^(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*\b[.,]?|(?<=:\d\d) (?:[A-Z]{3,4}|[+-]\d{4})\b|(?<=\d)(?:st|nd|rd|th|er)\b"
    r"|\b(?:de|del|di|of)\b|[\u65e5\u53f7\uc77c]",
    re.IGNORECASE,
)
# The first letters of the months' names in European languages, without accents.
_MONTH_NAMES = (
    "jan|gen|ene", "feb|fev", "mar|mrz", "apr|abr|avr", "may|mai|mag|mei|maj", "jun|juin|giu",
    "jul|juil|lug", "aug|aou|ago", "sep|set", "oct|okt|ott|out", "nov", "dec|dez|dic|des",
)  # fmt: skip
_MONTH_NAME = re.compile("|".join(f"(?P<m{n}>{names})" for n, names in enumerate(_MONTH_NAMES)))
_DOTTED_MONTH = re.compile(
    r"(?:(0?[1-9]|1[0-2])\.((?:19|20)\d\d)|((?:19|20)\d\d)\.(0[1-9]|1[0-2]))$"
)
# Formats of strptime; of equally good ones the first is chosen.
_MONTH_FORMATS = (
    "%b-%y", "%b-%Y", "%B-%Y", "%Y-%b", "%Y-%B", "%y-%b", "%m-%Y", "%Y-%m", "%YM%m",
)  # fmt: skip
_DAY_FORMATS = (
    "%d-%m-%Y", "%d-%m-%y", "%m-%d-%Y", "%m-%d-%y", "%Y-%m-%d",
    "%d-%b-%Y", "%d-%b-%y", "%d-%B-%Y", "%b-%d-%Y", "%B-%d-%Y",
)  # fmt: skip
_CLOCK_FORMATS = (
    "", "-%H:%M", "-%H:%M:%S", "-%I:%M-%p", "-%I:%M:%S-%p", "-%H-%M", "-%H:%M:%S-%f", "-%H-%M-%S",
    "-%H",
)  # fmt: skip
_CLOCK_BEFORE_YEAR = "%b-%d-%H:%M:%S-%Y"
_MAX_LENGTH = 50  # characters of a time stamp
_MAX_YEAR = 2040  # a year of two digits is at most this
_MONTH_EXAMPLE = "2000-01"
_DAY_EXAMPLE = "2000-01-01"
_CLOCK_EXAMPLE = "2000-01-01 00:00"
# The range of plausible seconds since 1970, then of milliseconds, with the divisor that makes them seconds.
_UNIX_TIMES = ((1e8, 5e9, 1), (1e11, 5e12, 1000))


def read_times(texts: Sequence[str], *, numbers: bool = True) -> list[str] | None:
    """Return the times in a standard form: 2024-05-31, 2024-05-31 23:00:00, 2024-05, 2024Q2, or a number.

    Return None if one of the texts is not a time. Plain numbers are times only with `numbers`.
    """
    distinct = list(dict.fromkeys(text.strip() for text in texts))
    if not distinct or max(map(len, distinct)) > _MAX_LENGTH:
        return None
    times = _read_standard_formats(distinct, numbers=numbers) or _read_other_formats(distinct)
    if times is None:
        return None
    time_by_text = dict(zip(distinct, times, strict=True))
    return [time_by_text[text.strip()] for text in texts]


@lru_cache(maxsize=1 << 16)
def parse_moment(text: str) -> Moment | None:
    """Return the date or the number that a time in standard form denotes, or None if it is neither."""
    try:
        if month := _MONTH.match(text):
            return datetime(int(month[1]), int(month[2]), 1)
        if quarter := _QUARTER.match(text):
            return datetime(int(quarter[1]), 3 * int(quarter[2]) - 2, 1)
        parts = text.split(" ")
        if len(parts) > 1 and all(part.isdecimal() for part in parts):
            # Year, month, day and hour from columns of their own; the day may be missing.
            return datetime(*map(int, [*parts, "1"][: max(3, len(parts))]))  # type: ignore[arg-type]
        if text.replace(".", "", 1).lstrip("-").isdecimal():
            return float(text)
        return datetime.fromisoformat(text)
    except (ValueError, TypeError):
        return None


def format_moment(moment: Moment, like: str) -> str:
    """Write a moment in the form of another time stamp."""
    if not isinstance(moment, datetime):
        return f"{moment:.15g}"
    if month := _MONTH.match(like):
        return f"{moment.year:0{len(month[1])}d}-{moment.month:02d}"
    if quarter := _QUARTER.match(like):
        separator = like[len(quarter[1]) : -1]
        return f"{moment.year:04d}{separator}{(moment.month + 2) // 3}"
    is_midnight = moment.hour == moment.minute == moment.second == 0
    if is_midnight and ":" not in like and " " not in like:
        return moment.date().isoformat()
    return moment.isoformat(sep="T" if "T" in like else " ")


def _read_standard_formats(texts: list[str], *, numbers: bool) -> list[str] | None:
    """Read ISO dates, months, quarters and numbers; numbers may denote dates, as 20240531 or seconds since 1970 do."""
    moments = [parse_moment(text) for text in texts]
    if not are_comparable(moments):
        return None
    if dates := only_dates(moments):
        if not texts[0].replace(" ", "").isdecimal():
            return texts
        examples = {2: _MONTH_EXAMPLE, 3: _DAY_EXAMPLE}  # by the number of columns
        like = examples.get(texts[0].count(" ") + 1, _CLOCK_EXAMPLE)
        return [format_moment(date, like) for date in dates]
    for form, length in (("%Y%m%d", 8), ("%Y%m", 6)):
        if all(len(text) == length and text.isdecimal() for text in texts):
            dates = _parse_all(texts, form)
            if dates:
                return _format_all(dates, form)
    if months := _dotted_months(texts):
        return months
    values = [moment for moment in moments if isinstance(moment, float)]
    if years := _decimal_years(values):
        return years
    if not numbers:
        return None
    return _unix_times(values) or texts


def _dotted_months(texts: Sequence[str]) -> list[str] | None:
    """Read months such as 05.2024 or 2024.05, if they are not all the same month of several years."""
    matches = [match for text in texts if (match := _DOTTED_MONTH.match(text))]
    months = [match[1] or match[4] for match in matches]
    if len(matches) < len(texts) or len(set(months)) == 1:
        return None
    years = [match[2] or match[3] for match in matches]
    return [f"{year}-{int(month):02}" for year, month in zip(years, months, strict=True)]


def _decimal_years(numbers: Sequence[float]) -> list[str] | None:
    """Read years with a fraction as months or quarters, as R writes them: 1949.083 is February 1949."""
    exact = np.asarray(numbers) * 12
    months = np.rint(exact)
    if months.size < 3 or not (np.abs(exact - months) < 0.05).all():
        return None
    years = months // 12
    if (years < 1500).any() or not (years < 2200).all():
        return None
    if not (months % 12).any() or (np.diff(months) <= 0).any():
        return None
    return [f"{int(month) // 12}-{int(month) % 12 + 1:02}" for month in months]


def _unix_times(numbers: Sequence[float]) -> list[str] | None:
    """Read seconds or milliseconds since 1970."""
    for least, most, scale in _UNIX_TIMES:
        if len(numbers) > 1 and all(least <= number < most for number in numbers):
            seconds = [number / scale for number in numbers]
            return [str(datetime.fromtimestamp(each, UTC).replace(tzinfo=None)) for each in seconds]
    return None


def _read_other_formats(texts: list[str]) -> list[str] | None:
    """Read dates as people of many countries write them: 31.5.2024, May 31st, 2024, Q2 2024."""
    quarters = [match for text in texts if (match := _QUARTER_FIRST.match(text))]
    if len(quarters) == len(texts):
        return [f"{quarter[2]}Q{quarter[1]}" for quarter in quarters]
    texts = [_SEPARATORS.sub("-", _in_english(text)).strip("-") for text in texts]
    days = [day + clock for day in _DAY_FORMATS for clock in _CLOCK_FORMATS]
    forms = [*_MONTH_FORMATS, *days, _CLOCK_BEFORE_YEAR]
    candidates = [(form, dates) for form in forms if (dates := _parse_all(texts, form))]
    if not candidates:
        return None
    form, dates = min(candidates, key=_irregularity)
    return _format_all(dates, form)


def _in_english(text: str) -> str:
    """Replace the name of the month by the English one, and remove weekday, zone and the like."""
    return re.sub(r"[^\W\d_]{3,}\.?", _english_month, _DATE_EXTRAS.sub(" ", text))


def _english_month(word: re.Match[str]) -> str:
    decomposed = unicodedata.normalize("NFKD", word[0].lower())
    month = _MONTH_NAME.match("".join(filter(str.isalpha, decomposed)))
    return word[0] if month is None else month_abbr[int(str(month.lastgroup)[1:]) + 1]


def _parse_all(texts: Sequence[str], form: str) -> list[datetime]:
    """Return the date of each text; an empty list if one of them does not have the format."""
    dates = []
    for text in texts:
        try:
            date = datetime.strptime(text, form)
        except ValueError:
            return []
        if "%y" in form and date.year > _MAX_YEAR:
            date = date.replace(year=date.year - 100)
        dates.append(date)
    return dates


def _format_all(dates: Sequence[datetime], form: str) -> list[str]:
    """Write dates that were read in a format of strptime in the standard form of the same precision."""
    if "%d" not in form:
        like = _MONTH_EXAMPLE
    elif "%H" in form or "%I" in form:
        like = _CLOCK_EXAMPLE
    else:
        like = _DAY_EXAMPLE
    return [format_moment(date, like) for date in dates]


def _irregularity(candidate: tuple[str, Sequence[datetime]]) -> tuple[int, int, timedelta]:
    """The key by which formats are compared: steps against the order of time, uneven steps, and the span.

    The span counts for formats with minutes only.
    """
    form, dates = candidate
    num_descending = sum(later < earlier for earlier, later in pairwise(dates))
    if 2 * num_descending > len(dates):
        dates = dates[::-1]
    step = infer_step(dates)
    num_uneven = len(dates)
    if step is not None:
        num_uneven = int((np.abs(np.diff(step.offsets(dates)) - 1) > 0.01).sum())
    span = max(dates) - min(dates) if "%M" in form else timedelta(0)
    return min(num_descending, len(dates) - 1 - num_descending), num_uneven, span
