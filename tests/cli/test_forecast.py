"""A series in, a forecast with bands out, at the command line."""

import csv
import json

import pytest


def rows_of(text):
    return list(csv.DictReader(text.splitlines()))


def test_the_last_rows_of_a_file_give_the_next_ones_as_csv(run, models, files, tmp_path):
    said = run("predict", models["forecast"], files["forecast"])
    assert said.code == 0
    assert said.stderr == ""
    rows = rows_of(said.stdout)
    assert [row["column"] for row in rows] == ["low"] * 4 + ["high"] * 4
    assert [row["time"] for row in rows[:2]] == ["2024-01-13 12:00:00", "2024-01-13 13:00:00"]
    for row in rows:
        assert float(row["low"]) < float(row["mean"]) < float(row["high"])
    assert (
        min(float(row["low"]) for row in rows[:4]) > -5 > min(float(row["low"]) for row in rows[4:])
    )

    kept = run("predict", models["forecast"], files["forecast"], "--out", tmp_path / "f.csv")
    assert kept.stdout == ""
    assert (tmp_path / "f.csv").read_text() == said.stdout
    piped = run("predict", models["forecast"], stdin=files["forecast"].read_bytes())
    assert piped.stdout == said.stdout


def test_a_forecast_as_json(run, models, files):
    said = json.loads(run("predict", models["forecast"], files["forecast"], "--json").stdout)
    assert said["level"] == 0.8
    assert len(said["forecast"]) == 8
    assert set(said["forecast"][0]) == {"time", "column", "mean", "low", "high"}


def test_scores_stand_beside_three_baselines(run, models, files):
    said = run("evaluate", models["forecast"])
    assert said.stdout.startswith("gru-forecast on 69 moments")
    for name in ("mse", "mase", "crps", "coverage", "last value", "one season ago", "linear"):
        assert name in said.stdout
    report = json.loads(run("evaluate", models["forecast"], files["forecast"], "--json").stdout)
    assert report["examples"] == 300 - 16 - 4 + 1
    assert len(report["by_step"]["crps"]) == 4


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["one.csv", "two.csv"], "one series at a time"),
        (["--stream"], "writes no text"),
        (["--embed", "x"], "no vector for a text"),
    ],
)
def test_what_a_forecaster_cannot_do(run, models, words, said):
    refused = run("predict", models["forecast"], *words)
    assert refused.code == 2
    assert said in refused.error[0]


def test_a_file_without_one_of_the_columns_is_refused(run, models, tmp_path):
    (tmp_path / "x.csv").write_text("date,low\n2024-01-01,1\n2024-01-02,2\n")
    refused = run("predict", models["forecast"], tmp_path / "x.csv")
    assert refused.error[0] == "there is no column 'high'"


def test_an_answer_of_another_model_is_printed_and_not_kept(run, models, tmp_path):
    refused = run("predict", models["translate"], "abc", "--out", tmp_path / "x")
    assert refused.code == 2
    assert "--out is where --embed puts its vectors, and a forecast its rows" in refused.error[0]
