"""The step between the moments of a time series: how it is inferred, and how it continues a series.

Weekdays, months of unequal length, and month ends count as steps of equal size.
"""

from calendar import monthrange
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import mode

import numpy as np
from jaxtyping import Float, Int

Moment = datetime | float
_DAY = timedelta(days=1)
_WEEK = timedelta(days=7)
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
    """The distance between two moments: a number of months, a duration, or a number."""

    months: int = 0
    delta: timedelta = timedelta(0)
    number: float = 0.0
    weekdays: bool = False  # Monday follows Friday
    month_ends: bool = False  # each moment is the last day of its month

    @property
    def frequency(self) -> str:
        """The name of the frequency, such as "monthly" or "every 5 minutes"."""
        period = self.months or self.delta
        if not period:
            return "numbered"
        if self.weekdays:
            return "weekdays"
        if period in _FREQUENCIES:
            return _FREQUENCIES[period]
        if self.months:
            return f"every {self.months} months"
        seconds = round(self.delta.total_seconds())
        size, unit = next(pair for pair in _UNITS if seconds % pair[0] == 0)
        if seconds == size:
            return f"every {unit}"
        return f"every {seconds // size} {unit}s"

    @property
    def season(self) -> int:
        """The number of steps in the shortest cycle (day, week, year) that has at least two; 1 if none has."""
        if self.months:
            return 12 // self.months if 12 % self.months == 0 else 1
        if self.weekdays:
            return 5
        if not self.delta:
            return 1
        counts = [cycle / self.delta for cycle in (_DAY, _WEEK, 52 * _WEEK)]
        return next((round(count) for count in counts if count >= 2), 1)

    def after(self, moment: Moment, count: int) -> Moment:
        """Return the moment `count` steps after the given one."""
        if not isinstance(moment, datetime):
            return moment + self.number * count
        if self.months:
            return self._months_after(moment, count)
        if self.weekdays:
            day = np.busday_offset(np.datetime64(moment.date(), "D"), count, roll="forward")
            return datetime.combine(day.astype(object), moment.timetz())
        return moment + self.delta * count

    def _months_after(self, moment: datetime, count: int) -> datetime:
        year, month = divmod(moment.year * 12 + moment.month - 1 + self.months * count, 12)
        last = monthrange(max(1, year), month + 1)[1]
        day = last if self.month_ends else min(moment.day, last)
        return moment.replace(year=year, month=month + 1, day=day)

    def offsets(self, moments: Sequence[Moment]) -> Float[np.ndarray, " T"]:
        """Return the number of steps from the first moment to each; a whole number for a moment on the grid."""
        dates = only_dates(moments)
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


def infer_step(moments: Sequence[Moment | None]) -> TimeStep | None:
    """Return the most frequent step between consecutive moments, or None if there is none."""
    if len(moments) < 2 or not are_comparable(moments):
        return None
    dates = only_dates(moments)
    if not dates:
        differences = np.diff(np.asarray(moments, dtype=np.float64)).tolist()
        number = mode(differences)
        return TimeStep(number=number) if number > 0 else None
    gaps = [later - earlier for earlier, later in pairwise(dates)]
    month_ends = all(monthrange(date.year, date.month)[1] == date.day for date in dates)
    same_day = len({(date.day, date.hour, date.minute) for date in dates}) == 1
    median = sorted(gaps)[len(gaps) // 2]
    if median >= timedelta(days=28) and (month_ends or same_day):
        months = [12 * (b.year - a.year) + b.month - a.month for a, b in pairwise(dates)]
        return TimeStep(months=mode(months), month_ends=month_ends)
    delta = mode(gaps)
    if delta <= timedelta(0):
        return None
    long = (dates[-1] - dates[0]) / delta >= 10
    weekdays = delta == _DAY and long and all(date.weekday() < 5 for date in dates)
    return TimeStep(delta=delta, weekdays=weekdays)


def grid_positions(moments: Sequence[Moment], step: TimeStep) -> Int[np.ndarray, " T"] | None:
    """Return the index of each moment on a regular grid; None if one is off the grid, or most of it would be empty."""
    offsets = step.offsets(moments)
    positions = np.rint(offsets)
    if np.abs(offsets - positions).max() > 0.01 or (np.diff(positions) < 1).any():
        return None
    if positions[-1] > 2 * len(moments):
        return None
    return positions.astype(np.int64)


def only_dates(moments: Sequence[Moment | None]) -> list[datetime]:
    """Return those of the moments that are dates rather than numbers."""
    return [moment for moment in moments if isinstance(moment, datetime)]


def are_comparable(moments: Sequence[Moment | None]) -> bool:
    """Whether all are numbers, all dates with a time zone, or all dates without one, so that they have an order."""
    kinds = {
        (type(moment), isinstance(moment, datetime) and moment.tzinfo is not None)
        for moment in moments
    }
    return len(kinds) == 1 and None not in moments
