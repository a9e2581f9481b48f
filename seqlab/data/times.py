"""Time stamps as people write them: read, put on a regular grid, and continued in the form they have.

A form is chosen for a whole column, because 03/04 alone is a day in March or in April: what reads every row is meant,
and of two such forms the one in which the rows follow each other regularly.
"""

import re
from calendar import monthrange
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise, product

import numpy as np
from jaxtyping import Float, Int

from seqlab.errors import DataError, shorten

Moment = datetime | float
_MONTH = re.compile(r"(\d{1,4})-(\d{1,2})$")
_QUARTER = re.compile(r"(\d{4})[- ]?Q([1-4])$", re.IGNORECASE)
_QUARTERS = (
    re.compile(r"Q(?P<q>[1-4])[- /]?(?P<y>\d{4})$", re.I),
    re.compile(r"(?P<q>[1-4])Q[- /]?(?P<y>\d{4})$", re.I),
)
_DAYS = [
    *(separator.join(order) for separator in "/.-" for order in product(("%d",), ("%m",), ("%Y", "%y"))),
    *(separator.join(order) for separator in "/.-" for order in product(("%m",), ("%d",), ("%Y", "%y"))),
    *(
        "%Y/%m/%d",
        "%Y.%m.%d",
        "%Y-%m-%d",
        "%d-%b-%Y",
        "%d-%b-%y",
        "%d %b %Y",
        "%d %B %Y",
        "%b %d, %Y",
        "%B %d, %Y",
        "%b %d %Y",
    ),
]
_CLOCKS = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p", " %H.%M", " %H:%M:%S.%f")
_MONTHS = [
    *("%b-%y", "%b %y", "%b-%Y", "%b %Y", "%B %Y", "%B-%Y", "%Y-%b", "%Y %b", "%Y %B", "%y-%b", "%b/%Y", "%b/%y"),
    *("%m/%Y", "%m.%Y", "%m-%Y", "%Y/%m", "%Y.%m", "%YM%m", "%Y %m"),
]
_LATEST = 2040  # two figures mean a year before it
_UNITS = ((86400, "days"), (3600, "hours"), (60, "minutes"), (1, "seconds"))
_CYCLES = (timedelta(days=1), timedelta(days=7), timedelta(days=364))


