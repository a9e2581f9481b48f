"""`python -m experiments.bench`."""

import json

import pytest
from typer.testing import CliRunner

from experiments.bench.__main__ import app


@pytest.fixture(autouse=True)
def threads_are_put_back(monkeypatch):
    for library in ("OMP", "OPENBLAS", "MKL"):
        monkeypatch.setenv(f"{library}_NUM_THREADS", "1")


def bench(*words):
    return CliRunner().invoke(app, [*words, "--rounds", "1"])


def test_a_race_as_a_table_as_json_and_as_markdown():
    said = bench("kalman")
    assert said.exit_code == 0, said.stderr
    assert "100 series of 1,000 steps" in said.stdout
    assert "medians; rounds: 1, threads: 1; all results agree to 1e-6" in said.stdout

    results = json.loads(bench("kalman", "--json").stdout)
    assert [result["title"].split(",")[1] for result in results] == [
        " 100 series of 1",
        " 1 series of 1",
    ]
    assert all(
        result["threads"] == 1 and result["times"][0]["name"] == "Seqlab" for result in results
    )
    for result in results:
        assert len(result["times"]) + len(result["missing"]) == 3

    rows = bench("kalman", "--markdown").stdout.splitlines()
    assert len([row for row in rows if row]) == sum(len(result["times"]) - 1 for result in results)


def test_a_benchmark_that_is_not_there():
    said = bench("kalmann")
    assert said.exit_code == 2
    assert said.stderr == "error: there is no benchmark 'kalmann'\nhint: did you mean 'kalman'?\n"


def test_it_is_no_verb_of_the_package(run):
    said = run("bench")
    assert said.code == 2
    assert "No such command 'bench'" in said.stderr
