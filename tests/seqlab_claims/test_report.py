"""A run of claims: the report it leaves, and what it does not do twice."""

import json

import pytest

from seqlab.errors import DataError
from seqlab_claims.claim import Chart, Finding, read_claims
from seqlab_claims.report import draw, markdown, read_results
from seqlab_claims.settings import Settings, bars, lines, means
from seqlab_claims.suite import EXPERIMENTS, run_claims

QUICK = ("C1", "C9", "C20")  # without any training


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    out, messages = tmp_path_factory.mktemp("report"), []
    return out, run_claims(QUICK, out=out, scale="tiny", report=messages.append), messages


def test_a_report_reads_from_verdicts_to_numbers(report):
    out, results, messages = report
    claims, page = read_claims(), (out / "README.md").read_text("utf-8")
    assert messages[0] == "C1 (1 of 3): a singular value above 1 explodes, below 1 vanishes"
    assert "Of 3 claims: 2 confirmed, 1 depends." in page
    for name in QUICK:
        claim, finding = claims[name], results[name].finding
        section = page.split(f"## {name}\n")[1].split("\n## ")[0]
        for said in (
            claim.words,
            claim.experiment,
            claim.data,
            claim.limits,
            f"Verdict: {claim.verdict(finding)}.",
        ):
            assert said in section
        assert f"![{finding.chart.title}]({name}.svg)" in section
        assert all(criterion.rule in section for criterion in claim.criteria.values())
        assert (out / f"{name}.svg").read_text("utf-8").startswith("<svg")
        assert f"| [{name}](#{name.lower()}) | {claim.title} | {claim.verdict(finding)} |" in page
    assert "*Scale:* tiny, 1 seed" in page
    assert not list((out / "runs").glob("*"))


def test_numbers_are_there_for_machines_and_come_back(report):
    out, results, _ = report
    table = json.loads((out / "results.json").read_text("utf-8"))
    assert list(table) == list(QUICK)
    assert table["C20"]["verdict"] == "confirmed"
    assert table["C20"]["result"]["finding"]["values"] == {"recurrent": [4.0], "attention": [0.0]}
    assert read_results(out) == results


def test_what_was_measured_is_not_measured_again_but_with_other_settings(report):
    out, results, _ = report
    messages = []
    assert run_claims(QUICK, out=out, scale="tiny", report=messages.append) == results
    assert messages == [
        "C1 (1 of 3): measured before",
        "C9 (2 of 3): measured before",
        "C20 (3 of 3): measured before",
    ]
    messages.clear()
    again = run_claims(["C9"], out=out, scale="tiny", seeds=2, report=messages.append)["C9"]
    assert messages == ["C9 (1 of 1): without 1/sqrt(d) the softmax saturates"]
    assert (again.seeds, len(again.finding.values["sure"])) == (2, 2)
    assert list(read_results(out)) == list(QUICK)  # the others stay
    messages.clear()
    run_claims(["C9"], out=out, scale="tiny", report=messages.append)
    assert "measured before" not in messages[0]


def test_a_claim_that_was_stopped_goes_on_with_the_trainings_it_has(tmp_path):
    messages = []

    def stop(text):
        messages.append(text)
        if len(messages) == 4:  # the claim, and three of its trainings
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_claims(["C3"], out=tmp_path, scale="tiny", report=stop)
    again = []
    run_claims(["C3"], out=tmp_path, scale="tiny", report=again.append)
    trainings = [
        f"  {cell}, {lag}, seed 1" for lag in (2, 5) for cell in ("tanh RNN", "LSTM", "GRU")
    ]
    assert (messages[1:], again[1:]) == (trainings[:3], trainings[2:])


def test_a_training_is_that_of_the_command_line(tmp_path):
    at = Settings(tmp_path, "tiny")
    rows = [
        ("yes" if "a" in word else "no", word)
        for word in ("abc", "bcd", "cda", "ddd", "bab", "cbc") * 5
    ]
    data = at.file("rows.tsv", rows)
    model = at.trained(
        "one",
        "classify",
        data,
        "lstm-classifier",
        {"train.steps": 2, "model.encoder.size": 4},
        seed=7,
    )
    assert (model.recipe.train.seed, model.recipe.train.validate_every, model.metrics["steps"]) == (
        7,
        2,
        2,
    )
    assert model.recipe.model.encoder.size == 4


def test_results_of_something_else_are_refused(tmp_path):
    for wrong in ("{", '{"C1": 3}', '{"C1": {"result": {"key": 1}}}'):
        (tmp_path / "results.json").write_text(wrong)
        with pytest.raises(DataError, match="does not contain results of claims") as error:
            run_claims(["C20"], out=tmp_path, scale="tiny")
        assert "--out" in error.value.hint
        assert (tmp_path / "results.json").read_text() == wrong


def test_charts_are_drawn_with_bands_baselines_and_bars():
    found = {"ours": [[1.0, 2.0], [3.0, 5.0]]}
    svg = draw(
        lines("A title", ("steps", "nats"), ["few", "many"], found, {"baseline": [4.0, 4.0]})
    ).to_svg()
    assert all(
        word in svg
        for word in (
            "A title",
            "steps",
            "nats",
            "few",
            "many",
            "ours",
            "baseline",
            "polygon",
            "dasharray",
        )
    )
    assert "polygon" not in draw(lines("", ("", ""), [1.0, 2.0], {"one": [[1.0], [2.0]]})).to_svg()
    assert "0.5" in draw(bars("", "share", {"a": [0.4, 0.6]})).to_svg()


def test_tables_have_figures_at_the_right():
    table = means(
        "", ("few", "many"), {"ours": [[1.0, 2.0], [1234.5]]}, {"baseline": [0.123456, 4.0]}
    )
    assert markdown(table.header, table.rows) == [
        "|  | few | many |",
        "| --- | ---: | ---: |",
        "| ours | 1.5 | 1,234 |",
        "| baseline | 0.123 | 4 |",
    ]


def test_the_key_follows_the_code_of_the_experiment(tmp_path, monkeypatch):
    def other(at):
        return Finding(
            {"recurrent": [4.0], "attention": [0.0]}, [], Chart("", ("", ""), bars={"a": 1.0})
        )

    run_claims(["C20"], out=tmp_path, scale="tiny")
    monkeypatch.setitem(EXPERIMENTS, "C20", other)
    messages = []
    run_claims(["C20"], out=tmp_path, scale="tiny", report=messages.append)
    assert "measured before" not in messages[0]
