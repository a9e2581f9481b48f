import json

import pytest


@pytest.fixture(autouse=True)
def threads_are_put_back(monkeypatch):
    for library in ("OMP", "OPENBLAS", "MKL"):
        monkeypatch.setenv(f"{library}_NUM_THREADS", "1")


def test_a_race_as_a_table_as_json_and_as_markdown(run):
    said = run("bench", "kalman", "--rounds", 1)
    assert said.code == 0, said.stderr
    assert "100 series of 1,000 steps" in said.stdout
    assert "medians; rounds: 1, threads: 1; all results agree to 1e-6" in said.stdout

    results = json.loads(run("bench", "kalman", "--rounds", 1, "--json").stdout)
    assert [result["title"].split(",")[1] for result in results] == [" 100 series of 1", " 1 series of 1"]
    assert all(result["threads"] == 1 and result["times"][0]["name"] == "Seqlab" for result in results)
    for result in results:
        assert len(result["times"]) + len(result["missing"]) == 3

    rows = run("bench", "kalman", "--rounds", 1, "--markdown").stdout.splitlines()
    assert len([row for row in rows if row]) == sum(len(result["times"]) - 1 for result in results)


def test_a_benchmark_that_is_not_there(run):
    said = run("bench", "kalmann")
    assert said.code == 2
    assert said.error == ("there is no benchmark 'kalmann'", "did you mean 'kalman'?")
