"""Numbers over time, from tables as people keep them."""

import numpy as np
import pytest

from seqlab.data.series import calendar, future_times, read_series, uneven_steps, usual_season
from seqlab.errors import DataError, UsageError

MONTHS = ["Month,Passengers", "1949-11,104", "1949-12,118", "1950-01,115"]
HOURS = ["date,load,OT", "2016-07-01 22:00:00,1,2.5", "2016-07-01 23:00:00,NA,3", "2016-07-02 00:00:00,,4"]


@pytest.fixture
def table(tmp_path):
    def write(lines, name="series.csv"):
        (tmp_path / name).write_text("\n".join(lines) + "\n", "utf-8")
        return str(tmp_path / name)

    return write


def refusal(path, **options):
    with pytest.raises(DataError) as caught:
        read_series(path, **options)
    return str(caught.value)


def test_a_time_column_is_known_by_its_name_and_the_others_are_variables(table):
    series = read_series(table(MONTHS))
    assert series.columns == ("Passengers",)
    assert series.times == ("1949-11", "1949-12", "1950-01")
    assert series.values.tolist() == [[104], [118], [115]]


def test_a_gap_is_not_a_number_and_nothing_is_filled_in(table):
    series = read_series(table(HOURS))
    np.testing.assert_equal(series.values, [[1, 2.5], [np.nan, 3], [np.nan, 4]])


def test_columns_are_chosen_by_name_or_number_in_the_order_asked_for(table):
    path = table(HOURS)
    assert read_series(path, columns=["OT", "2"]).columns == ("OT", "load")
    with pytest.raises(UsageError, match="there is no column 'lod'") as caught:
        read_series(path, columns=["lod"])
    assert "load" in caught.value.hint


def test_a_time_may_stand_in_several_columns(table):
    rows = ["year,month,day,hour,pm", "2010,12,31,22,1", "2010,12,31,23,2", "2011,1,1,0,3"]
    series = read_series(table(rows), time="year,month,day,hour")
    assert series.columns == ("pm",)
    assert future_times(series, 1) == ["2011-01-01 01:00:00"]
    assert read_series(table(rows)).times == series.times  # columns of such names are known


def test_without_times_the_rows_are_equally_far_apart(table):
    series = read_series(table(["a\tb", "1\t2", "3\t4"], "x.tsv"))
    assert series.times == ("0", "1")
    assert future_times(series, 2) == ["2", "3"]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (MONTHS, ["1950-02", "1950-03"]),
        (HOURS, ["2016-07-02 01:00:00", "2016-07-02 02:00:00"]),
        (["day,x", "2024-02-27,1", "2024-02-28,1"], ["2024-02-29", "2024-03-01"]),
        (["year,x", "2000,1", "2010,1"], ["2020", "2030"]),
    ],
)
def test_the_future_is_written_as_the_past_is(table, rows, expected):
    assert future_times(read_series(table(rows)), 2) == expected


def test_what_is_no_number_is_named_by_row_and_column(table):
    assert "series.csv:3, column 'x': 'NW' is not a number" in refusal(
        table(["date,x", "2024-01-01,1", "2024-01-02,NW"])
    )
    assert "series.csv:2, column 'x': infinity" in refusal(table(["date,x", "2024-01-01,inf"]))


def test_times_that_are_out_of_order_or_twice_are_named_by_their_line(table):
    late = table(["date,x", "2024-01-02,1", "", "2024-01-01,2"])
    assert "series.csv:4: 2024-01-01 is a time before the line above" in refusal(late)
    twice = table(["date,x", "2024-01-02,1", "2024-01-02,2"])
    assert "series.csv:3: 2024-01-02 is the same time as the line above" in refusal(twice)


def test_what_is_no_time_is_refused(table):
    assert "series.csv:3: 'soon' is not a time like the others" in refusal(table(["date,x", "2024-01-02,1", "soon,2"]))
    assert "series.csv:2: 'soon' is not a time" in refusal(table(["date,x", "soon,2"]))


def test_tables_without_content_are_refused(table):
    assert "no rows below the header" in refusal(table(["date,x"]))
    assert "column 'x' has no observation at all" in refusal(table(["date,x", "2024-01-02,", "2024-01-03,NA"]))
    assert "series.csv:2: 1 cells where the header has 2" in refusal(table(["date,x", "2024-01-02"]))


@pytest.mark.parametrize(
    ("times", "season"),
    [
        (["2024-01-01 00:00", "2024-01-01 01:00"], 24),
        (["2024-01-01 00:00", "2024-01-01 00:15"], 96),
        (["2024-01-01", "2024-01-02"], 7),
        (["2024-01-01", "2024-01-08"], 52),
        (["2024-01", "2024-02"], 12),
        (["2024-01", "2024-04"], 4),
        (["2024-01-01", "2026-01-01"], 1),
        (["0", "1"], 1),
        (["0"], 1),
    ],
)
def test_a_season_that_suits_the_time_stamps(times, season):
    assert usual_season(times) == season


def test_a_calendar_goes_round(table):
    """Six in the morning, half a week and half a year later are on the other side of their circles."""
    hours = calendar(["2024-01-01 00:00", "2024-01-01 06:00", "2024-01-02 00:00"])
    np.testing.assert_allclose(hours[:, [0, 3]], [[0, 1], [1, 0], [0, 1]], atol=1e-9)
    year = calendar(["2024-01", "2024-07", "2025-01"])
    assert year[0, 5] > 0.99
    assert year[1, 5] < -0.99
    np.testing.assert_allclose(year[0, [2, 5]], year[2, [2, 5]], atol=0.01)
    with pytest.raises(DataError, match="'7' is no date"):
        calendar(["7"])


def test_moments_that_are_left_out_are_counted():
    assert uneven_steps(["2024-01-01", "2024-01-02", "2024-01-03", "2024-01-05"]) == 1
    assert uneven_steps(["2024-01", "2024-02", "2024-03"]) == 0
    assert uneven_steps(["2024-01-30 23:00", "2024-01-31 00:00"]) == 0
