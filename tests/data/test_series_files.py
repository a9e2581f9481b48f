"""Time series read from tables."""

import warnings

import numpy as np
import pytest

from seqlab.codecs.series import calendar_features
from seqlab.data.series_files import read_series
from seqlab.data.time_series import frequency_of, future_times, usual_season
from seqlab.errors import DataError, SeqlabWarning, UsageError

MONTHS = ["Month,Passengers", "1949-11,104", "1949-12,118", "1950-01,115"]
HOURS = [
    "date,load,OT",
    "2016-07-01 22:00:00,1,2.5",
    "2016-07-01 23:00:00,NA,3",
    "2016-07-02 00:00:00,,4",
]


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


def test_the_time_column_is_found_by_its_name_and_the_others_are_variables(table):
    series = read_series(table(MONTHS))
    assert series.columns == ("Passengers",)
    assert series.times == ("1949-11", "1949-12", "1950-01")
    assert series.values.tolist() == [[104], [118], [115]]


def test_a_missing_value_is_nan(table):
    series = read_series(table(HOURS))
    np.testing.assert_equal(series.values, [[1, 2.5], [np.nan, 3], [np.nan, 4]])


def test_columns_are_chosen_by_name_or_number_in_the_order_requested(table):
    path = table(HOURS)
    assert read_series(path, columns=["OT", "2"]).columns == ("OT", "load")
    with pytest.raises(UsageError, match="there is no column 'lod'") as caught:
        read_series(path, columns=["lod"])
    assert "load" in caught.value.hint


def test_a_time_in_several_columns(table):
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
def test_future_times_have_the_form_of_past_times(table, rows, expected):
    assert future_times(read_series(table(rows)), 2) == expected


def test_a_value_that_is_not_a_number_is_named_by_row_and_column(table):
    assert "series.csv:3, column 'x': 'NW' is not a number" in refusal(
        table(["date,x", "2024-01-01,1", "2024-01-02,NW"])
    )
    assert "series.csv:2, column 'x': infinity" in refusal(table(["date,x", "2024-01-01,inf"]))


def test_unsorted_rows_are_sorted_and_repeated_times_are_refused(table):
    late = table(["date,x", "2024-01-02,1", "", "2024-01-01,2", "2024-01-03,3"])
    with pytest.warns(SeqlabWarning, match="the rows are sorted by time"):
        series = read_series(late)
    assert series.times == ("2024-01-01", "2024-01-02", "2024-01-03")
    assert series.values[:, 0].tolist() == [2, 1, 3]
    with pytest.warns(SeqlabWarning, match="in the file they are latest first"):
        assert read_series(table(["date,x", "2024-01-02,1", "2024-01-01,2"])).values[
            :, 0
        ].tolist() == [2, 1]
    twice = table(["date,x", "2024-01-02,1", "2024-01-01,2", "2024-01-02,2"])
    with pytest.warns(SeqlabWarning, match="the rows are sorted by time"):
        assert "series.csv:4: 2024-01-02 is repeated (first on line 2)" in refusal(twice)


def test_a_value_that_is_not_a_time_is_refused(table):
    assert "series.csv:3: 'soon' is not a time like the others" in refusal(
        table(["date,x", "2024-01-02,1", "soon,2"])
    )
    assert "series.csv:2: 'soon' is not a time" in refusal(table(["date,x", "soon,2"]))


def test_tables_without_content_are_refused(table):
    assert "no rows below the header" in refusal(table(["date,x"]))
    assert "column 'x' has no observation at all" in refusal(
        table(["date,x", "2024-01-02,", "2024-01-03,NA"])
    )
    assert "series.csv:2: 1 cells where the header has 2" in refusal(
        table(["date,x", "2024-01-02"])
    )


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
def test_the_season_follows_from_the_time_stamps(times, season):
    assert usual_season(times) == season


def test_calendar_features_are_points_on_a_circle(table):
    """Six in the morning, half a week and half a year later are half a turn or a quarter turn away."""
    hours = calendar_features(["2024-01-01 00:00", "2024-01-01 06:00", "2024-01-02 00:00"])
    np.testing.assert_allclose(hours[:, [0, 3]], [[0, 1], [1, 0], [0, 1]], atol=1e-9)
    year = calendar_features(["2024-01", "2024-07", "2025-01"])
    assert year[0, 5] > 0.99
    assert year[1, 5] < -0.99
    np.testing.assert_allclose(year[0, [2, 5]], year[2, [2, 5]], atol=0.01)
    with pytest.raises(DataError, match="'7' is not a date"):
        calendar_features(["7"])


