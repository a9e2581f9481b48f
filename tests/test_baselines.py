"""Baselines are models: each trains in seconds, is saved and loaded, predicts, explains, serves and obeys the laws."""

import json
import math
import random
from itertools import pairwise

import numpy as np
import pytest
import torch

from seqlab import lab, laws
from seqlab.doctor import examine
from seqlab.errors import RecipeError
from seqlab.models.crf import CRF, as_chain
from seqlab.models.summaries import SequenceSummary
from seqlab.padded import Padded
from seqlab.recipe import load_recipe, override
from seqlab.serve.client import Client
from seqlab.serve.server import Server
from seqlab.tasks import check_recipe
from seqlab.text import Normaliser
from seqlab.text.ngrams import NgramVocabulary
from seqlab.text.spellings import SpellingVocabulary
from seqlab.training.crf_loss import CRFProblem
from seqlab.training.kneser_ney import kneser_ney

THINGS = {"animal": ["cat", "dog", "bird", "horse"], "food": ["bread", "cheese", "soup", "apple"]}
NAMES = ["anna", "boris", "carla", "dmitri", "elena"]


def _texts(num):
    keyed = random.Random(1)
    for _ in range(num):
        kind = keyed.choice(sorted(THINGS))
        yield f"{kind}\tI saw {keyed.choice(['a', 'the'])} {keyed.choice(THINGS[kind])} {keyed.choice(['here', 'now'])}"


def _tagged(num):
    keyed = random.Random(2)
    for _ in range(num):
        first = keyed.choice(NAMES).title()
        yield f"Mr\tB-PER\n{first}\tI-PER\nsees\tO\n{keyed.choice(NAMES).title()}\tB-PER\n.\tO\n"


def _pairs(num):
    keyed = random.Random(3)
    for _ in range(num):
        verb, thing = (
            keyed.choice(["show", "count", "delete"]),
            keyed.choice(["files", "folders", "links", "users"]),
        )
        tool = {"show": "ls", "count": "wc", "delete": "rm"}[verb]
        yield f"please {verb} all {thing} {keyed.choice(['now', 'today', 'soon'])}\t{tool} --{thing} | sort"


def _series(num):
    keyed = random.Random(4)
    yield "date,sales"
    for day in range(num):
        value = 100 + 0.2 * day + 20 * math.sin(2 * math.pi * day / 7) + keyed.gauss(0, 1)
        yield f"{np.datetime64('2020-01-01') + day},{value:.3f}"


def _write(folder, name, lines):
    path = folder / name
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return path


def _vectors(folder):
    keyed = np.random.default_rng(5)
    rows = []
    for place in range(60):
        speed = (1, 3)[place % 2]
        time = np.arange(40 + place % 5) / 10
        frames = np.stack([np.sin(speed * time + keyed.random()), keyed.normal(size=len(time))], 1)
        np.save(folder / f"{place}.npy", frames.astype(np.float32))
        rows.append(f"{place}.npy\t{('slow', 'fast')[place % 2]}")
    return _write(folder, "vectors.tsv", rows)


def _pictures(folder):
    keyed = np.random.default_rng(6)
    pixels = keyed.integers(0, 60, (60, 12, 12, 1)).astype(np.uint8)
    labels = np.array(["top" if place % 2 else "bottom" for place in range(60)])
    pixels[labels == "top", :6] += 150
    pixels[labels == "bottom", 6:] += 150
    path = folder / "pictures.npz"
    np.savez(path, images=pixels, labels=labels)
    return path


