"""Time stamps as people write them: read, put on a regular grid, and continued in the form they have.

A form is chosen for a whole column, because 03/04 alone is a day in March or in April: what reads every row is meant,
and of two such forms the one in which the rows follow each other regularly.
"""

import re
import unicodedata
from calendar import month_abbr, monthrange
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from statistics import mode

import numpy as np
from jaxtyping import Float, Int

from seqlab.errors import DataError, shorten

Moment = datetime | float
_MONTH = re.compile(r"(\d{1,4})-(\d{1,2})$")
_QUARTER = re.compile(r"(\d{4})[- ]?Q([1-4])$", re.IGNORECASE)
_QUARTER_FIRST = re.compile(r"(?=Q|.Q)Q?([1-4])Q?[- /]?(\d{4})$", re.IGNORECASE)
# The forms of other countries, in which whatever separates the parts of a date is a hyphen, of equal ones the first.
_SEPARATORS = re.compile(r"[/., \u5e74\u6708\ub144\uc6d4-]+")
_BESIDE_A_DATE = re.compile(  # a weekday, a zone after the clock, the ending of an ordinal, a preposition, a last sign
    r"^(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*\b[.,]?|(?<=:\d\d) (?:[A-Z]{3,4}|[+-]\d{4})\b|(?<=\d)(?:st|nd|rd|th|er)\b"
    r"|\b(?:de|del|di|of)\b|[\u65e5\u53f7\uc77c]",
    re.IGNORECASE,
)
_MONTH_NAMES = (  # how the names of the months begin in languages of Europe, without accents
    "jan|gen|ene", "feb|fev", "mar|mrz", "apr|abr|avr", "may|mai|mag|mei|maj", "jun|juin|giu",
    "jul|juil|lug", "aug|aou|ago", "sep|set", "oct|okt|ott|out", "nov", "dec|dez|dic|des",
)  # fmt: skip
_MONTH_NAME = re.compile("|".join(f"(?P<m{n}>{each})" for n, each in enumerate(_MONTH_NAMES)))
_DOTTED_MONTH = re.compile(
    r"(?:(0?[1-9]|1[0-2])\.((?:19|20)\d\d)|((?:19|20)\d\d)\.(0[1-9]|1[0-2]))$"
)
_MONTHS = ["%b-%y", "%b-%Y", "%B-%Y", "%Y-%b", "%Y-%B", "%y-%b", "%m-%Y", "%Y-%m", "%YM%m"]
_DAYS = [
    "%d-%m-%Y",
    "%d-%m-%y",
    "%m-%d-%Y",
    "%m-%d-%y",
    "%Y-%m-%d",
    "%d-%b-%Y",
    "%d-%b-%y",
    "%d-%B-%Y",
    "%b-%d-%Y",
    "%B-%d-%Y",
]
_CLOCK_BEFORE_YEAR = "%b-%d-%H:%M:%S-%Y"
_CLOCKS = (
    "",
    "-%H:%M",
    "-%H:%M:%S",
    "-%I:%M-%p",
    "-%I:%M:%S-%p",
    "-%H-%M",
    "-%H:%M:%S-%f",
    "-%H-%M-%S",
    "-%H",
)
_LONGEST = 50  # characters of a time stamp
_LATEST = 2040  # two figures mean a year before it
_MONTH_FORM, _DAY_FORM, _CLOCK_FORM = "2000-01", "2000-01-01", "2000-01-01 00:00"
_DAY, _WEEK = timedelta(days=1), timedelta(days=7)
_UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
_FREQUENCIES = {
    1: "monthly",
    3: "quarterly",
    12: "yearly",
    _DAY: "daily",
    _WEEK: "weekly",
    timedelta(hours=1): "hourly",
}