JANUARY = [f"2024-01-{day:02}" for day in range(1, 32)]


@pytest.mark.parametrize(
    ("stamps", "first", "following", "frequency", "season"),
    [
        (["1-01", "1-02", "1-03"], "1-01", "1-04", "monthly", 12),
        (["1964-11", "1964-12", "1965-01"], "1964-11", "1965-02", "monthly", 12),
        (["Nov-64", "Dec-64", "Jan-65"], "1964-11", "1965-02", "monthly", 12),
        (
            ["November 1964", "December 1964", "January 1965"],
            "1964-11",
            "1965-02",
            "monthly",
            12,
        ),
        (["196411", "196412", "196501"], "1964-11", "1965-02", "monthly", 12),
        (["01/11/2020", "01/12/2020", "01/01/2021"], "2020-11-01", "2021-02-01", "monthly", 12),
        (["2020-01-31", "2020-02-29", "2020-03-31"], "2020-01-31", "2020-04-30", "monthly", 12),
        (["2020Q3", "2020Q4", "2021Q1"], "2020Q3", "2021Q2", "quarterly", 4),
        (["Q3 2020", "Q4 2020", "Q1 2021"], "2020Q3", "2021Q2", "quarterly", 4),
        (["2020-03-31", "2020-06-30", "2020-09-30"], "2020-03-31", "2020-12-31", "quarterly", 4),
        (["1998", "1999", "2000"], "1998", "2001", "numbered", 1),
        (["20231230", "20231231", "20240101"], "2023-12-30", "2024-01-02", "daily", 7),
        (["30.12.2023", "31.12.2023", "01.01.2024"], "2023-12-30", "2024-01-02", "daily", 7),
        (["12/30/2023", "12/31/2023", "1/1/2024"], "2023-12-30", "2024-01-02", "daily", 7),
        (["03/04/2023", "04/04/2023", "05/04/2023"], "2023-04-03", "2023-04-06", "daily", 7),
        (
            ["03/04/2023", "03/05/2023", "03/06/2023", "03/13/2023"],
            "2023-03-04",
            "2023-03-14",
            "daily",
            7,
        ),
        (["30-Dec-23", "31-Dec-23", "1-Jan-24"], "2023-12-30", "2024-01-02", "daily", 7),
        (
            ["Dec 30, 2023", "Dec 31, 2023", "Jan 1, 2024"],
            "2023-12-30",
            "2024-01-02",
            "daily",
            7,
        ),
        (["2024-01-01", "2024-01-08", "2024-01-15"], "2024-01-01", "2024-01-22", "weekly", 52),
        (
            ["1700000000", "1700003600", "1700007200"],
            "2023-11-14 22:13:20",
            "2023-11-15 01:13:20",
            "hourly",
            24,
        ),
        (
            ["1700000000000", "1700003600000"],
            "2023-11-14 22:13:20",
            "2023-11-15 00:13:20",
            "hourly",
            24,
        ),
        (
            ["31.12.2023 23:45", "01.01.2024 00:00"],
            "2023-12-31 23:45:00",
            "2024-01-01 00:15:00",
            "every 15 minutes",
            None,
        ),
        (
            ["1/1/2024 11:00 PM", "1/2/2024 12:00 AM"],
            "2024-01-01 23:00:00",
            "2024-01-02 01:00:00",
            "hourly",
            None,
        ),
        (
            ["2023-12-31T23:00:00Z", "2024-01-01T00:00:00Z"],
            "2023-12-31T23:00:00Z",
            "2024-01-01T01:00:00+00:00",
            "hourly",
            None,
        ),
    ],
)
def test_times_of_many_forms_have_a_frequency(table, stamps, first, following, frequency, season):
    quoted = [f'"{stamp}",{n}' for n, stamp in enumerate(stamps)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SeqlabWarning)
        series = read_series(
            table(["When,x", *quoted]) if not stamps[0].isdecimal() else table(["Date,x", *quoted])
        )
    assert series.times[0] == first
    assert future_times(series, 1) == [following]
    assert frequency_of(series) == frequency
    assert season is None or usual_season(series.times) == season


