import json

import pytest


@pytest.fixture(scope="module")
def models(run, files, tmp_path_factory):
    """A tagger that was counted and a language model that climbed, with what was said about each."""
    folder, found = tmp_path_factory.mktemp("hidden"), {}
    small = ("--set", "model.hmm.states=3", "--set", "train.steps=4", "--set", "target.min_count=1")
    for task, settings in (("tag", ()), ("lm", small)):
        result = run(
            "train",
            task,
            files[task],
            "--recipe",
            f"hmm-{'tagger' if task == 'tag' else 'lm'}",
            *settings,
            "-o",
            folder / task,
        )
        assert result.code == 0, result.stderr
        found[task] = folder / task, result
    return found


def test_training_prints_how_the_model_was_fitted(models):
    assert "fitted by counting: every label was known" in models["tag"][1].stdout
    result = models["lm"][1]
    assert "fitted by EM, best of 2 starts (number " in result.stdout
    assert "nats per token after " in result.stdout
    assert "8 steps: about" in result.stderr


def test_an_hmm_tagger_predicts_and_is_scored(run, models):
    folder, _ = models["tag"]
    answer = json.loads(run("predict", folder, "a b", "--json").stdout)
    assert answer["words"] == ["a", "b"]
    assert len(answer["tags"]) == 2
    assert answer["output"].split() == answer["tags"]
    scores = json.loads(run("evaluate", folder, "--json").stdout)
    assert scores["accuracy"] >= scores["baselines"]["most frequent tag"]["accuracy"]


def test_an_hmm_language_model_generates_streams_and_embeds(run, models):
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
