"""Time series in many formats: times, numbers, missing values, and layouts of tables."""

import json
from datetime import date, datetime, timedelta

import numpy as np
import pytest

from seqlab.data.proposal import propose
from seqlab.data.series_files import read_series
from seqlab.data.time_series import frequency_of
from seqlab.errors import DataError, SeqlabWarning

MONTHS = [(1990 + n // 12, n % 12 + 1) for n in range(36)]
NAMES = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
GERMAN = "Januar Februar März April Mai Juni Juli August September Oktober November Dezember"
FRENCH = "janvier février mars avril mai juin juillet août septembre octobre novembre décembre"
GERMAN, FRENCH = GERMAN.split(), FRENCH.split()
DAYS = [date(2024, 1, 1) + timedelta(n) for n in range(40)]
HOURS = [datetime(2024, 1, 1) + timedelta(hours=n) for n in range(60)]
YEARS = list(range(1960, 1990))


def table(*rows, header=""):
    return "".join(
        ",".join(map(str, row)) + "\n" for row in ([header.split(",")] if header else []) + [*rows]
    )


TABLES = {  # content, frequency, number of rows, number of series
    "german.csv": (
        table(*((f"{GERMAN[m - 1]} {y}", n) for n, (y, m) in enumerate(MONTHS)), header="Monat,x"),
        "monthly",
        36,
        1,
    ),
    "french.csv": (
        table(*((f"{FRENCH[m - 1]} {y}", n) for n, (y, m) in enumerate(MONTHS)), header="mois,x"),
        "monthly",
        36,
        1,
    ),
    "chinese.csv": (
        table(*((f"{y}年{m}月", n) for n, (y, m) in enumerate(MONTHS)), header="月份,x"),
        "monthly",
        36,
        1,
    ),
    "dots.csv": (
        table(*((f"{m:02}.{y}", n) for n, (y, m) in enumerate(MONTHS)), header="Monat,x"),
        "monthly",
        36,
        1,
    ),
    "r.csv": (
        table(
            *((n + 1, f"{1990 + n / 12:.6f}", n * n) for n in range(36)),
            header="rownames,time,value",
        ),
        "monthly",
        36,
        1,
    ),
    "flights.csv": (
        table(
            *((y, GERMAN[m - 1] if m == 8 else NAMES[m - 1], n) for n, (y, m) in enumerate(MONTHS)),
            header="year,month,passengers",
        ),
        "monthly",
        36,
        1,
    ),
    "macro.csv": (
        table(
            *((f"{1990 + n // 4}.0", f"{n % 4 + 1}.0", n) for n in range(36)),
            header="year,quarter,gdp",
        ),
        "quarterly",
        36,
        1,
    ),
    "a_year_a_row.csv": (
        table(
            *((1990 + n, *range(12)) for n in range(4)),
            (1994, 7, 8, *[""] * 10),
            header="Year," + ",".join(NAMES),
        ),
        "monthly",
        50,
        1,
    ),
    "hours.csv": (
        table(*((t.date(), t.hour, n) for n, t in enumerate(HOURS)), header="date,hour,load"),
        "hourly",
        60,
        1,
    ),
    "hours_that_end.csv": (
        table(*((t.date(), t.hour + 1, n) for n, t in enumerate(HOURS)), header="Date,Hour,load"),
        "hourly",
        60,
        1,
    ),
    "clock.csv": (
        table(
            *((t.strftime("%d/%m/%Y"), t.strftime("%H.%M.%S"), n) for n, t in enumerate(HOURS)),
            header="Date,Time,CO",
        ),
        "hourly",
        60,
        1,
    ),
    "sunspots.csv": (table(*((y, m, n * n) for n, (y, m) in enumerate(MONTHS))), "monthly", 36, 1),
    "seconds.csv": (
        table(*((f"{n / 100:.2f}", n * n % 7) for n in range(36)), header="t,x"),
        "numbered",
        36,
        1,
    ),
    "blanks.txt": ("".join(f"{day}   {n:5.1f}\n" for n, day in enumerate(DAYS)), "daily", 40, 1),
    "one_line.txt": (" ".join(str(n * n % 7) for n in range(40)) + "\n", "numbered", 40, 1),
    "units.csv": (
        table(*((day, n, n % 7) for n, day in enumerate(DAYS)), header="date,temp,rain\n,°C,mm"),
        "daily",
        40,
        2,
    ),
    "title.csv": (
        "Station 5\n\n"
        + table(*((day, n, n % 7) for n, day in enumerate(DAYS)), header="date,temp,rain"),
        "daily",
        40,
        2,
    ),
    "world_bank.csv": (
        '"Source","Indicators",\n\n'
        + table(
            *((f"Land {c}", f"L{c}", *(c + n for n in range(30)), "") for c in range(12)),
            header="Name,Code," + ",".join(map(str, YEARS)) + ",",
        ),
        "numbered",
        30,
        12,
    ),
    "covid.csv": (
        table(
            *(("", f"Land {c}", c + 0.5, c, *range(40)) for c in range(12)),
            header="Province,Country,Lat,Long,"
            + ",".join(f"{d.month}/{d.day}/{d.year % 100}" for d in DAYS),
        ),
        "daily",
        40,
        12,
    ),
    "years_backwards.tsv": (
        "geo\t"
        + "\t".join(f"{y} " for y in YEARS[::-1])
        + "\n"
        + "".join(
            f"C{c}\t" + "\t".join(f"{n}.5 p" if n else ": " for n in range(30)) + "\n"
            for c in range(9)
        ),
        "numbered",
        30,
        9,
    ),
    "by_date.json": (json.dumps({str(day): n for n, day in enumerate(DAYS)}), "daily", 40, 1),
    "chart.json": (
        json.dumps({"data": [[1.6e12 + 864e5 * n, n * n % 7] for n in range(40)]}),
        "daily",
        40,
        1,
    ),
}


@pytest.mark.filterwarnings("ignore::seqlab.errors.SeqlabWarning")
@pytest.mark.parametrize("name", TABLES)
def test_series_in_many_forms(tmp_path, monkeypatch, name):
    content, frequency, rows, series = TABLES[name]
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(content, "utf-8")
    table = read_series(name)
    assert (frequency_of(table), len(table), len(table.columns)) == (frequency, rows, series)
    assert propose([name]).task == "forecast"


NUMBERS = {
    "1 234": 1234,
    "1\u202f234": 1234,
    "1'234": 1234,
    "(12)": -12,
    "\u221212.5": -12.5,
    "USD 12": 12,
    "₹12": 12,
    "12.5 °C": 12.5,
    "12.5K": 12500,
    "3M": 3e6,
    "12.5*": 12.5,
    "12.5 p": 12.5,
}


@pytest.mark.parametrize("text", NUMBERS)
def test_numbers_with_units_and_signs(tmp_path, text):
    path = tmp_path / "a.csv"
    path.write_text(
        "date;x\n" + "".join(f"{day};{text if n == 3 else n}\n" for n, day in enumerate(DAYS))
    )
    assert read_series(str(path)).values[2:5, 0].tolist() == [2, NUMBERS[text], 4]


@pytest.mark.filterwarnings("ignore::seqlab.errors.SeqlabWarning")
@pytest.mark.parametrize("mark", ["#N/A", "--", ".", "..", ":", "—", "missing", "x"])
def test_a_repeated_mark_among_numbers_is_a_missing_value(tmp_path, mark):
    path = tmp_path / "a.csv"
    path.write_text(
        "date,level\n" + "".join(f"{day},{n if n % 15 else mark}\n" for n, day in enumerate(DAYS))
    )
    values = read_series(str(path)).values[:, 0]
    assert np.flatnonzero(np.isnan(values)).tolist() == [0, 15, 30]
    assert propose([str(path)]).task == "forecast"


def test_nines_far_from_all_other_values_are_missing(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(
        "date,x\n" + "".join(f"{day},{n if n % 13 else -999.9}\n" for n, day in enumerate(DAYS))
    )
    with pytest.warns(SeqlabWarning, match=r"-999\.9 is read as a missing value, 4 times"):
        values = read_series(str(path)).values[:, 0]
    assert np.isnan(values[13])
    path.write_text(
        "date,x\n" + "".join(f"{day},{n + 960 if n % 13 else 999}\n" for n, day in enumerate(DAYS))
    )
    assert not np.isnan(read_series(str(path)).values).any()  # they are like the others


def test_a_few_repeated_times(tmp_path):
    path = tmp_path / "a.csv"
    hours = [str(datetime(2024, 10, 1) + timedelta(hours=n)) for n in range(120)]
    path.write_text(table((hours[7], 9), *((hour, 1) for hour in hours), header="time,x"))
    with pytest.warns(
        SeqlabWarning,
        match="1 time stamp is repeated, such as 2024-10-01 07:00:00; their values are averaged",
    ):
        assert read_series(str(path)).values[6:9, 0].tolist() == [1, 5, 1]
    path.write_text(
        table((hours[7], 1), (hours[8], 1), *((hour, 1) for hour in hours[:9]), header="time,x")
    )
    with pytest.warns(
        SeqlabWarning, match="2 time stamps are repeated, .* of equal rows one is kept"
    ):
        assert len(read_series(str(path))) == 9


def test_a_series_that_cannot_be_read_is_not_proposed_as_text(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(table(*((day, n) for day in DAYS for n in range(2)), header="date,x"))
    with pytest.raises(DataError, match="2024-01-01 is repeated"):
        propose([str(path)])