def test_missing_time_stamps_become_missing_values(table):
    rows = [f"{day},{place}" for place, day in enumerate(JANUARY) if place not in (3, 4, 20)]
    with pytest.warns(
        SeqlabWarning, match=r"3 time stamps are missing \(daily, the first is 2024-01-04\)"
    ):
        series = read_series(table(["date,x", *rows]))
    assert series.times == tuple(JANUARY)
    assert np.flatnonzero(np.isnan(series.values[:, 0])).tolist() == [3, 4, 20]
    assert (frequency_of(series), usual_season(series.times)) == ("daily", 7)


def test_weekends_are_not_missing_in_a_series_of_weekdays(table):
    days = np.arange("2024-01-01", "2024-02-10", dtype="datetime64[D]")
    weekdays = [str(day) for day in days if np.is_busday(day) and str(day) != "2024-01-15"]
    with pytest.warns(
        SeqlabWarning, match=r"1 time stamp is missing \(weekdays, the first is 2024-01-15\)"
    ):
        series = read_series(table(["date,x", *(f"{day},1.5" for day in weekdays)]))
    assert len(series) == len(weekdays) + 1
    assert future_times(series, 2) == ["2024-02-12", "2024-02-13"]
    assert usual_season(series.times) == 5


def test_times_without_a_regular_step_keep_their_order(table):
    rows = ["date,x", "2024-01-01,1", "2024-01-02,2", "2024-02-11,3", "2024-06-01,4"]
    with pytest.warns(SeqlabWarning, match="the times have no regular step"):
        assert len(read_series(table(rows))) == 4


def test_the_time_column_is_found_by_its_content(table):
    series = read_series(table(["x,Monat der Messung", "1,2024-01", "2,2024-02"]))
    assert series.columns == ("x",)
    assert series.times == ("2024-01", "2024-02")


def test_text_and_row_numbers_are_left_out_with_a_warning(table):
    rows = [
        "No,date,x,wind",
        *(f"{n + 1},{day},{n * 2},{'NW' if n % 2 else 'SE'}" for n, day in enumerate(JANUARY)),
    ]
    with pytest.warns(
        SeqlabWarning, match=r"left out: 'No' \(row numbers\), 'wind' \(text such as 'SE'\)"
    ):
        assert read_series(table(rows)).columns == ("x",)
    assert "no column holds numbers" in refusal(table(["date,x", "2024-01-01,a", "2024-01-02,b"]))


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (["date;x", "2024-01-01;1,5", "2024-01-02;1.234,25"], [1.5, 1234.25]),
        (["date;x", "2024-01-01;1,250", "2024-01-02;2,375"], [1.25, 2.375]),
        (["date\tx", "2024-01-01\t0,5", "2024-01-02\t-3,25"], [0.5, -3.25]),
        (["date,x", '2024-01-01,"1,250"', '2024-01-02,"12,375"'], [1250, 12375]),
        (["date,x", '2024-01-01,"$1,250.50"', "2024-01-02,$7"], [1250.5, 7]),
        (["date,x", "2024-01-01,5%", "2024-01-02,7.5 %"], [5, 7.5]),
    ],
)
def test_numbers_in_the_notation_of_other_countries(table, rows, expected):
    assert read_series(table(rows)).values[:, 0].tolist() == expected


@pytest.mark.parametrize(
    "rows",
    [
        ["3", "4.5", "6"],
        ["x", "3", "4.5", "6"],
        ["3 0", "4.5 1", "6 2"],
        ["3\t0", "4.5\t1", "6\t2"],
    ],
)
@pytest.mark.parametrize("name", ["a.csv", "a.txt", "a.tsv"])
def test_a_series_without_times_and_without_names(table, rows, name):
    series = read_series(table(rows, name))
    assert series.values[:, 0].tolist() == [3, 4.5, 6]
    assert series.columns[0] == ("x" if rows[0] == "x" else "value" if rows[0] == "3" else "1")
    assert series.times == ("0", "1", "2")


def test_lines_of_text_below_the_table_are_left_out(table):
    rows = [
        '"Month","Sales of shampoo"',
        '"1-01",266.0',
        '"1-02",145.9',
        '"1-03",183.1',
        "",
        "Sales over three years",
    ]
    with pytest.warns(SeqlabWarning, match="series.csv:6: 'Sales over three years' is not a row"):
        assert len(read_series(table(rows))) == 3


def test_a_total_below_the_table_is_left_out(table):
    rows = [f"2001-{month:02},{month}" for month in range(1, 13)]
    with pytest.warns(SeqlabWarning, match="'Total' is not a time, so the row is left out"):
        series = read_series(table(["month,sales", *rows, "Total,78"]))
    assert len(series) == 12