@dataclass(frozen=True)
class Step:
    """How far apart moments are: months, or a time, or a number; weekdays follow each other over a weekend."""

    months: int = 0
    delta: timedelta = timedelta(0)
    number: float = 0.0
    weekdays: bool = False
    month_ends: bool = False

    @property
    def frequency(self) -> str:
        """What people call it."""
        names = {1: "monthly", 3: "quarterly", 12: "yearly"}
        if self.months:
            return names.get(self.months, f"every {self.months} months")
        if self.weekdays:
            return "weekdays"
        if not self.delta:
            return "numbered" if self.number else "unknown"
        known = {timedelta(days=1): "daily", timedelta(days=7): "weekly", timedelta(hours=1): "hourly"}
        seconds = round(self.delta.total_seconds())
        size, unit = next(pair for pair in _UNITS if seconds % pair[0] == 0)
        every = unit[:-1] if seconds == size else f"{seconds // size} {unit}"
        return known.get(self.delta, f"every {every}")

    @property
    def seasons(self) -> tuple[int, ...]:
        """How many steps a day, a week and a year have, of those that have several."""
        if self.months:
            return (12 // self.months,) if 12 % self.months == 0 and self.months < 12 else ()
        if self.weekdays:
            return (5,)
        if not self.delta:
            return ()
        cycles = _CYCLES if self.delta >= _CYCLES[0] else _CYCLES[:2]
        counts = [round(cycle / self.delta) for cycle in cycles if cycle / self.delta >= 2]
        return tuple(365 if count == 364 else count for count in counts)

    def after(self, moment: Moment, count: int) -> Moment:
        """The moment so many steps later."""
        if not isinstance(moment, datetime):
            return moment + self.number * count
        if self.months:
            months = moment.year * 12 + moment.month - 1 + self.months * count
            year, month = divmod(months, 12)
            last = monthrange(max(1, year), month + 1)[1]
            return moment.replace(year=year, month=month + 1, day=last if self.month_ends else min(moment.day, last))
        if self.weekdays:
            day = np.busday_offset(np.datetime64(moment.date(), "D"), count, roll="forward")
            return datetime.combine(day.astype(object), moment.timetz())
        return moment + self.delta * count

    def places(self, moments: Sequence[Moment]) -> Float[np.ndarray, " T"]:
        """How many steps each moment is after the first, whole numbers where they lie on the grid."""
        first = moments[0]
        if not isinstance(first, datetime):
            return (np.asarray(moments, dtype=np.float64) - first) / self.number
        if self.months:
            months = [m.year * 12 + m.month for m in moments if isinstance(m, datetime)]
            return (np.asarray(months) - months[0]) / self.months
        if self.weekdays:
            days = np.asarray([m.date() for m in moments if isinstance(m, datetime)], dtype="datetime64[D]")
            return np.busday_count(days[0], days).astype(np.float64)
        return np.asarray([(m - first) / self.delta for m in moments if isinstance(m, datetime)])


def read_times(texts: Sequence[str], *, numbers: bool = True) -> list[str] | None:
    """Time stamps in the form that is used here: 2024-05-31, 2024-05-31 23:00:00, 2024-05, 2024Q2, or numbers.

    None where not all of them are times. Without `numbers`, plain numbers are not.
    """
    distinct = list(dict.fromkeys(text.strip() for text in texts))
    if not distinct:
        return None
    known = _known_form(distinct, numbers=numbers) or _foreign_form(distinct)
    if known is None:
        return None
    table = dict(zip(distinct, known, strict=True))
    return [table[text.strip()] for text in texts]


@lru_cache(maxsize=1 << 16)
def moment_of(text: str) -> Moment | None:
    """A time that can be compared: a date, a month, or a number; nothing for what is none of these."""
    if month := _MONTH.match(text):
        return datetime(int(month[1]), int(month[2]), 1) if 1 <= int(month[2]) <= 12 and int(month[1]) else None
    if quarter := _QUARTER.match(text):
        return datetime(int(quarter[1]), 3 * int(quarter[2]) - 2, 1)
    parts = text.split(" ")
    try:
        if len(parts) > 1 and all(part.isdecimal() for part in parts):  # year, month, day, hour in columns of their own
            return datetime(*map(int, [*parts, "1", "1"][: max(3, len(parts))]))  # type: ignore[arg-type]
        return float(text) if text.replace(".", "", 1).lstrip("-").isdecimal() else datetime.fromisoformat(text)
    except (ValueError, TypeError):
        return None


def written(moment: Moment, like: str) -> str:
    """A moment in the form of another time stamp."""
    if not isinstance(moment, datetime):
        return f"{moment:g}" if abs(moment) < 1e6 else str(int(moment) if moment.is_integer() else moment)
    if month := _MONTH.match(like):
        return f"{moment.year:0{len(month[1])}d}-{moment.month:02d}"
    if quarter := _QUARTER.match(like):
        between = like[len(quarter[1]) : -1]
        return f"{moment.year:04d}{between}{(moment.month + 2) // 3}"
    whole = ":" not in like and moment.hour == moment.minute == moment.second == 0 and " " not in like
    return moment.date().isoformat() if whole else moment.isoformat(sep="T" if "T" in like else " ")


def step_of(moments: Sequence[Moment | None]) -> Step | None:
    """How far apart the moments usually are; nothing where they cannot be told."""
    there = [moment for moment in moments if moment is not None]
    if len(there) < 2 or len(there) < len(moments) or not _comparable(there):
        return None
    dates = [moment for moment in there if isinstance(moment, datetime)]
    if not dates:
        numbers = [moment for moment in there if isinstance(moment, float)]
        number = Counter(b - a for a, b in pairwise(numbers)).most_common(1)[0][0]
        return Step(number=number) if number > 0 else None
    gaps = [b - a for a, b in pairwise(dates)]
    usual = Counter(gaps).most_common(1)[0][0]
    middle = sorted(gaps)[len(gaps) // 2]
    ends = all(monthrange(m.year, m.month)[1] == m.day for m in dates)
    if middle >= timedelta(days=28) and (ends or len({(m.day, m.hour, m.minute) for m in dates}) == 1):
        months = [(b.year - a.year) * 12 + b.month - a.month for a, b in pairwise(dates)]
        return Step(months=Counter(months).most_common(1)[0][0], month_ends=ends)
    if usual <= timedelta(0):
        return None
    long = (dates[-1] - dates[0]) / usual >= 10
    return Step(delta=usual, weekdays=usual == timedelta(days=1) and long and all(m.weekday() < 5 for m in dates))


def grid(moments: Sequence[Moment], step: Step) -> Int[np.ndarray, " T"] | None:
    """The place of each moment on a regular grid; None where they lie off it, or it would be mostly empty."""
    places = step.places(moments)
    whole = np.rint(places)
    off = np.abs(places - whole).max() > 0.01 or (np.diff(whole) < 1).any()
    if off or whole[-1] + 1 > 2 * len(moments) + 1:
        return None
    return whole.astype(np.int64)


def future_stamps(times: Sequence[str], horizon: int) -> list[str]:
    """When the next moments are, in the form of the others."""
    last = moment_of(times[-1]) if times else None
    step = step_of([moment_of(time) for time in times[-50:]])
    if step is None or last is None:
        return [f"+{count}" for count in range(1, horizon + 1)]
    return [written(step.after(last, count), times[-1]) for count in range(1, horizon + 1)]


def calendar(times: Sequence[str]) -> Float[np.ndarray, "T 6"]:
    """The hour of the day, the day of the week and of the year, each as a point on a circle."""
    turns = []
    for time in times:
        moment = moment_of(time)
        if not isinstance(moment, datetime):
            raise DataError(
                f"{shorten(time)} is no date, so it has no hour or weekday", hint="set data.calendar=false."
            )
        hours = moment.hour + moment.minute / 60
        turns.append((hours / 24, (moment.weekday() + hours / 24) / 7, moment.timetuple().tm_yday / 365.25))
    angles = 2 * np.pi * np.asarray(turns, dtype=np.float64).reshape(len(times), 3)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


def _comparable(moments: Sequence[Moment]) -> bool:
    """Whether all are of one kind: a time with a zone is neither before nor after one without."""
    return len({(type(m), isinstance(m, datetime) and m.tzinfo is not None) for m in moments}) == 1


def _known_form(texts: list[str], *, numbers: bool) -> list[str] | None:
    moments = [moment_of(text) for text in texts]
    if None in moments or not _comparable([m for m in moments if m is not None]):
        return None
    if isinstance(moments[0], datetime):
        columns = texts[0].count(" ") + 1 if texts[0].replace(" ", "").isdecimal() else 0
        return [_joined(text, columns) for text in texts] if columns > 1 else texts
    if all(len(text) == 8 and text.isdecimal() for text in texts):
        return _parsed(texts, "%Y%m%d") or (texts if numbers else None)
    if all(len(text) == 6 and text.isdecimal() for text in texts):
        return _parsed(texts, "%Y%m") or (texts if numbers else None)
    values = [moment for moment in moments if isinstance(moment, float)]
    for least, most, scale in ((1e8, 5e9, 1), (1e11, 5e12, 1000)):  # seconds since 1970, or milliseconds
        if numbers and len(values) > 1 and all(least <= value < most for value in values):
            dates = [datetime.fromtimestamp(value / scale, UTC).replace(tzinfo=None) for value in values]
            return [date.isoformat(sep=" ") for date in dates]
    return texts if numbers else None


def _joined(text: str, columns: int) -> str:
    """Year, month, day, hour and minute of columns of their own in one time stamp."""
    moment = moment_of(text)
    assert isinstance(moment, datetime)
    if columns == 2:
        return f"{moment.year:04d}-{moment.month:02d}"
    return moment.date().isoformat() if columns == 3 else moment.isoformat(sep=" ")


def _foreign_form(texts: list[str]) -> list[str] | None:
    for pattern in _QUARTERS:
        found = [pattern.match(text) for text in texts]
        if all(found):
            return [f"{match['y']}Q{match['q']}" for match in found if match]
    forms = [*_MONTHS, *(day + clock for day in _DAYS for clock in _CLOCKS)]
    readings = [reading for form in forms if (reading := _parsed(texts, form)) is not None]
    return min(readings, key=_irregularity, default=None)


def _parsed(texts: Sequence[str], form: str) -> list[str] | None:
    moments = []
    for text in texts:
        try:
            moment = datetime.strptime(text, form)
        except ValueError:
            return None
        if "%y" in form and moment.year > _LATEST:
            moment = moment.replace(year=moment.year - 100)
        moments.append(moment)
    if "%d" not in form:
        return [f"{moment.year:04d}-{moment.month:02d}" for moment in moments]
    if "%H" in form or "%I" in form:
        return [moment.isoformat(sep=" ") for moment in moments]
    return [moment.date().isoformat() for moment in moments]


def _irregularity(times: Sequence[str]) -> tuple[int, int, timedelta]:
    """How often the order changes, how many rows are not one step after the row before, and with hours how far apart
    the first and the last are."""
    moments = [moment for moment in map(moment_of, times) if isinstance(moment, datetime)]
    down = sum(b < a for a, b in pairwise(moments))
    if 2 * down > len(moments):
        moments = moments[::-1]
    step = step_of(moments)
    uneven = len(moments) if step is None else int((np.abs(np.diff(step.places(moments)) - 1) > 0.01).sum())
    span = max(moments) - min(moments) if ":" in times[0] else timedelta(0)
    return min(down, len(moments) - 1 - down), uneven, span