FORECAST = ("forecast.look_back=28", "forecast.horizon=7")
CASES = {
    "linear-classifier": (
        "classify",
        lambda f: _write(f, "t.tsv", _texts(120)),
        ("data.validation=0.3",),
    ),
    "crf-tagger": ("tag", lambda f: _write(f, "t.conll", _tagged(80)), ("data.validation=0.3",)),
    "nearest-neighbour": (
        "translate",
        lambda f: _write(f, "t.tsv", _pairs(200)),
        ("data.validation=0.2",),
    ),
    "seasonal-naive": ("forecast", lambda f: _write(f, "t.csv", _series(200)), FORECAST),
    "exponential-smoothing": ("forecast", lambda f: _write(f, "t.csv", _series(200)), FORECAST),
    "linear-vectors": ("classify", _vectors, ("data.validation=0.3",)),
    "linear-pixels": (
        "classify",
        _pictures,
        ("data.validation=0.3", "image.height=12", "image.width=12", "image.channels=1"),
    ),
    "ngram-lm": ("lm", lambda f: _write(f, "t.txt", (t.split("\t")[1] for t in _texts(300))), ()),
}
INPUTS = {
    "linear-classifier": "I saw a horse",
    "crf-tagger": "Mr Elena sees Anna .",
    "nearest-neighbour": "count all users",
    "ngram-lm": "I saw a ",
}


@pytest.fixture(scope="module", params=CASES)
def case(request, tmp_path_factory):
    """The name of a recipe, its data, and the model that it makes of them."""
    task, data, settings = CASES[request.param]
    folder = tmp_path_factory.mktemp("baseline")
    path = data(folder)
    trained = lab.train(task, path, recipe=request.param, settings=settings, out=folder / "model")
    return request.param, path, trained.model


def _input(name, path):
    """Something to ask the model."""
    if name in INPUTS:
        return INPUTS[name]
    if name == "linear-vectors":
        return str(path.with_name("1.npy"))
    return np.load(path)["images"][1] if name == "linear-pixels" else str(path)


def test_learns_what_can_be_learnt(case):
    name, _, model = case
    scores = model.evaluate().to_json()
    if name in ("linear-classifier", "linear-vectors", "linear-pixels", "crf-tagger"):
        assert scores["accuracy"] >= 0.95
    if name == "crf-tagger":
        assert scores["entity_f1"] >= 0.95
    if name == "nearest-neighbour":
        assert scores["exact"] >= 0.5
    if name == "exponential-smoothing":
        assert scores["mse"] < 0.5 * scores["baselines"]["last value"]["mse"]
    if name == "ngram-lm":
        assert scores["loss"] < scores["baselines"]["5-gram"]["loss"] + 0.05


def test_a_loaded_model_answers_as_the_trained_one(case, tmp_path):
    name, path, model = case
    given = _input(name, path)
    lab.export(model.path, tmp_path / "alone")
    assert lab.load(tmp_path / "alone").predict(given).output == model.predict(given).output != ""


def test_keeps_the_laws(case):
    _, _, model = case
    checks = list(laws.check(model.bundle.model, model.some_batch()))
    assert checks
    assert [check for check in checks if not check.kept] == []


def test_the_doctor_examines_it(case):
    name, _, model = case
    findings = {finding.question: finding for finding in examine(model)}
    assert findings["is it better than its baseline?"].remedy
    if "is the data new to it?" in findings:  # which nobody can say of a series
        assert findings["is the data new to it?"].well
    if name != "ngram-lm":
        assert (
            findings["is the input used?"].well or name == "crf-tagger"
        )  # whose sentences have the same tags


def test_explains_itself(case):
    name, path, model = case
    view = model.explain(_input(name, path), "surprisal" if name == "ngram-lm" else "evidence")
    assert json.loads(view.to_json())["view"] == view.name
    assert view.to_text()
    assert view.to_svg().startswith("<svg")


def test_answers_over_http(case):
    name, path, model = case
    given = _input(name, path)
    if name in ("linear-vectors", "linear-pixels"):
        given = (np.load(given) if isinstance(given, str) else given[..., 0] / 255.0).tolist()
    elif CASES[name][0] == "forecast":
        given = path.read_text("utf-8")
    server = Server([model.path], host="127.0.0.1", port=0)
    server.start()
    try:
        [answer] = Client(server.address, timeout=30.0).predict(model.path.name, [given])
    finally:
        server.stop()
    assert answer


def test_resuming_equals_never_having_stopped(case, tmp_path):
    name, path, model = case
    task, _, settings = CASES[name]
    stops = iter([False, True])
    out = tmp_path / "again"
    lab.train(task, path, recipe=name, settings=settings, out=out, stop=lambda: next(stops, False))
    if json.loads((out / "metrics.json").read_text())["steps"] != model.metrics["steps"]:
        lab.train(out=out, resume=True)
    resumed = lab.load(out).bundle.model
    for (key, one), other in zip(
        model.bundle.model.named_parameters(), resumed.parameters(), strict=True
    ):
        assert torch.equal(one, other), key


