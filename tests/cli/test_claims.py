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
