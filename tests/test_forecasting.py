"""The task `forecast` from a file to a forecast with bands, through the verbs of the lab."""

import csv
import json
import math
import shutil
import warnings

import numpy as np
import pytest

from seqlab import lab
from seqlab.errors import DataError, RunError, SeqlabWarning, UsageError
from seqlab.tasks import predict
from seqlab.tasks.bands import forecast_series

GRU = ["model.embedding=16", "model.encoder.size=16", "forecast.patch=4", "train.batch_tokens=1600"]
SMALL = [
    *GRU,
    "forecast.look_back=24",
    "forecast.horizon=6",
    "forecast.season=12",
    "train.validate_every=40",
    "data.max_validation=100",
]
MIXED = ["forecast.smoothing=false"]  # the network adds to a learnt mix of simple forecasts
SHARES = ["data.validation=0.2", "data.test=0.2"]


def days(num, start="2020-01-01"):
    return [str(day) for day in np.datetime64(start) + np.arange(num)]


def write(path, columns, times=None):
    """A table with a column of times; NaN is an empty cell."""
    names, length = list(columns), len(next(iter(columns.values())))
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["date", *names])
        for row, time in enumerate(times or days(length)):
            cells = (columns[name][row] for name in names)
            writer.writerow(
                [time, *("" if c != c else c if isinstance(c, str) else f"{c:.6g}" for c in cells)]
            )
    return path