def test_the_forms_of_smoothing_find_the_season(case):
    name, _, model = case
    if name != "exponential-smoothing":
        pytest.skip("another recipe")
    assert model.bundle.model.weights[0, :3].sum() == 0  # neither mean nor last value nor drift
    assert model.bundle.model.season == 7


class TestNgramVocabulary:
    def test_finds_words_pairs_and_letters(self):
        texts = ["Don't stop!", "don't  go", "好吃不贵", "好吃"]
        vocabulary = NgramVocabulary.learn(
            lambda: texts, normaliser=Normaliser("NFC", True, False), size=1000, min_count=1
        )
        assert {"don't", "don't stop", "stop !", "好", "好 吃"} <= set(vocabulary.words)
        assert {" d", "don't"[:5], "p!", "好吃不贵"[:4]} <= set(vocabulary.characters)
        assert not any("  " in name or " " in name[1:-1] for name in vocabulary.characters)

    def test_counts_and_survives_json(self):
        vocabulary = NgramVocabulary.learn(
            lambda: ["a b a", "b"],
            normaliser=Normaliser("NFC", False, False),
            size=1000,
            min_count=1,
        )
        again = NgramVocabulary.from_json(json.loads(json.dumps(vocabulary.to_json())))
        for each in (vocabulary, again):
            bag, empty, foreign = each.encode_all(["a a b", "", "z"])
            counts = {each.name(int(i)): int(n) for i, n in bag}
            assert [counts[name] for name in ("a", "b", "a b")] == [2, 1, 1]
            assert len(empty) == len(foreign) == 0

    def test_keeps_what_texts_share(self):
        vocabulary = NgramVocabulary.learn(
            lambda: ["one two", "one three"],
            normaliser=Normaliser("NFC", False, False),
            size=3,
            min_count=2,
        )
        assert len(vocabulary) == 3


def test_a_summary_has_values_at_even_distances():
    rows = Padded(torch.arange(12.0).view(2, 6, 1), torch.tensor([6, 1]))
    summary = SequenceSummary(1, points=3)
    assert summary.names[-3:] == [f"feature 1, value {n} of 3" for n in (1, 2, 3)]
    vectors = summary(rows)
    assert vectors.shape == (2, len(summary.names))
    assert vectors[:, -3:].tolist() == [[0.0, 2.5, 5.0], [6.0, 6.0, 6.0]]
    assert (
        summary.names[:-3] == SequenceSummary(1).names
    )  # as bundles of earlier versions have them


def test_spellings_of_words_and_their_neighbours():
    vocabulary = SpellingVocabulary.learn(
        lambda: [("The", "cat", "ran"), ("the", "cat")], normaliser=Normaliser(), size=99
    )
    again = SpellingVocabulary.from_json(json.loads(json.dumps(vocabulary.to_json())))
    for each in (vocabulary, again):
        first, second = each.encode_all([("The", "cats"), ()])
        assert first.shape == (2, each.width)
        assert len(second) == 0
        names = [each.name(int(i)) for i in first[1] if i]
        assert {"prefix 3: cat", "before, lower: the"} <= set(names)
        assert "shape: aaaa" not in names
        assert {"lower prefix 3: cat", "outlines after: a "} <= set(names)


def test_spellings_of_an_earlier_bundle_keep_their_columns():
    learnt = SpellingVocabulary.learn(
        lambda: [("The", "cat"), ("the", "cat")], normaliser=Normaliser(), size=99
    ).to_json()
    first = {
        name: values for name, values in learnt["forms"].items() if not name.startswith("lower ")
    }
    earlier = {"normaliser": learnt["normaliser"], "forms": first, "pairs": learnt["pairs"]}
    vocabulary = SpellingVocabulary.from_json(earlier)
    assert vocabulary.to_json() == earlier
    assert vocabulary.width == 12 + 4 * 3 + 2
    assert vocabulary.encode_all([("the", "cat")])[0].shape == (2, vocabulary.width)


