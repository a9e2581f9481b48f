import json

import pytest


@pytest.fixture(scope="module")
def models(run, files, tmp_path_factory):
    """A tagger that was counted and a language model that climbed, with what was said about each."""
    folder, found = tmp_path_factory.mktemp("hidden"), {}
    small = ("--set", "model.hmm.states=3", "--set", "train.steps=4", "--set", "target.min_count=1")
    for task, settings in (("tag", ()), ("lm", small)):
        said = run(
            "train",
            task,
            files[task],
            "--recipe",
            f"hmm-{'tagger' if task == 'tag' else 'lm'}",
            *settings,
            "-o",
            folder / task,
        )
        assert said.code == 0, said.stderr
        found[task] = folder / task, said
    return found


def test_training_says_how_the_fit_went(models):
    assert "fitted by counting: every label was known" in models["tag"][1].stdout
    said = models["lm"][1]
    assert "fitted by EM: climb " in said.stdout
    assert " of 2, which got highest: -" in said.stdout
    assert "8 steps: about" in said.stderr


def test_a_tagger_answers_and_is_scored(run, models):
    folder, _ = models["tag"]
    answer = json.loads(run("predict", folder, "a b", "--json").stdout)
    assert answer["words"] == ["a", "b"]
    assert len(answer["tags"]) == 2
    assert answer["output"].split() == answer["tags"]
    scores = json.loads(run("evaluate", folder, "--json").stdout)
    assert scores["accuracy"] >= scores["baselines"]["most frequent tag"]["accuracy"]


def test_a_language_model_writes_streams_and_embeds(run, models):
    folder, _ = models["lm"]
    written = run("predict", folder, "the", "--max-length", "4", "--seed", "2")
    assert written.code == 0
    assert len(written.stdout.split()) <= 4
    assert (
        run("predict", folder, "the", "--max-length", "4", "--seed", "2", "--stream").stdout.strip()
        == written.stdout.strip()
    )
    vector = json.loads(run("predict", folder, "the", "--embed").stdout)["vector"]
    assert sum(vector) == pytest.approx(1, rel=1e-5)
    assert len(vector) == 3
    assert json.loads(run("info", folder, "--json").stdout)["metrics"]["fit"]["by"] == "EM"