def wave(num, *, seed=1, noise=0.3, period=12):
    """A sine whose amplitude is one, with noise."""
    return np.sin(2 * np.pi * np.arange(num) / period) + noise * np.random.default_rng(seed).normal(
        size=num
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("series")


@pytest.fixture(scope="module")
def two_waves(folder):
    values = {"a": wave(400), "b": 100 + 20 * wave(400, seed=2)}
    for column in values.values():
        column[np.random.default_rng(3).random(400) < 0.05] = np.nan
    return write(folder / "waves.csv", values)


@pytest.fixture(scope="module")
def trained(folder, two_waves):
    """A small forecaster of each kind, on two waves with gaps; nobody changes them."""
    kinds = {
        "gaussian": (
            "gru-forecast",
            [*SMALL, *MIXED, "train.steps=80", "train.learning_rate=6e-3"],
        ),
        "quantiles": (
            "gru-forecast",
            [*SMALL, *MIXED, "train.steps=80", "train.learning_rate=6e-3"],
        ),
        "point": (
            "transformer-forecast",
            [
                *SMALL,
                "model.encoder.size=16",
                "model.encoder.layers=1",
                "train.steps=80",
                "train.learning_rate=6e-3",
            ],
        ),
        "lds": ("lds-forecast", [*SMALL[4:7], "train.steps=5"]),
    }
    models = {}
    for kind, (recipe, settings) in kinds.items():
        output = [] if kind == "lds" else [f"forecast.output={kind}"]
        models[kind] = lab.train(
            "forecast",
            two_waves,
            recipe=recipe,
            settings=[*settings, *SHARES, *output],
            out=folder / kind,
        ).model
    return models


KINDS = ["gaussian", "quantiles", "point", "lds"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_noisy_wave_is_forecast_better_than_by_its_past_alone(trained, kind):
    report = trained[kind].evaluate()
    baselines = report.baselines
    assert set(baselines) == {"last value", "one season ago", "linear"}
    assert (
        report.scores["mse"]
        < 0.9 * baselines["one season ago"]["mse"]
        < baselines["last value"]["mse"]
    )
    assert report.scores["mae"] < baselines["one season ago"]["mae"]
    assert report.scores["mase"] < 1
    assert report.num_examples == 80 - 6 + 1


@pytest.mark.parametrize("kind", KINDS)
def test_bands_contain_about_the_promised_share_of_values(trained, kind):
    report = trained[kind].evaluate()
    assert 0.72 < report.scores["coverage"] < 0.88
    assert report.scores["width"] > 0
    assert 0 < report.scores["crps"] < report.scores["mae"]
    assert len(report.by_step["mse"]) == 6
    assert report.to_json()["by_step"]["coverage"] == report.by_step["coverage"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_comes_next_is_in_the_unit_of_the_data_and_near_the_wave(trained, two_waves, kind):
    said = trained[kind].predict(str(two_waves))
    assert said.columns == ("a", "b")
    assert said.times == tuple(days(406)[400:])
    assert said.mean.shape == said.low.shape == said.high.shape == (6, 2)
    assert (said.low < said.mean).all()
    assert (said.mean < said.high).all()
    ahead = np.sin(2 * np.pi * np.arange(400, 406) / 12)
    assert np.abs(said.mean[:, 0] - ahead).max() < 0.6
    assert np.abs(said.mean[:, 1] - 100 - 20 * ahead).max() < 12


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_model_says_the_same(trained, two_waves, kind):
    again = lab.load(trained[kind].path)
    one, other = (model.predict(two_waves) for model in (trained[kind], again))
    np.testing.assert_array_equal(one.low, other.low)
    assert again.metrics["validation"]["coverage"] == pytest.approx(0.8, abs=0.02)
    assert again.evaluate().scores == trained[kind].evaluate().scores


def test_training_tells_of_the_validation_part_beside_its_baselines(trained):
    told = trained["gaussian"].metrics["validation"]
    assert told["task"] == "forecast"
    assert told["examples"] == 75
    assert set(told["baselines"]) == {"last value", "one season ago", "linear"}


def test_calibration_widens_bands_that_are_too_narrow(trained):
    """A point has no spread of its own: its bands are what held-out errors say."""
    scores = trained["point"].evaluate().scores
    assert abs(scores["coverage"] - 0.8) < abs(scores["coverage_uncalibrated"] - 0.8)


def test_a_forecast_as_csv_as_json_as_arrays_and_as_a_prediction(trained, two_waves):
    model = trained["gaussian"]
    said = model.predict(two_waves)
    rows = list(csv.DictReader(said.to_csv().splitlines()))
    assert list(rows[0]) == ["time", "column", "mean", "low", "high"]
    assert [row["column"] for row in rows] == ["a"] * 6 + ["b"] * 6
    assert float(rows[7]["mean"]) == pytest.approx(said.mean[1, 1], rel=1e-5)
    table = json.loads(json.dumps(said.to_json()))
    assert table["level"] == 0.8
    assert table["forecast"][7]["high"] == pytest.approx(said.high[1, 1])
    drawn = forecast_series(said, "b", last=10)
    assert drawn["history_times"] == tuple(days(400)[390:])
    np.testing.assert_array_equal(drawn["low"], said.low[:, 1])
    assert predict(model.bundle, [str(two_waves)])[0].output == said.to_csv()


def test_an_array_is_a_series_too(trained, two_waves):
    model = trained["gaussian"]
    rows = list(csv.reader(two_waves.read_text().splitlines()))[1:]
    values = np.array([[float(cell) if cell else math.nan for cell in row[1:]] for row in rows])
    from_array, from_file = model.predict(values), model.predict(two_waves)
    np.testing.assert_allclose(from_array.mean, from_file.mean)
    assert from_array.times[0] == "400"
    assert [len(each.times) for each in model.predict([values, values])] == [6, 6]
    with pytest.raises(
        DataError, match=r"an array of shape \(400, 1\) where the model forecasts 2 columns"
    ):
        model.predict(values[:, 0])


def test_another_file_is_evaluated_from_its_first_whole_window(trained, folder):
    other = write(folder / "other.csv", {"b": 100 + 20 * wave(100, seed=5), "a": wave(100, seed=4)})
    report = trained["gaussian"].evaluate(other)
    assert report.num_examples == 100 - 24 - 6 + 1
    assert report.scores["mse"] < report.baselines["last value"]["mse"]
    with pytest.raises(DataError, match="look-back of 24 and a horizon of 6 need 30"):
        trained["gaussian"].evaluate(write(folder / "short.csv", {"a": wave(20), "b": wave(20)}))
    with pytest.raises(UsageError, match="one file at a time"):
        trained["gaussian"].evaluate(other, other)


def test_without_the_training_part_there_is_no_linear_baseline_and_a_note_says_so(
    trained, two_waves, tmp_path
):
    shutil.copytree(trained["gaussian"].path, tmp_path / "m")
    shutil.rmtree(tmp_path / "m" / "run")
    model = lab.load(tmp_path / "m")
    report = model.evaluate(two_waves)
    assert set(report.baselines) == {"last value", "one season ago"}
    assert "the linear baseline needs the training part" in report.baseline_note
    with pytest.raises(UsageError, match="no held-out data"):
        model.evaluate()


def test_a_short_history_is_used_with_a_warning(trained, folder):
    short = write(folder / "ten.csv", {"a": wave(10), "b": 100 + 20 * wave(10)})
    with pytest.warns(SeqlabWarning, match="10 rows, but the model reads 24"):
        said = trained["lds"].predict(short)
    assert np.isfinite(said.high).all()


def test_a_column_without_recent_values_gives_a_warning(trained, folder):
    silent = wave(60)
    silent[10:] = np.nan
    with pytest.warns(SeqlabWarning, match="column 'a' was not observed in the last 24 rows"):
        said = trained["gaussian"].predict(
            write(folder / "silent.csv", {"a": silent, "b": 100 + wave(60)})
        )
    assert np.isfinite(said.high).all()


def test_numbers_far_from_training_are_refused(trained, folder):
    far = 100 + wave(60)
    far[50] = 1e30
    with pytest.raises(DataError, match="the numbers are too far from those of training"):
        trained["gaussian"].predict(write(folder / "far.csv", {"a": wave(60), "b": far}))


def test_a_forecaster_gives_no_vectors_and_scores_no_text(trained):
    with pytest.raises(UsageError, match="no vectors of texts"):
        trained["gaussian"].embed("abc")
    with pytest.raises(UsageError, match="writes no text to score"):
        trained["gaussian"].score(["abc"])


class TestKnownColumns:
    """A series that is nothing but what is known in advance, and noise."""

    @pytest.fixture
    def shop(self, folder):
        keyed = np.random.default_rng(7)
        price = keyed.integers(0, 2, size=500).astype(float)
        values = {"sales": 10 + 5 * price + keyed.normal(size=500), "price": price}
        return values, write(folder / "shop.csv", values)

    @pytest.mark.parametrize("recipe", ["gru-forecast", "lds-forecast"])
    def test_they_are_used(self, shop, tmp_path, recipe):
        values, path = shop
        settings = [*(SMALL if recipe == "gru-forecast" else SMALL[4:7]), *SHARES]
        settings += (
            ["train.steps=80", "train.learning_rate=8e-3"]
            if recipe == "gru-forecast"
            else ["train.steps=20"]
        )
        settings += ["model.lds.states=1"] if recipe == "lds-forecast" else []
        known = lab.train(
            "forecast",
            path,
            recipe=recipe,
            settings=[*settings, "data.known=3"],
            out=tmp_path / "known",
        ).model
        report = known.evaluate()
        assert report.scores["mse"] < 0.5 * report.baselines["linear"]["mse"]

        rows = {
            "sales": [*values["sales"], *[math.nan] * 6],
            "price": [*values["price"], 0, 1, 0, 1, 1, 0],
        }
        said = known.predict(write(tmp_path / "ahead.csv", rows))
        assert said.times == tuple(days(506)[500:])
        up = said.mean[[1, 3, 4], 0].min() - said.mean[[0, 2, 5], 0].max()
        assert up > 2
        with pytest.raises(
            DataError,
            match="price must be known for 6 rows after the last observation; 0 follow it",
        ):
            known.predict(path)
        with pytest.raises(UsageError, match="which an array does not have"):
            known.predict(np.zeros((30, 1)))

    def test_a_gap_in_them_is_refused_with_its_place(self, shop, tmp_path):
        values, _ = shop
        price = values["price"].copy()
        price[3] = math.nan
        path = write(tmp_path / "gap.csv", {"sales": values["sales"], "price": price})
        with pytest.raises(
            DataError, match=r"column 'price' of data\.known has no value at 2020-01-04"
        ):
            lab.train("forecast", path, settings=[*SMALL, "data.known=price"], out=tmp_path / "m")

    def test_a_weekly_pattern_is_read_from_the_calendar(self, tmp_path):
        """A look-back of two days cannot see the week: only the dates can say what day it is."""
        keyed = np.random.default_rng(7)
        num = 700
        weekend = np.array(
            [np.datetime64(day).astype("datetime64[D]").item().weekday() >= 5 for day in days(num)]
        )
        path = write(tmp_path / "week.csv", {"x": 3.0 * weekend + 0.3 * keyed.normal(size=num)})
        settings = [
            *SMALL,
            *SHARES,
            "forecast.look_back=2",
            "forecast.patch=2",
            "forecast.scale=train",
        ]
        settings += [
            "train.steps=100",
            "train.batch_tokens=400",
            "train.learning_rate=1e-2",
            "data.calendar=true",
        ]
        report = lab.train("forecast", path, settings=settings, out=tmp_path / "m").model.evaluate()
        assert report.scores["mse"] < 0.4 * report.baselines["linear"]["mse"]


class TestBadInput:
    def refused(self, path, *settings, out, kind=DataError):
        with pytest.raises(kind) as caught:
            lab.train("forecast", path, settings=[*SMALL, "train.steps=2", *settings], out=out)
        assert not out.exists()
        return str(caught.value)

    @pytest.mark.parametrize(
        ("cell", "said"),
        [
            ("NW", "series.csv:5, column 'x': 'NW' is not a number"),
            ("inf", "series.csv:5, column 'x': infinity"),
        ],
    )
    def test_what_is_no_number(self, tmp_path, cell, said):
        values = [*map(str, wave(100))]
        values[3] = cell
        path = write(tmp_path / "series.csv", {"x": values})
        assert said in self.refused(path, out=tmp_path / "m")

    def test_times_out_of_order_or_twice(self, tmp_path):
        times = days(100)
        times[4], times[8] = times[2], times[6]  # more than the few whose mean is taken
        path = write(tmp_path / "series.csv", {"x": wave(100)}, times)
        with pytest.warns(SeqlabWarning, match="the rows are sorted by time"):
            assert "series.csv:6: 2020-01-03 is repeated (first on line 4)" in self.refused(
                path, out=tmp_path / "m"
            )

    def test_nothing_observed_at_all_or_not_in_the_training_part(self, tmp_path):
        late = np.full(100, math.nan)
        path = write(tmp_path / "series.csv", {"x": wave(100), "y": late})
        assert "column 'y' has no observation at all" in self.refused(path, out=tmp_path / "m")
        late[99] = 1.0
        path = write(tmp_path / "series.csv", {"x": wave(100), "y": late})
        said = self.refused(path, "data.test=0", "data.validation=0.1", out=tmp_path / "m")
        assert "column 'y' has no observation in the training part (the first 90 rows)" in said

    def test_a_horizon_or_a_look_back_longer_than_the_data(self, tmp_path):
        path = write(tmp_path / "series.csv", {"x": wave(60)})
        parts = ("data.validation=0.1", "data.test=0.1")
        said = self.refused(path, "forecast.look_back=200", *parts, out=tmp_path / "m")
        assert (
            "60 rows leave 48 for the train part, which needs 206 (look-back 200, horizon 6)"
            in said
        )
        said = self.refused(path, "forecast.horizon=10", *parts, out=tmp_path / "m")
        assert "60 rows leave 6 for the validation part, which needs 10" in said

    def test_more_than_one_file_or_a_file_to_validate_on(self, tmp_path, two_waves):
        said = self.refused([two_waves, two_waves], out=tmp_path / "m", kind=UsageError)
        assert "a forecaster learns from one file" in said
        with pytest.raises(UsageError, match="validated on the last part of it"):
            lab.train("forecast", two_waves, valid=two_waves, settings=SMALL, out=tmp_path / "m")

    def test_a_column_asked_for_twice_and_rows_that_are_not_there(self, tmp_path, two_waves):
        said = self.refused(
            two_waves, "data.columns=a,b", "data.known=b", out=tmp_path / "m", kind=UsageError
        )
        assert "column 'b' is requested twice" in said
        said = self.refused(two_waves, "data.rows=401", out=tmp_path / "m")
        assert "400 rows, but data.rows is 401" in said

    def test_a_calendar_needs_dates(self, tmp_path):
        path = write(tmp_path / "series.csv", {"x": wave(100)}, [str(i) for i in range(100)])
        assert "'0' is not a date" in self.refused(path, "data.calendar=true", out=tmp_path / "m")

    def test_numbers_too_large_to_add_up(self, tmp_path):
        values = 1e300 * wave(100)
        path = write(tmp_path / "series.csv", {"x": values})
        assert "column 'x' holds numbers too large" in self.refused(path, out=tmp_path / "m")

    @pytest.mark.parametrize("recipe", ["gru-forecast", "lds-forecast"])
    def test_a_series_that_never_changes_is_told_of_and_forecast_as_it_is(self, tmp_path, recipe):
        path = write(tmp_path / "series.csv", {"x": np.full(200, 7.0)})
        settings = (
            [*SMALL, "train.steps=20"]
            if recipe == "gru-forecast"
            else [*SMALL[4:7], "train.steps=3"]
        )
        with pytest.warns(SeqlabWarning, match="column 'x' is constant"):
            model = lab.train(
                "forecast", path, recipe=recipe, settings=settings, out=tmp_path / "m"
            ).model
        said = model.predict(path)
        assert np.isfinite(said.high).all()
        assert np.abs(said.mean - 7).max() < 0.5
        assert model.evaluate().to_json()["mse"] < 0.25

    def test_rows_that_are_left_out_are_told_of(self, tmp_path):
        times = days(101)
        del times[50]
        path = write(tmp_path / "series.csv", {"x": wave(100)}, times)
        with pytest.warns(SeqlabWarning, match="1 time stamp is missing"):
            lab.look("forecast", path)

    def test_of_many_series_those_that_begin_too_late_are_left_out(self, tmp_path):
        columns = {f"s{n}": wave(120, seed=n) for n in range(12)}
        columns["s7"][:110] = np.nan
        path = write(tmp_path / "series.csv", columns)
        settings = [*SMALL, "train.steps=2", "data.test=0.1", "data.validation=0.1"]
        with pytest.warns(
            SeqlabWarning,
            match="1 series has no observation in the training part and is left out: s7",
        ):
            model = lab.train("forecast", path, settings=settings, out=tmp_path / "m").model
        assert len(model.predict(path).columns) == 11

    def test_a_stored_series_that_was_damaged(self, trained, tmp_path):
        shutil.copytree(trained["gaussian"].path, tmp_path / "m")
        (tmp_path / "m" / "run" / "data" / "series.npy").write_bytes(b"nothing")
        with pytest.raises(DataError, match=r"series\.npy: the stored series cannot be read"):
            lab.load(tmp_path / "m").evaluate()


class TestRuns:
    @pytest.mark.parametrize("recipe", ["gru-forecast", "lds-forecast"])
    def test_resuming_equals_never_having_stopped(self, tmp_path, recipe):
        settings = [*(SMALL if recipe == "gru-forecast" else SMALL[4:7]), *SHARES, "train.steps=4"]
        path = write(
            tmp_path / "whole.csv", {"x": wave(200)}
        )  # without gaps, which make a filter slow
        through = lab.train(
            "forecast", path, recipe=recipe, settings=settings, out=tmp_path / "one"
        )
        asked = iter([False, True])
        stopped = lab.train(
            "forecast",
            path,
            recipe=recipe,
            settings=settings,
            out=tmp_path / "two",
            stop=lambda: next(asked),
        )
        assert stopped.stopped
        assert stopped.step == 2
        resumed = lab.train(out=tmp_path / "two", resume=True)
        assert resumed.step == 4
        one, other = (run.model.predict(path) for run in (through, resumed))
        np.testing.assert_array_equal(one.high, other.high)
        with pytest.raises(RunError, match="finished all 4 steps"):
            lab.train(out=tmp_path / "two", resume=True)

    def test_the_loss_of_em_never_rises(self, trained):
        lines = (trained["lds"].path / "run" / "metrics.jsonl").read_text().splitlines()
        losses = [json.loads(line)["loss"] for line in lines if "loss" in json.loads(line)]
        assert len(losses) > 3
        assert losses == sorted(losses, reverse=True)

    def test_the_season_is_that_of_the_time_stamps(self, trained, two_waves, tmp_path):
        assert trained["gaussian"].bundle.codec.source.season == 12
        settings = [*SMALL, "forecast.season=none", "train.steps=1"]
        model = lab.train("forecast", two_waves, settings=settings, out=tmp_path / "m").model
        assert model.bundle.codec.source.season == 7

    def test_training_goes_on_from_a_forecaster_and_from_nothing_else(
        self, trained, two_waves, tmp_path
    ):
        path = trained["gaussian"].path
        settings = [*SMALL, *SHARES, "train.steps=1", "train.learning_rate=1e-9"]
        again = lab.train(
            "forecast", two_waves, start=path, settings=settings, out=tmp_path / "m"
        ).model
        np.testing.assert_allclose(
            again.predict(two_waves).mean, trained["gaussian"].predict(two_waves).mean, rtol=1e-3
        )
        (tmp_path / "x.tsv").write_text("a\tb\n" * 10)
        with pytest.raises(
            Exception, match="a 'classify' model cannot start from a 'forecast' model"
        ):
            lab.train("classify", tmp_path / "x.tsv", start=path, out=tmp_path / "c")


def test_there_are_no_warnings_for_good_data(two_waves, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = lab.train(
            "forecast", two_waves, settings=[*SMALL, "train.steps=2"], out=tmp_path / "m"
        ).model
        model.predict(two_waves)
        model.evaluate()


def test_one_forecaster_learns_from_many_series_in_one_file(tmp_path):
    """One below the other, told apart by a column, and one a row: both are forecast under their names."""
    values = {"north": 50 + 10 * wave(120), "south": 5 + wave(120, seed=2)}
    rows = [
        f"{shop},{day},{x:.4f}"
        for shop, xs in values.items()
        for day, x in zip(days(120), xs, strict=True)
    ]
    (tmp_path / "long.csv").write_text("\n".join(["shop,day,sales", *rows]) + "\n")
    header = ",".join(["shop", *days(120)])
    (tmp_path / "wide.csv").write_text(
        "\n".join([header, *(f"{n}," + ",".join(map(str, x)) for n, x in values.items())])
    )
    for name in ("long.csv", "wide.csv"):
        model = lab.train(
            "forecast",
            tmp_path / name,
            settings=[*SMALL, "train.steps=20"],
            out=tmp_path / f"m-{name}",
        ).model
        said = model.predict(str(tmp_path / name))
        assert said.columns == ("north", "south")
        assert said.times[0] == "2020-04-30"
        assert np.abs(said.mean[:, 0] - 50).max() < 25
        assert np.abs(said.mean[:, 1] - 5).max() < 2.5
        assert model.evaluate(str(tmp_path / name)).num_examples == 120 - 24 - 6 + 1