class TestConditionalRandomField:
    @pytest.fixture
    def problem(self):
        torch.manual_seed(0)
        source = Padded(torch.randint(0, 6, (3, 4, 2)), torch.tensor([4, 2, 3]))
        labels = torch.randint(0, 3, (3, 4))
        weights = [
            torch.randn(6, 3),
            torch.randn(3),
            torch.randn(3, 3),
            torch.randn(3),
            torch.randn(3),
        ]
        return source, labels, weights

    def _enumerated(self, source, labels, weights):
        """-log p(labels) over all paths, one by one."""
        weight, bias, moves, first, last = (w.double().requires_grad_() for w in weights)
        total = 0.0
        for row, length in enumerate(source.lengths.tolist()):
            ids = source.values[row, :length]
            scores = (weight[ids] * (ids > 0)[..., None]).sum(1) + bias

            def score(path, scores=scores):
                steps = sum(scores[t, z] for t, z in enumerate(path))
                return (
                    steps
                    + sum(moves[a, b] for a, b in pairwise(path))
                    + first[path[0]]
                    + last[path[-1]]
                )

            paths = torch.cartesian_prod(*[torch.arange(3)] * length).tolist()
            every = torch.stack([score(path) for path in paths])
            total = total + every.logsumexp(0) - score(labels[row, :length].tolist())
        mean = total / int(source.lengths.sum())
        return float(mean.detach()), torch.autograd.grad(mean, (weight, bias, moves, first, last))

    def test_loss_and_gradient_equal_the_sum_over_all_paths(self, problem):
        source, labels, weights = problem
        loss, gradients = CRFProblem([source], [labels], 6).loss(weights)
        expected, by_hand = self._enumerated(source, labels, weights)
        assert loss == pytest.approx(expected, rel=1e-5)
        for one, other in zip(gradients, by_hand, strict=True):
            rows = slice(1, None) if one.shape == (6, 3) else slice(None)  # the id 0 is no feature
            assert torch.allclose(one[rows].double(), other[rows], atol=1e-5)

    def test_an_unknown_label_is_summed_over(self, problem):
        source, labels, weights = problem
        partly = labels.clone()
        partly[0, 1] = -1
        losses = []
        for label in range(3):
            partly_known = labels.clone()
            partly_known[0, 1] = label
            losses.append(
                CRFProblem([source], [partly_known], 6).loss(weights)[0] * int(source.lengths.sum())
            )
        expected = -torch.tensor([-each for each in losses]).logsumexp(0)
        found = CRFProblem([source], [partly], 6).loss(weights)[0] * int(source.lengths.sum())
        assert found == pytest.approx(float(expected), rel=1e-4)

    def test_never_decodes_what_is_barred(self, problem):
        source, _, weights = problem
        crf = CRF(6, 3)
        for parameter, weight in zip(crf.learnt, weights, strict=True):
            parameter.data.copy_(weight)
        crf.barred.data[:, 2] = -1e4
        path = crf.decode(source)
        assert not (path[source.real] == 2).any()
        assert (
            as_chain(crf.emissions(source), source, crf.moves, crf.first, crf.last)[1]
            .sum(1)
            .allclose(torch.ones(3).double())
        )


def test_kneser_ney_is_a_distribution_after_every_history():
    text = np.array([1, 2, 3, 1, 2, 4, 1, 3, 2, 1, 2, 3, 4, 4])
    weights = kneser_ney(text, 3, 5)
    totals = torch.zeros(len(weights["ngrams.1"]), dtype=torch.float64)
    owners = weights["ngrams.2"] // 5
    totals.index_add_(0, owners, weights["shares.2"].double())
    assert torch.allclose(totals + weights["backs.2"], torch.ones_like(totals), atol=1e-6)


@pytest.mark.parametrize(
    ("name", "setting", "words"),
    [
        ("linear-classifier", "source.kind=words", "reads"),
        ("bilstm-classifier", "source.kind=ngrams", "baseline"),
        ("crf-tagger", "source.kind=words", "reads"),
    ],
)
def test_a_baseline_reads_its_own_features(name, setting, words):
    with pytest.raises(RecipeError, match=words):
        check_recipe(override(load_recipe(name), [setting]))
