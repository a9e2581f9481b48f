"""Forecasts with bands on the command line."""

import csv
import json

import pytest


def rows_of(text):
    return list(csv.DictReader(text.splitlines()))


def test_a_forecast_as_csv(run, models, files, tmp_path):
    result = run("predict", models["forecast"], files["forecast"])
    assert result.code == 0
    assert result.stderr == ""
    rows = rows_of(result.stdout)
    assert [row["column"] for row in rows] == ["low"] * 4 + ["high"] * 4
    assert [row["time"] for row in rows[:2]] == ["2024-01-13 12:00:00", "2024-01-13 13:00:00"]
    for row in rows:
        assert float(row["low"]) < float(row["mean"]) < float(row["high"])
    assert (
        min(float(row["low"]) for row in rows[:4]) > -5 > min(float(row["low"]) for row in rows[4:])
    )

    kept = run("predict", models["forecast"], files["forecast"], "--out", tmp_path / "f.csv")
    assert kept.stdout == ""
    assert (tmp_path / "f.csv").read_text() == result.stdout
    piped = run("predict", models["forecast"], stdin=files["forecast"].read_bytes())
    assert piped.stdout == result.stdout


def test_a_forecast_as_json(run, models, files):
    result = json.loads(run("predict", models["forecast"], files["forecast"], "--json").stdout)
    assert result["level"] == 0.8
    assert len(result["forecast"]) == 8
    assert set(result["forecast"][0]) == {"time", "column", "mean", "low", "high"}


def test_scores_are_printed_with_three_baselines(run, models, files):
    result = run("evaluate", models["forecast"])
    assert result.stdout.startswith("gru-forecast on 69 moments")
    for name in ("mse", "mase", "crps", "coverage", "last value", "one season ago", "linear"):
        assert name in result.stdout
    report = json.loads(run("evaluate", models["forecast"], files["forecast"], "--json").stdout)
    assert report["examples"] == 300 - 16 - 4 + 1
    assert len(report["by_step"]["crps"]) == 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["one.csv", "two.csv"], "reads one series, not 2"),
        (["--stream"], "writes no text"),
        (["--embed", "x"], "no vectors of texts"),
    ],
)
def test_options_that_do_not_fit_a_forecaster(run, models, words, message):
    refused = run("predict", models["forecast"], *words)
    assert refused.code == 2
    assert message in refused.error[0]


def test_a_missing_column_is_refused(run, models, tmp_path):
    (tmp_path / "x.csv").write_text("date,low\n2024-01-01,1\n2024-01-02,2\n")
    refused = run("predict", models["forecast"], tmp_path / "x.csv")
    assert refused.error[0] == "there is no column 'high'"


def test_out_is_refused_for_text_answers(run, models, tmp_path):
    refused = run("predict", models["translate"], "abc", "--out", tmp_path / "x")
    assert refused.code == 2
    assert "--out is only for forecasts and for vectors (--embed)" in refused.error[0]
