"""`seqlab claims` as people type it."""

import json


def test_the_claims_there_are(run):
    said = run("claims", "--list")
    assert said.code == 0, said.stderr
    assert max(map(len, said.stdout.splitlines())) <= 80
    assert all(f"C{n} " in said.stdout for n in range(1, 26))
    (only,) = json.loads(run("claims", "c6", "--list", "--json").stdout)
    assert only["id"] == "C6"
    assert "at most 0.7" in only["rule"]


def test_a_claim_that_is_not_there(run, tmp_path):
    said = run("claims", "C1", "C26", "--out", tmp_path / "report")
    assert said.code == 2
    assert said.error == ("there is no claim 'C26'", "there are C1 to C25; --list names them.")
    assert not (tmp_path / "report").exists()


def test_a_quick_run_ends_with_a_table(run, tmp_path):
    said = run("claims", "c20", "C9", "--quick", "--seeds", "1", "--out", tmp_path)
    assert said.code == 0, said.stderr
    *table, where = said.stdout.splitlines()
    assert max(map(len, table)) <= 80
    assert said.stdout.count("confirmed") == 2
    assert where.endswith("README.md")
    assert said.stderr.splitlines() == [
        "C20 (1 of 2): paths grow with distance, but not in self-attention",
        "C9 (2 of 2): without 1/sqrt(d) the softmax saturates",
    ]
    again = run("claims", "C9", "--quick", "--seeds", "1", "--out", tmp_path, "--json")
    assert "measured before" in again.stderr
    assert json.loads(again.stdout)["C9"]["verdict"] == "confirmed"
