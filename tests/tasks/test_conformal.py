"""Conformal sets of a classifier contain the true label with the chosen probability, in Python, HTTP and the shell."""

import json
import random

import pytest

from seqlab import lab
from seqlab.bundle import save_bundle
from seqlab.errors import RecipeError, SeqlabWarning, UsageError
from seqlab.serve.client import Client
from seqlab.serve.server import Server
from seqlab.tasks.conformal import label_set, limit_of

WORDS = {
    "cold": ["snow", "ice", "wind"],
    "warm": ["sun", "sand", "wind"],
    "wet": ["rain", "ice", "sand"],
}


def _texts(num, *, seed):
    """Labels that words tell only in part: each word belongs to two of them, or to one."""
    keyed = random.Random(seed)
    for _ in range(num):
        label = keyed.choice(sorted(WORDS))
        yield label, f"{keyed.choice(WORDS[label])} {keyed.choice(['here', 'there', 'now'])}"


def _write(path, num, *, seed):
    rows = enumerate(_texts(num, seed=seed))
    path.write_text(
        "".join(f"{label}\t{text} {1000 * seed + place}\n" for place, (label, text) in rows),
        "utf-8",
    )
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("conformal")
    path = _write(folder / "weather.tsv", 900, seed=2)
    half = ["data.validation=0.4"]
    return lab.train(
        "classify", path, recipe="linear-classifier", settings=half, out=folder / "m"
    ).model


@pytest.mark.parametrize("coverage", [0.6, 0.9])
def test_sets_contain_the_true_label_with_the_chosen_probability(model, tmp_path, coverage):
    path = _write(tmp_path / "test.tsv", 1000, seed=3)
    report = model.evaluate(path, conformal=coverage)
    assert coverage - 0.05 <= report.scores["set_coverage"] <= 1.0
    assert 1.0 <= report.scores["set_size"] < 2.5
    assert "set_coverage" not in model.evaluate(path).scores


def test_a_certain_answer_is_a_set_of_one_label(model, run):
    sure, unsure = model.predict(["snow here", "wind here"], conformal=0.9)
    assert sure.details["labels"] == ["cold"]
    assert set(unsure.details["labels"]) == {"cold", "warm"}
    assert unsure.details["labels"][0] == unsure.output
    assert "labels" not in model.predict("snow here").details
    printed = run(
        "predict", model.path, "snow here", "wind here", "--conformal", "0.9"
    ).stdout.splitlines()
    assert [line.split("\t") for line in printed] == [
        sure.details["labels"],
        unsure.details["labels"],
    ]
    row = json.loads(run("predict", model.path, "wind here", "--conformal", "0.9", "--json").stdout)
    assert row["labels"] == unsure.details["labels"]


def test_sets_over_http(model):
    server = Server([model.path], host="127.0.0.1", port=0)
    server.start()
    try:
        [answer] = Client(server.address, timeout=30.0).predict(
            model.path.name, ["wind here"], conformal=0.9
        )
    finally:
        server.stop()
    assert set(answer["labels"]) == {"cold", "warm"}


def test_a_model_without_limits_is_refused(model, tmp_path):
    lab.export(model.path, tmp_path / "old")
    old = lab.load(tmp_path / "old")
    del old.metrics["conformal"]
    save_bundle(old.bundle, tmp_path / "older")
    with pytest.raises(UsageError, match="has no limits for conformal sets") as refused:
        lab.load(tmp_path / "older").predict("snow", conformal=0.9)
    assert "train it again" in refused.value.hint


def test_other_tasks_have_no_sets(tmp_path):
    (tmp_path / "t.conll").write_text("".join(f"a{i}\tX\nb{i}\tY\n\n" for i in range(20)))
    with pytest.raises(RecipeError, match="is for classifiers"):
        lab.train(
            "tag", tmp_path / "t.conll", settings=["decode.conformal=0.9"], out=tmp_path / "m"
        )


def test_too_few_examples_for_a_coverage(model):
    kept = model.metrics["conformal"]
    model.metrics["conformal"] = {"examples": 8, "limits": dict.fromkeys(kept["limits"], 0.0)}
    with pytest.warns(SeqlabWarning, match="8 held-out examples are too few for sets of 95 %"):
        assert label_set(["a", "b"], [0.2, 0.8], limit_of(model.bundle, 0.95)) == ["b", "a"]
    model.metrics["conformal"] = kept
