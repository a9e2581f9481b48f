"""Comparing recipes on generated words: measurements, advice, and reuse of stored results."""

import itertools
import json
import random
from dataclasses import replace

import numpy as np
import pytest

from seqlab.cli.compare import _minutes
from seqlab.compare import Comparison, RecipeResult, compare, find_recipe
from seqlab.compare.comparison import pareto_front
from seqlab.errors import UsageError
from seqlab.recipe import load_recipe, override, to_toml

SMALL = ["model.embedding=8", "train.steps=40", "source.min_count=1"]
RECIPES = ["hmm", "bilstm-tagger"]


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """Sentences in which "runs" is a verb, but after "the" a noun."""
    path, draw = tmp_path_factory.mktemp("words") / "words.conll", random.Random(1)
    rows = []
    for _ in range(150):
        words = [draw.choice(["the", "cat", "runs", "sees"]) for _ in range(draw.randint(2, 7))]
        labels = [_label(before, word) for before, word in itertools.pairwise(["", *words])]
        rows.append("".join(f"{word} {label}\n" for word, label in zip(words, labels, strict=True)))
    path.write_text("\n".join(rows))
    return path


def _label(before, word):
    return "DET" if word == "the" else "NOUN" if word == "cat" or before == "the" else "VERB"


@pytest.fixture(scope="module")
def ladder(words, tmp_path_factory):
    folder, told = tmp_path_factory.mktemp("ladder"), []
    found = compare(
        "tag",
        [str(words)],
        RECIPES,
        out=folder,
        settings=SMALL,
        seeds=2,
        threads=1,
        announce=told.append,
    )
    return folder, found, told


def test_each_recipe_is_trained_and_measured(ladder):
    _, found, told = ladder
    assert told == [
        "hmm-tagger, seed 1",
        "hmm-tagger, seed 2",
        "bilstm-tagger, seed 1",
        "bilstm-tagger, seed 2",
    ]
    assert (found.measure, found.more_is_better) == ("accuracy", True)
    hmm, network = found.results
    assert hmm.score > hmm.baseline
    assert len(network.scores) == 2
    assert network.steps == 40
    assert network.parameters > hmm.parameters
    assert network.answers_per_second > 1
    assert network.memory > 50_000_000
    assert network.bytes > 10_000
    assert found.advice.startswith("take hmm-tagger")
    assert json.loads(found.view().to_json())["advice"] == found.advice
    page = found.view().to_html()
    assert all(
        said in page
        for said in ("answers per second", "±", "words.conll", "none is better for less")
    )


def test_a_stored_result_is_reused_until_the_request_changes(ladder, words):
    folder, found, _ = ladder
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("model.safetensors")}
    options = {"out": folder, "seeds": 2, "threads": 1}
    again = compare("tag", [str(words)], RECIPES, settings=SMALL, **options)
    assert again == found
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("model.safetensors")} == before
    scored = compare("tag", [str(words)], RECIPES, settings=SMALL, test=[str(words)], **options)
    assert scored.results[0].scores != found.results[0].scores
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("model.safetensors")} == before
    other = compare("tag", [str(words)], ["hmm"], settings=[*SMALL, "model.hmm.order=1"], **options)
    assert other.results[0].parameters < found.results[0].parameters


def test_a_recipe_that_fails_is_listed_with_its_error(words, tmp_path):
    found = compare("tag", [str(words)], ["hmm"], out=tmp_path, settings=["model.hmm.order=7"])
    assert "model.hmm.order" in found.results[0].failed
    assert found.advice == "no model was trained to its end."
    assert "hmm-tagger failed: " in found.view().to_html()


def test_ambiguous_names_are_refused(words, tmp_path):
    with pytest.raises(UsageError, match="no recipe 'nothing' for 'tag'") as wrong:
        compare("tag", [str(words)], ["nothing"], out=tmp_path)
    assert "hmm-tagger" in wrong.value.hint
    with pytest.raises(UsageError, match="no recipe 'transformer' for 'translate'") as wrong:
        compare("translate", [str(words)], ["transformer"], out=tmp_path)
    assert "transformer-tiny or" in wrong.value.hint or "or transformer-tiny" in wrong.value.hint