@dataclass(frozen=True)
class TimeStep:
    """How far apart moments are: months, or a time, or a number; weekdays follow each other over a weekend."""

    months: int = 0
    delta: timedelta = timedelta(0)
    number: float = 0.0
    weekdays: bool = False
    month_ends: bool = False

    @property
    def frequency(self) -> str:
        """What people call it."""
        every = self.months or self.delta
        if not every:
            return "numbered"
        if self.weekdays:
            return "weekdays"
        if every in _FREQUENCIES:
            return _FREQUENCIES[every]
        if self.months:
            return f"every {self.months} months"
        seconds = round(self.delta.total_seconds())
        size, unit = next(pair for pair in _UNITS if seconds % pair[0] == 0)
        return f"every {unit}" if seconds == size else f"every {seconds // size} {unit}s"

    @property
    def season(self) -> int:
        """How many steps a day has, or a week or a year: the first of them that has several; 1 where none has."""
        if self.months:
            return 12 // self.months if 12 % self.months == 0 else 1
        if self.weekdays:
            return 5
        if not self.delta:
            return 1
        counts = [cycle / self.delta for cycle in (_DAY, _WEEK, 52 * _WEEK)]
        return next((round(count) for count in counts if count >= 2), 1)

    def after(self, moment: Moment, count: int) -> Moment:
        """The moment so many steps later."""
        if not isinstance(moment, datetime):
            return moment + self.number * count
        if self.months:
            months = moment.year * 12 + moment.month - 1 + self.months * count
            year, month = divmod(months, 12)
            last = monthrange(max(1, year), month + 1)[1]
            return moment.replace(
                year=year, month=month + 1, day=last if self.month_ends else min(moment.day, last)
            )
        if self.weekdays:
            day = np.busday_offset(np.datetime64(moment.date(), "D"), count, roll="forward")
            return datetime.combine(day.astype(object), moment.timetz())
        return moment + self.delta * count

    def places(self, moments: Sequence[Moment]) -> Float[np.ndarray, " T"]:
        """How many steps each moment is after the first, whole numbers where they lie on the grid."""
        dates = _dates(moments)
        if not dates:
            numbers = np.asarray(moments, dtype=np.float64)
            return (numbers - numbers[0]) / self.number
        if self.months:
            months = np.asarray([12 * date.year + date.month for date in dates])
            return (months - months[0]) / self.months
        if self.weekdays:
            days = np.asarray([date.date() for date in dates], dtype="datetime64[D]")
            return np.busday_count(days[0], days).astype(np.float64)
        return np.asarray([(date - dates[0]) / self.delta for date in dates])


def read_times(texts: Sequence[str], *, numbers: bool = True) -> list[str] | None:
    """Time stamps in the form that is used here: 2024-05-31, 2024-05-31 23:00:00, 2024-05, 2024Q2, or numbers.

    None where not all of them are times. Without `numbers`, plain numbers are not.
    """
    distinct = list(dict.fromkeys(text.strip() for text in texts))
    if not distinct or max(map(len, distinct)) > _LONGEST:
        return None
    times = _known_form(distinct, numbers=numbers) or _foreign_form(distinct)
    if times is None:
        return None
    table = dict(zip(distinct, times, strict=True))
    return [table[text.strip()] for text in texts]


@lru_cache(maxsize=1 << 16)
def moment_of(text: str) -> Moment | None:
    """A time that can be compared: a date, a month, or a number; nothing for what is none of these."""
    try:
        if month := _MONTH.match(text):
            return datetime(int(month[1]), int(month[2]), 1)
        if quarter := _QUARTER.match(text):
            return datetime(int(quarter[1]), 3 * int(quarter[2]) - 2, 1)
        parts = text.split(" ")
        if len(parts) > 1 and all(
            part.isdecimal() for part in parts
        ):  # year, month, day, hour in columns of their own
            return datetime(*map(int, [*parts, "1"][: max(3, len(parts))]))  # type: ignore[arg-type]
        return (
            float(text)
            if text.replace(".", "", 1).lstrip("-").isdecimal()
            else datetime.fromisoformat(text)
        )
    except (ValueError, TypeError):
        return None