def test_many_series_one_below_the_other_are_columns_side_by_side(table):
    rows = [
        f"{day},{shop},{10 * number + place}"
        for number, shop in enumerate("AB")
        for place, day in enumerate(JANUARY)
    ]
    series = read_series(table(["date,shop,sales", *rows[:-1]]))
    assert series.columns == ("A", "B")
    assert series.times == tuple(JANUARY)
    assert series.values[2].tolist() == [2, 12]
    assert np.isnan(series.values[-1, 1])
    assert read_series(table(["date,shop,sales", *rows]), columns=["B"]).values[0].tolist() == [10]
    assert read_series(table(["date,shop,sales", *rows]), columns=["sales"]).columns == ("A", "B")
    twice = table(["date,shop,sales", *rows, rows[3]])
    assert "series.csv:64: 2024-01-04 of 'A' is repeated (first on line 5)" in refusal(
        twice, ids="shop"
    )


def test_two_columns_may_identify_series_of_several_variables(table):
    keys = [(store, item, day) for store in "12" for item in "12" for day in JANUARY[:8]]
    rows = [f"{day},{store},{item},{n * 1.5},{n}.25" for n, (store, item, day) in enumerate(keys)]
    series = read_series(table(["date,store,item,sales,price", *rows]))
    assert series.columns[:3] == ("1/1 sales", "1/1 price", "1/2 sales")
    assert series.values.shape == (8, 8)
    assert series.values[1, 2] == 13.5
    one = read_series(
        table(["date,store,item,sales,price", *rows]), columns=["sales"], ids="store,item"
    )
    assert one.columns == ("1/1", "1/2", "2/1", "2/2")


def test_many_series_one_a_row(table):
    header = ["V1", *(f"V{n}" for n in range(2, 14))]
    rows = [["H1", *range(12)], ["H2", *range(5), *[""] * 7]]
    series = read_series(table([",".join(f'"{cell}"' for cell in row) for row in (header, *rows)]))
    assert series.columns == ("H1", "H2")
    assert series.values[:, 0].tolist() == list(range(12))
    np.testing.assert_equal(series.values[:, 1], [np.nan] * 7 + list(range(5)))  # both end now
    assert (frequency_of(series), usual_season(series.times)) == ("numbered", 1)
    years = read_series(
        table(
            [
                "Country,Code," + ",".join(map(str, range(1990, 2000))),
                *(f"{c},X{c}," + ",".join("123456789") + "," for c in "AB"),
            ]
        )
    )
    assert years.columns == ("A", "B")
    assert years.times == tuple(map(str, range(1990, 2000)))
    assert np.isnan(years.values[-1]).all()
    assert future_times(years, 1) == ["2000"]
    dates = read_series(table(["page," + ",".join(JANUARY[:9]), "p," + ",".join("123456789")]))
    assert dates.times == tuple(JANUARY[:9])


def test_series_in_json(table):
    rows = ['{"ds": "2024-01-01", "y": 1.5, "note": null}', '{"ds": "2024-01-02", "y": 2}']
    assert read_series(table(rows, "a.jsonl"), columns=["y"]).values[:, 0].tolist() == [1.5, 2]


@pytest.mark.parametrize(
    ("name", "shape", "frequency", "season"),
    [
        ("foreign/monthly_champagne_sales.csv", (105, 1), "monthly", 12),
        ("foreign/shampoo.csv", (36, 1), "monthly", 12),
        ("foreign/daily-births.csv", (365, 1), "daily", 7),
        ("timeseries-small/daily-min-temperatures.csv", (3652, 1), "daily", 7),
        ("m4-hourly/Hourly-train.csv.gz", (960, 414), "numbered", 1),
        ("ett/ETTh1.csv.gz", (17420, 7), "hourly", 24),
    ],
)
def test_real_series(shared_data, name, shape, frequency, season):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SeqlabWarning)
        series = read_series(str(shared_data(name)))
    assert series.values.shape == shape
    assert (frequency_of(series), usual_season(series.times)) == (frequency, season)


def test_a_row_that_is_cut_short_at_the_end_is_refused(table):
    assert "series.csv:5: 1 cells" in refusal(
        table(["day,x", "2024-01-01,1.5", "2024-01-02,", "2024-01-03,3", "2"])
    )
