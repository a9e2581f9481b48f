"""Numbers over time: one or several variables at regular moments, NaN where nothing was observed.

A missing observation is inside the series: time passes and nothing is observed. A missing time stamp becomes a row
of missing observations.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from jaxtyping import Float

from seqlab.data.text_table import column_index
from seqlab.data.time_formats import format_moment, parse_moment
from seqlab.data.time_steps import Moment, TimeStep, grid_positions, infer_step
from seqlab.errors import DataError, warn

_MAX_REPEATED = 0.01  # the share of moments that may be repeated with different values
_RECENT = 50  # moments that show the step of a series


@dataclass(frozen=True)
class Series:
    """Variables over time, NaN where nothing was observed; `times` in the form of `read_times`."""

    where: str
    columns: tuple[str, ...]
    times: tuple[str, ...]
    values: Float[np.ndarray, "T C"]

    def __len__(self) -> int:
        return len(self.values)


def with_columns(series: Series, columns: Sequence[str]) -> Series:
    """Return the variables of these names, in this order; all of them if no name is given."""
    if not columns:
        return series
    indices = [column_index(series.columns, name) for name in columns]
    names = tuple(series.columns[index] for index in indices)
    return replace(series, columns=names, values=series.values[:, indices])


def frequency_of(series: Series) -> str:
    """Return the name of the series' frequency, such as "daily"."""
    step = infer_step([parse_moment(time) for time in series.times])
    return "unknown" if step is None else step.frequency


def future_times(series: Series, horizon: int) -> list[str]:
    """Return the moments that follow the series, in the form of its own; +1, +2 and so on if they are unknown."""
    last = series.times[-1]
    moment = parse_moment(last)
    step = _recent_step(series.times)
    counts = range(1, horizon + 1)
    if step is None or moment is None:
        return [f"+{count}" for count in counts]
    return [format_moment(step.after(moment, count), last) for count in counts]


def usual_season(times: Sequence[str]) -> int:
    """Return the number of steps in a day, a week or a year, as the frequency suggests; 1 if it suggests none."""
    step = _recent_step(times)
    return 1 if step is None else step.season


def _recent_step(times: Sequence[str]) -> TimeStep | None:
    return infer_step([parse_moment(time) for time in times[-_RECENT:]])


def make_regular(series: Series, numbers: Sequence[int]) -> Series:
    """Sort the rows by time, merge repeated moments, and add a row without values for each missing moment.

    `numbers` are the lines of the rows in the file, if each row has one.
    """
    series, numbers = _without_repeated(series, numbers)
    moments = [parse_moment(time) or 0.0 for time in series.times]
    order = np.argsort(np.asarray(moments), kind="stable")
    if (np.diff(order) < 0).any():
        problem = "latest first" if (np.diff(order) < 0).all() else "not sorted"
        warn(f"{series.where}: the rows are sorted by time; in the file they are {problem}")
    for row, following in pairwise(order):
        if numbers and moments[row] == moments[following]:
            first, second = sorted((numbers[row], numbers[following]))
            raise DataError(
                f"{series.where}:{second}: {series.times[following]} is repeated (first on line {first})",
                hint="keep one of the two; if the file holds several series, name the column that identifies them: "
                "--set data.id=NAME",
            )
    moments = [moments[row] for row in order]
    times = tuple(series.times[row] for row in order)
    return _without_gaps(replace(series, times=times, values=series.values[order]), moments)


def _without_gaps(series: Series, moments: Sequence[Moment]) -> Series:
    """Add a row without values for each missing moment, if the times have a regular step."""
    step = infer_step(moments)
    positions = None if step is None else grid_positions(moments, step)
    if step is None or positions is None:
        if len(series) > 2:
            warn(
                f"{series.where}: the times have no regular step; the rows are treated as equally far apart"
            )
        return series
    row_at = dict(zip(positions.tolist(), range(len(series)), strict=True))
    length = positions[-1] + 1
    missing = [position for position in range(length) if position not in row_at]
    if not missing:
        return series
    first = series.times[0]
    times = [
        series.times[row_at[position]]
        if position in row_at
        else format_moment(step.after(moments[0], position), first)
        for position in range(length)
    ]
    values = np.full((length, len(series.columns)), np.nan)
    values[positions] = series.values
    count = f"{len(missing):,} time stamp{'s are' if len(missing) > 1 else ' is'} missing"
    warn(
        f"{series.where}: {count} ({step.frequency}, the first is {times[missing[0]]}); added as rows without values"
    )
    return replace(series, times=tuple(times), values=values)


def _without_repeated(series: Series, numbers: Sequence[int]) -> tuple[Series, Sequence[int]]:
    """Keep equal rows once, and average the few rows that have the same time but different values."""
    rows: dict[str, list[int]] = {}
    for row, time in enumerate(series.times):
        rows.setdefault(time, []).append(row)
    num_repeated = len(series) - len(rows)
    if not num_repeated or not numbers:
        return series, numbers
    are_equal = all(
        np.array_equal(series.values[row], series.values[first], equal_nan=True)
        for first, *repeats in rows.values()
        for row in repeats
    )
    if not are_equal and num_repeated > _MAX_REPEATED * len(series):
        return series, numbers
    time = next(time for time, same in rows.items() if len(same) > 1)
    action = "of equal rows one is kept" if are_equal else "their values are averaged"
    count = f"{num_repeated} time stamp{'s are' if num_repeated > 1 else ' is'} repeated"
    warn(f"{series.where}: {count}, such as {time}; {action}")
    values = np.stack([series.values[same].mean(axis=0) for same in rows.values()])
    firsts = [numbers[same[0]] for same in rows.values()]
    return replace(series, times=tuple(rows), values=values), firsts