def written(moment: Moment, like: str) -> str:
    """A moment in the form of another time stamp."""
    if not isinstance(moment, datetime):
        return f"{moment:.15g}"
    if month := _MONTH.match(like):
        return f"{moment.year:0{len(month[1])}d}-{moment.month:02d}"
    if quarter := _QUARTER.match(like):
        between = like[len(quarter[1]) : -1]
        return f"{moment.year:04d}{between}{(moment.month + 2) // 3}"
    whole = (
        ":" not in like and moment.hour == moment.minute == moment.second == 0 and " " not in like
    )
    return moment.date().isoformat() if whole else moment.isoformat(sep="T" if "T" in like else " ")


def step_of(moments: Sequence[Moment | None]) -> TimeStep | None:
    """How far apart the moments usually are; nothing where they cannot be told."""
    if len(moments) < 2 or not _comparable(moments):
        return None
    dates = _dates(moments)
    if not dates:
        differences = np.diff(np.asarray(moments, dtype=np.float64)).tolist()
        number = mode(differences)
        return TimeStep(number=number) if number > 0 else None
    gaps = [b - a for a, b in pairwise(dates)]
    usual = mode(gaps)
    middle = sorted(gaps)[len(gaps) // 2]
    ends = all(monthrange(date.year, date.month)[1] == date.day for date in dates)
    if middle >= timedelta(days=28) and (
        ends or len({(date.day, date.hour, date.minute) for date in dates}) == 1
    ):
        months = [(b.year - a.year) * 12 + b.month - a.month for a, b in pairwise(dates)]
        return TimeStep(months=mode(months), month_ends=ends)
    if usual <= timedelta(0):
        return None
    long = (dates[-1] - dates[0]) / usual >= 10
    return TimeStep(
        delta=usual, weekdays=usual == _DAY and long and all(date.weekday() < 5 for date in dates)
    )


def grid(moments: Sequence[Moment], step: TimeStep) -> Int[np.ndarray, " T"] | None:
    """The place of each moment on a regular grid; None where they lie off it, or it would be mostly empty."""
    places = step.places(moments)
    whole = np.rint(places)
    off = np.abs(places - whole).max() > 0.01 or (np.diff(whole) < 1).any()
    return None if off or whole[-1] > 2 * len(moments) else whole.astype(np.int64)


def calendar(times: Sequence[str]) -> Float[np.ndarray, "T 6"]:
    """The hour of the day, the day of the week and of the year, each as a point on a circle."""
    turns = []
    for time in times:
        moment = moment_of(time)
        if not isinstance(moment, datetime):
            raise DataError(
                f"{shorten(time)} is no date, so it has no hour or weekday",
                hint="set data.calendar=false.",
            )
        hours = moment.hour + moment.minute / 60
        turns.append(
            (hours / 24, (moment.weekday() + hours / 24) / 7, moment.timetuple().tm_yday / 365.25)
        )
    angles = 2 * np.pi * np.asarray(turns, dtype=np.float64).reshape(len(times), 3)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


def _dates(moments: Sequence[Moment | None]) -> list[datetime]:
    return [moment for moment in moments if isinstance(moment, datetime)]


def _comparable(moments: Sequence[Moment | None]) -> bool:
    """Whether all are of one kind: a time with a zone is neither before nor after one without."""
    kinds = {
        (type(moment), isinstance(moment, datetime) and moment.tzinfo is not None)
        for moment in moments
    }
    return len(kinds) == 1 and None not in moments


def _known_form(texts: list[str], *, numbers: bool) -> list[str] | None:
    moments = [moment_of(text) for text in texts]
    if not _comparable(moments):
        return None
    if dates := _dates(moments):
        if not texts[0].replace(" ", "").isdecimal():
            return texts
        forms = {2: _MONTH_FORM, 3: _DAY_FORM}  # by the number of columns
        like = forms.get(texts[0].count(" ") + 1, _CLOCK_FORM)
        return [written(date, like) for date in dates]
    for form, length in (("%Y%m%d", 8), ("%Y%m", 6)):
        if all(len(text) == length and text.isdecimal() for text in texts) and (
            dates := _parsed(texts, form)
        ):
            return _written(dates, form)
    months = [match for text in texts if (match := _DOTTED_MONTH.match(text))]
    if len(months) == len(texts) and len({month[1] or month[4] for month in months}) > 1:
        return [f"{month[2] or month[3]}-{int(month[1] or month[4]):02}" for month in months]
    if years := _decimal_years([moment for moment in moments if isinstance(moment, float)]):
        return years
    if not numbers:
        return None
    for least, most, scale in (
        (1e8, 5e9, 1),
        (1e11, 5e12, 1000),
    ):  # seconds since 1970, or milliseconds
        values = [
            moment for moment in moments if isinstance(moment, float) and least <= moment < most
        ]
        if 1 < len(values) == len(texts):
            return [
                str(datetime.fromtimestamp(value / scale, UTC).replace(tzinfo=None))
                for value in values
            ]
    return texts


def _decimal_years(numbers: Sequence[float]) -> list[str] | None:
    """The months, or quarters, that years with a fraction mean, as R writes them: 1949.083 is February."""
    months = np.asarray(numbers) * 12
    whole = np.rint(months)
    years = whole.size > 2 and (np.abs(months - whole) < 0.05).all() and (whole // 12 < 2200).all()
    if (
        not years
        or (whole // 12 < 1500).any()
        or not (whole % 12).any()
        or (np.diff(whole) <= 0).any()
    ):
        return None
    return [f"{int(month) // 12}-{int(month) % 12 + 1:02}" for month in whole]


def _foreign_form(texts: list[str]) -> list[str] | None:
    quarters = [match for text in texts if (match := _QUARTER_FIRST.match(text))]
    if len(quarters) == len(texts):
        return [f"{quarter[2]}Q{quarter[1]}" for quarter in quarters]
    forms = [*_MONTHS, *(day + clock for day in _DAYS for clock in _CLOCKS), _CLOCK_BEFORE_YEAR]
    texts = [_SEPARATORS.sub("-", _in_english(text)).strip("-") for text in texts]
    readings = [(form, dates) for form in forms if (dates := _parsed(texts, form))]
    return _written(*min(readings, key=_irregularity)[::-1]) if readings else None


def _in_english(text: str) -> str:
    """A date with an English name of the month, without what stands beside the date."""
    plain = _BESIDE_A_DATE.sub(" ", text)
    return re.sub(r"[^\W\d_]{3,}\.?", _english_month, plain)


def _english_month(word: re.Match[str]) -> str:
    decomposed = unicodedata.normalize("NFKD", word[0].lower())
    month = _MONTH_NAME.match("".join(filter(str.isalpha, decomposed)))
    return word[0] if month is None else month_abbr[int(str(month.lastgroup)[1:]) + 1]


def _parsed(texts: Sequence[str], form: str) -> list[datetime]:
    """What all of the texts say in a form; nothing where one of them is not of it."""
    dates = []
    for text in texts:
        try:
            date = datetime.strptime(text, form)
        except ValueError:
            return []
        dates.append(
            date.replace(year=date.year - 100) if "%y" in form and date.year > _LATEST else date
        )
    return dates


def _written(dates: Sequence[datetime], form: str) -> list[str]:
    like = (
        _MONTH_FORM
        if "%d" not in form
        else _CLOCK_FORM
        if "%H" in form or "%I" in form
        else _DAY_FORM
    )
    return [written(date, like) for date in dates]


def _irregularity(reading: tuple[str, Sequence[datetime]]) -> tuple[int, int, timedelta]:
    """How often the order changes, how many rows are not one step after the row before, and with hours how far apart
    the first and the last are."""
    form, dates = reading
    down = sum(b < a for a, b in pairwise(dates))
    if 2 * down > len(dates):
        dates = dates[::-1]
    step = step_of(dates)
    uneven = (
        len(dates) if step is None else int((np.abs(np.diff(step.places(dates)) - 1) > 0.01).sum())
    )
    span = max(dates) - min(dates) if "%M" in form else timedelta(0)
    return min(down, len(dates) - 1 - down), uneven, span