def test_the_advice_is_the_cheapest_of_equally_good_recipes():
    slow = RecipeResult("slow", scores=(0.90, 0.92), baseline=0.5, seconds=100.0)
    quick = RecipeResult("quick", scores=(0.905, 0.905), baseline=0.5, seconds=10.0)
    poor = RecipeResult("poor", scores=(0.7, 0.7), baseline=0.5, seconds=1.0)
    told = Comparison("classify", "accuracy", True, (slow, quick, poor)).advice
    assert told.startswith(
        "take quick: its accuracy of 90.5 % is as good as the best (slow, 91.0 %)"
    )
    assert "10% of the time" in told
    swift = replace(quick, recipe="swift", seconds=95.0, answers_per_second=300.0)
    same_time = Comparison(
        "classify", "accuracy", True, (replace(slow, answers_per_second=100.0), swift)
    ).advice
    assert same_time.endswith("and it answers 3 times as fast.")
    hard = [replace(rung, baseline=0.907) for rung in (slow, quick)]
    assert (
        Comparison("classify", "accuracy", True, tuple(hard)).advice
        == "take slow: its accuracy of 91.0 % is the best."
    )
    losses = Comparison(
        "lm",
        "loss",
        False,
        (
            RecipeResult("a", scores=(1.2,), baseline=1.4),
            RecipeResult("b", scores=(1.9,), baseline=1.4),
        ),
    )
    assert losses.advice == "take a: its loss of 1.2 is the best."
    below = Comparison(
        "classify",
        "accuracy",
        True,
        (RecipeResult("a", scores=(0.4,), baseline=0.5, baseline_name="majority"),),
    )
    assert below.advice.startswith(
        "take none: a is the best with 40.0 %, and the baseline (majority) has 50.0 %."
    )
    mixed = (
        RecipeResult("a", scores=(1.2,), tokens="characters"),
        RecipeResult("b", scores=(4.0,), tokens="words 10000"),
    )
    assert "cannot be compared" in Comparison("lm", "loss", False, mixed).advice


def test_the_pareto_front():
    assert pareto_front(np.array([3.0, 1.0, 2.0, 2.0]), np.array([0.9, 0.5, 0.4, 0.7])) == [1, 3, 0]
    assert pareto_front(np.array([1.0, 2.0]), np.array([0.9, 0.9])) == [0]


def test_a_cell_replaces_that_of_the_recurrent_recipe():
    gru, rnn, both = (
        find_recipe("tag", "gru"),
        find_recipe("translate", "rnn"),
        find_recipe("classify", "bigru"),
    )
    assert (gru.name, gru.model.encoder.kind, gru.model.encoder.bidirectional) == (
        "gru-tagger",
        "gru",
        False,
    )
    assert (rnn.name, rnn.model.encoder.kind, rnn.model.decoder.kind) == (
        "rnn-seq2seq",
        "rnn",
        "rnn",
    )
    assert (both.name, both.model.encoder.bidirectional) == ("bigru-classifier", True)
    named = {"lstm": "char-lstm", "gru": "char-gru", "rnn": "char-rnn", "hmm": "hmm-lm"}
    assert {word: find_recipe("lm", word).name for word in named} == named
    assert find_recipe("classify", "lstm").name == "lstm-classifier"
    assert find_recipe("classify", "transformer").name == "transformer-classifier"


def test_a_recipe_file_is_named_after_the_file(words, tmp_path):
    mine = override(load_recipe("hmm-tagger"), ["model.hmm.order=1"])
    (tmp_path / "mine.toml").write_text(to_toml(mine))
    found = compare(
        "tag", [str(words)], ["hmm", str(tmp_path / "mine.toml")], out=tmp_path / "ladder"
    )
    theirs, own = found.results
    assert (theirs.recipe, own.recipe) == ("hmm-tagger", "mine")
    assert own.parameters < theirs.parameters
    (tmp_path / "mine.toml").write_text(to_toml(override(mine, ["model.hmm.order=2"])))
    again = compare("tag", [str(words)], [str(tmp_path / "mine.toml")], out=tmp_path / "ladder")
    assert again.results[0].parameters == theirs.parameters


def test_minutes_are_a_time_limit():
    assert (_minutes("90s"), _minutes("10m"), _minutes("1.5h"), _minutes("3")) == (
        1.5,
        10.0,
        90.0,
        3.0,
    )
    for wrong in ("", "soon", "0m", "-1m", "10 days"):
        with pytest.raises(UsageError, match="is not a time"):
            _minutes(wrong)


def test_minutes_limit_each_training(words, tmp_path):
    found = compare(
        "tag",
        [str(words)],
        ["bilstm-tagger"],
        out=tmp_path,
        settings=SMALL,
        minutes=0.02,
        threads=1,
    )
    assert found.results[0].steps != 40
    assert found.results[0].seconds <= 1.2


def test_minutes_limit_em_too(tmp_path):
    """EM has no length of its own: without a bound it would go on for as many steps as its recipe allows."""
    text, series = tmp_path / "text.txt", tmp_path / "series.csv"
    text.write_text("the cat sees the dog and the dog sees the cat\n" * 300)
    rows = (
        f"2020-01-{day:02} {hour:02}:00,{hour % 7 + day % 3}"
        for day in range(1, 29)
        for hour in range(24)
    )
    series.write_text("time,value\n" + "\n".join(rows) + "\n")
    climbs = ["train.restarts=2", "train.steps=5000", "train.tolerance=0", "model.hmm.states=3"]
    few = compare(
        "lm", [str(text)], ["hmm-lm"], out=tmp_path / "lm", settings=climbs, minutes=0.01, threads=1
    )
    assert 2 <= few.results[0].steps < 5000
    few = compare(
        "forecast", [str(series)], ["lds"], out=tmp_path / "lds", minutes=0.001, threads=1
    )
    assert few.results[0].steps < 10
