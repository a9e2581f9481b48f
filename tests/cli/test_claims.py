"""`seqlab claims`."""

import json


def test_the_list_of_claims(run):
    result = run("claims", "--list")
    assert result.code == 0, result.stderr
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert all(f"C{n} " in result.stdout for n in range(1, 26))
    (only,) = json.loads(run("claims", "c6", "--list", "--json").stdout)
    assert only["id"] == "C6"
    assert "at most 0.7" in only["rule"]


def test_an_unknown_claim(run, tmp_path):
    result = run("claims", "C1", "C26", "--out", tmp_path / "report")
    assert result.code == 2
    assert result.error == ("there is no claim 'C26'", "there are C1 to C25; --list prints them.")
    assert not (tmp_path / "report").exists()


def test_a_quick_run_prints_a_table(run, tmp_path):
    result = run("claims", "c20", "C9", "--quick", "--seeds", "1", "--out", tmp_path)
    assert result.code == 0, result.stderr
    *table, where = result.stdout.splitlines()
    assert max(map(len, table)) <= 80
    assert result.stdout.count("confirmed") == 2
    assert where.endswith("README.md")
    assert result.stderr.splitlines() == [
        "C20 (1 of 2): paths grow with distance, but not in self-attention",
        "C9 (2 of 2): without 1/sqrt(d) the softmax saturates",
    ]
    again = run("claims", "C9", "--quick", "--seeds", "1", "--out", tmp_path, "--json")
    assert "measured before" in again.stderr
    assert json.loads(again.stdout)["C9"]["verdict"] == "confirmed"
