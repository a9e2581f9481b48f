"""Looking into a model from the command line."""

import json

import pytest


def test_a_view_in_the_terminal_and_in_files(run, models, tmp_path):
    said = run("explain", models["translate"], "abc", "--view", "lens")
    assert said.code == 0, said.stderr
    assert "stage by stage" in said.stdout
    assert max(map(len, said.stdout.splitlines())) <= 80
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


def test_without_a_name_each_model_shows_what_it_is_about(run, models, files):
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
    assert "which model" in run("explain").error[0]


def test_what_a_view_cannot_do_is_said(run, models, files, tmp_path):
    said, hint = run("explain", models["bilm"], "a b").error
    assert "no tokens or labels to explain" in said
    assert "--embed" in hint
    assert (
        "band" in run("explain", models["forecast"], files["forecast"], "--view", "lens").error[1]
    )
    said, hint = run("explain", models["translate"], "abc", "--view", "lense").error
    assert "no view 'lense'" in said
    assert "lens" in hint
    assert (
        "--out"
        not in run(
            "explain", models["translate"], "abc", "--view", "lens", "--out", tmp_path / "x.pdf"
        ).error[1]
    )


def test_the_laws_on_a_model_of_ones_own(run, models):
    for task in ("translate", "classify", "tag", "lm", "mask", "forecast", "caption"):
        said = run("check", models[task], "--json")
        assert said.code == 0, said.stdout
        assert all(law["kept"] for law in json.loads(said.stdout))
    assert "padding changes nothing" in run("check", models["translate"]).stdout


def test_resuming_is_shown_on_a_copy_of_ones_own_run(run, models):
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


def test_the_doctor_asks_what_a_loss_does_not_answer(run, models):
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
        said = run("doctor", models[task], *where)
        assert said.code == 0, said.stderr
        assert [question for question in questions if question not in said.stdout] == []
        assert "well" in said.stdout or "LOOK" in said.stdout
    seen = json.loads(run("doctor", models[task], files[task], "--json").stdout)
    assert all(not each["well"] for each in seen if each["question"] == "is the data new to it?")
