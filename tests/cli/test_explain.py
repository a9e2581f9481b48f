"""`seqlab explain`, `check` and `doctor`."""

import json

import pytest


def test_a_view_in_the_terminal_and_in_files(run, models, tmp_path):
    result = run("explain", models["translate"], "abc", "--view", "lens")
    assert result.code == 0, result.stderr
    assert "stage by stage" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    for name in ("view.html", "view.svg", "view.png", "view.json"):
        assert (
            run(
                "explain", models["translate"], "abc", "--view", "beam", "--out", tmp_path / name
            ).code
            == 0
        )
        assert (tmp_path / name).stat().st_size > 100
    listed = run("explain", models["translate"], "--list").stdout
    assert "saliency" in listed
    assert (
        json.loads(run("explain", models["tag"], "one two", "--view", "lens", "--json").stdout)[
            "view"
        ]
        == "lens"
    )


def test_the_default_view_of_each_task(run, models, files):
    shown = {
        "translate": "abc",
        "classify": "1 0 1",
        "tag": "one two",
        "lm": "the",
        "mask": "a [MASK] b",
    }
    shown |= {"forecast": files["forecast"], "caption": f"{files['caption']}/images/0"}
    usual = {"mask": "attention", "forecast": "band", "caption": "maps"}
    for task, text in shown.items():
        assert json.loads(run("explain", models[task], text, "--json").stdout)["view"] == usual.get(
            task, "lens"
        )
    assert "saliency" in run("explain", "--list").stdout
    assert "no model is named" in run("explain").error[0]


def test_what_a_view_cannot_do_is_said(run, models, files, tmp_path):
    result, hint = run("explain", models["bilm"], "a b").error
    assert "no tokens or labels to explain" in result
    assert "--embed" in hint
    assert (
        "band" in run("explain", models["forecast"], files["forecast"], "--view", "lens").error[1]
    )
    result, hint = run("explain", models["translate"], "abc", "--view", "lense").error
    assert "no view 'lense'" in result
    assert "lens" in hint
    assert (
        "--out"
        not in run(
            "explain", models["translate"], "abc", "--view", "lens", "--out", tmp_path / "x.pdf"
        ).error[1]
    )


def test_check_tests_the_laws(run, models):
    for task in ("translate", "classify", "tag", "lm", "mask", "forecast", "caption"):
        result = run("check", models[task], "--json")
        assert result.code == 0, result.stdout
        assert all(law["kept"] for law in json.loads(result.stdout))
    assert "padding changes nothing" in run("check", models["translate"]).stdout


def test_check_resumes_a_copy_of_the_run(run, models):
    before = (models["lm"] / "run" / "last.safetensors").read_bytes()
    for task in ("lm", "translate"):
        (law,) = json.loads(run("check", models[task], "--resume", "--json").stdout)
        assert law == {
            "law": "resuming equals never having stopped",
            "difference": 0.0,
            "allowed": 0.0,
            "kept": True,
        }
    assert (models["lm"] / "run" / "last.safetensors").read_bytes() == before


def test_the_doctor_as_json(run, models):
    found = json.loads(run("doctor", models["translate"], "--json").stdout)
    questions = {finding["question"] for finding in found}
    assert {"is the input used?", "does it end?", "is the data new to it?"} <= questions


@pytest.mark.parametrize(
    ("task", "questions"),
    [
        (
            "classify",
            ["is the input used?", "is the data new to it?", "is it better than its baseline?"],
        ),
        (
            "tag",
            ["is the input used?", "is the data new to it?", "is it better than its baseline?"],
        ),
        ("lm", ["is the data new to it?", "is it better than its baseline?"]),
        ("mask", ["is the data new to it?", "is it better than its baseline?"]),
        ("bilm", ["is the data new to it?", "is it better than its baseline?"]),
        ("forecast", ["is the input used?", "is it better than its baseline?"]),
        (
            "caption",
            [
                "is the input used?",
                "does it end?",
                "is the data new to it?",
                "is it better than its baseline?",
            ],
        ),
    ],
)
def test_the_doctor_examines_every_task(run, models, files, task, questions):
    for where in ((), (files[task],)):
        result = run("doctor", models[task], *where)
        assert result.code == 0, result.stderr
        assert [question for question in questions if question not in result.stdout] == []
        assert "ok" in result.stdout or "CHECK" in result.stdout
    seen = json.loads(run("doctor", models[task], files[task], "--json").stdout)
    assert all(not each["well"] for each in seen if each["question"] == "is the data new to it?")
