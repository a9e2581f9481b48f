"""Cross-validation of small files: each example is scored by models that were not trained on it."""

import json
import random

import numpy as np
import pytest

from seqlab import lab
from seqlab.cross_validation import pooled
from seqlab.metrics.scores import share
from seqlab.tasks.task import Report
from seqlab.training.log import SilentReporter

WORDS = {"animal": ["cat", "dog", "bird"], "food": ["bread", "cheese", "soup"]}
QUICK = ("train.steps=30",)


class Heard(SilentReporter):
    def __init__(self):
        self.heard = []

    def say(self, text):
        self.heard.append(text)


def _write(path, num):
    keyed = random.Random(1)
    rows = [(keyed.choice(sorted(WORDS)), place) for place in range(num)]
    path.write_text(
        "".join(f"{kind}\tI saw a {keyed.choice(WORDS[kind])} {place}\n" for kind, place in rows),
        "utf-8",
    )
    return path


def test_each_example_of_a_small_file_is_scored_once(tmp_path):
    path, heard = _write(tmp_path / "few.tsv", 60), Heard()
    trained = lab.train("classify", path, settings=QUICK, out=tmp_path / "m", report=heard)
    scores, chosen = trained.model.metrics["validation"], trained.model.metrics["selection"]
    assert heard.heard == ["few examples: scored in 3 folds, each by models trained on the others"]
    assert scores["folds"] == 3
    assert scores["examples"] == chosen["examples"] == 59  # labels are not multiples of three
    assert scores["accuracy"] == chosen["values"][chosen["kept"]]
    low, high = scores["interval"]["accuracy"]
    assert low <= scores["accuracy"] <= high
    assert (59 * scores["accuracy"]) % 1 == pytest.approx(0)
    assert not (tmp_path / "m/run/fold").exists()
    other = json.loads((tmp_path / "m" / chosen["other"] / "metrics.json").read_text())
    assert other["validation"]["accuracy"] == chosen["values"][chosen["other"]]


@pytest.mark.parametrize(
    ("num", "options"),
    [
        (160, {}),
        (60, {"settings": ("train.minutes=0.05",)}),
        (60, {"recipe": "bilstm-classifier"}),
        (60, {"valid": True}),
    ],
)
def test_a_large_file_or_a_named_recipe_has_one_held_out_part(tmp_path, num, options):
    path = _write(tmp_path / "some.tsv", num)
    options = {"settings": QUICK} | options
    if "valid" in options:
        options["valid"] = _write(tmp_path / "valid.tsv", 20)
    model = lab.train("classify", path, out=tmp_path / "m", **options).model
    assert "folds" not in model.metrics["validation"]
    assert not (tmp_path / "m/run/folds.json").exists()


def test_a_run_that_is_stopped_during_cross_validation_can_be_resumed(tmp_path):
    path, steps = _write(tmp_path / "few.tsv", 60), iter(range(1000))
    stopped = lab.train(
        "classify", path, settings=QUICK, out=tmp_path / "m", stop=lambda: next(steps) > 75
    )
    assert stopped.stopped
    assert not (tmp_path / "m/run/fold").exists()
    assert "selection" in lab.train(out=tmp_path / "m", resume=True).model.metrics


def test_few_examples_have_wide_intervals(run, tmp_path):
    path = _write(tmp_path / "few.tsv", 40)
    words = [word for setting in QUICK for word in ("-s", setting)]
    printed = run("train", "classify", path, "-o", tmp_path / "m", *words).stdout
    assert " on 39 held out in 3 folds" in printed
    assert (
        "note: 39 held out are few: on as many others, accuracy may be anywhere between " in printed
    )
    assert max(len(line) for line in printed.splitlines() if line[:1] in "┃│") <= 80


def test_scores_of_folds_are_means_over_their_examples():
    first, second = share("accuracy", [True, False, True]), share("accuracy", [True])
    scores = {"accuracy": 2 / 3, "loss": 1.0, "perplexity": 2.7}
    own = Report("classify", 3, scores, {"baseline": {"accuracy": 1 / 3}}, by_example=first)
    table = {"task": "classify", "examples": 1, "accuracy": 1.0, "loss": 2.0, "perplexity": 7.4}
    other = {
        "score": "accuracy",
        "sums": second.sums.tolist(),
        "scores": table | {"baselines": {"baseline": {"accuracy": 1.0}}},
    }
    scores, together = pooled(own, [other])
    assert (scores["examples"], scores["folds"]) == (4, 2)
    assert scores["accuracy"] == together.value() == 0.75
    assert scores["loss"] == pytest.approx(1.25)
    assert scores["perplexity"] == pytest.approx(np.exp(1.25))
    assert scores["baselines"] == {"baseline": {"accuracy": pytest.approx(0.5)}}
    assert pooled(own, []) == (own.to_json(), first)
