"""Hidden Markov models used like every other model."""

import json
import random

import numpy as np
import pytest
import torch

from seqlab import lab
from seqlab.cli.output import print_fit
from seqlab.errors import DataError, RecipeError, RunError, SeqlabWarning
from seqlab.padded import Padded

LEXICON = {
    "D": ["the", "a"],
    "N": ["cat", "dog", "bird", "walker"],
    "V": ["sees", "hears", "walked"],
    "A": ["old"],
}
FRAMES = ["D N V D N", "D A N V", "D N V D A N", "D A A N V D N"]


def sentences(num, *, seed=1):
    keyed = random.Random(seed)
    for _ in range(num):
        tags = keyed.choice(FRAMES).split()
        yield [(keyed.choice(LEXICON[tag]), tag) for tag in tags]


def conll(num, *, known=1.0, seed=1):
    keyed = random.Random(seed + 100)
    rows = (
        (f"{word}\t{tag if keyed.random() < known else '?'}\n" for word, tag in s)
        for s in sentences(num, seed=seed)
    )
    return "\n".join("".join(words) for words in rows)


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    """A function that writes a text to a file, and trains and perhaps validates on it."""

    def make(task, recipe, text, *settings, name="t.conll", itself=False):
        folder = tmp_path_factory.mktemp(task)
        (folder / name).write_text(text)
        valid = folder / name if itself else ()
        return lab.train(
            task, folder / name, valid=valid, recipe=recipe, settings=settings, out=folder / "m"
        ).model

    return make


@pytest.fixture(scope="module")
def tagger(make):
    return make("tag", "hmm-tagger", conll(60), "data.validation=0.3")


@pytest.fixture(scope="module")
def lines(make):
    text = "".join(" ".join(word for word, _ in s) + "\n" for s in sentences(80))
    settings = (
        "model.hmm.states=4",
        "target.min_count=1",
        "train.restarts=3",
        "train.steps=40",
        "data.validation=0.2",
    )
    return make("lm", "hmm-lm", text, *settings, name="t.txt")


class TestATagger:
    def test_tags_words_and_reports_its_fitting(self, tagger):
        answer = tagger.predict("the old cat sees a dog")
        assert answer.details["tags"] == ["D", "A", "N", "V", "D", "N"]
        assert tagger.metrics["fit"] == {"by": "counting"}
        assert tagger.metrics["steps"] == 1
        assert tagger.metrics["validation"]["accuracy"] == 1.0

    def test_tags_unknown_words_by_their_ending_and_context(self, tagger):
        assert tagger.predict("The talker talked").details["tags"] == ["D", "N", "V"]
        assert tagger.predict("the xyz hears").details["tags"] == ["D", "N", "V"]

    def test_an_empty_line_has_no_tags(self, tagger):
        assert [answer.output for answer in tagger.predict(["", "the cat"])] == ["", "D N"]

    def test_is_loaded_as_it_was(self, tagger):
        again = lab.load(tagger.path)
        assert again.evaluate().to_json() == tagger.metrics["validation"]
        assert again.bundle.model.hmm.initial.dtype == torch.float64

    def test_embeds_a_line_as_the_mean_of_its_posteriors(self, tagger):
        vectors = tagger.embed(["the cat", "sees"])
        assert vectors.shape == (2, 4)
        np.testing.assert_allclose(vectors.sum(1), 1, rtol=1e-5)
        np.testing.assert_allclose(vectors[0], [0, 0.5, 0.5, 0], atol=0.1)

    def test_remembers_one_label_or_two(self, make):
        """After "x x" comes Q, after "y x" comes P: a state must remember two labels to know."""
        text = "\n".join("x\tX\nx\tX\nw\tQ\n" if i % 2 else "y\tY\nx\tX\nw\tP\n" for i in range(40))
        found = {}
        for order in (1, 2):
            model = make("tag", "hmm-tagger", text, f"model.hmm.order={order}", itself=True)
            found[order] = [model.predict(line).details["tags"][-1] for line in ("x x w", "y x w")]
        assert found[2] == ["Q", "P"]
        assert found[1][0] == found[1][1]

    def test_answers_by_the_best_path_or_label_by_label(self, make):
        """A path that stays is likelier than each that moves, yet label by label the middle is more often B."""
        text = "\n".join(
            ["x\tA\n" * 3] * 4 + ["x\tA\nx\tB\nx\tC\n"] * 3 + ["x\tC\nx\tB\nx\tA\n"] * 3
        )
        tags = {}
        for way in ("viterbi", "posterior"):
            model = make("tag", "hmm-tagger", text, f"model.hmm.decode={way}", itself=True)
            tags[way] = model.predict("x x x").details["tags"]
        assert tags == {"viterbi": ["A", "A", "A"], "posterior": ["A", "B", "A"]}

    def test_of_vectors_has_gaussians(self, make, tmp_path):
        keyed = np.random.default_rng(1)
        labels = np.repeat(np.arange(40) % 2, 10)
        values = keyed.normal(size=(400, 2)) + 3 * labels[:, None]
        names = np.where(labels, "high", "low")
        names[::7] = "?"
        np.savez(tmp_path / "t.npz", values=values, lengths=[20] * 20, labels=names)
        for emissions in ("diagonal", "full"):
            settings = (
                "source.kind=vectors",
                f"model.hmm.emissions={emissions}",
                "source.endings=0",
            )
            settings += ("data.no_label=?", "train.steps=5", "data.validation=0.2")
            model = lab.train(
                "tag",
                tmp_path / "t.npz",
                recipe="hmm-tagger",
                settings=settings,
                out=tmp_path / emissions,
            ).model
            assert model.metrics["fit"]["by"] == "EM"
            assert model.metrics["validation"]["accuracy"] > 0.95
            assert (
                model.predict(values[:20].astype(np.float32)).details["tags"]
                == ["low"] * 10 + ["high"] * 10
            )


class TestALanguageModel:
    def test_finds_the_classes_of_words(self, lines):
        """Its states are the word classes that made the text: better than words by their frequency alone."""
        scores = lines.metrics["validation"]
        assert scores["loss"] < scores["baselines"]["1-gram"]["loss"] - 0.5
        fit = lines.metrics["fit"]
        assert fit["climbs"] == 3
        assert (
            fit["objectives"][fit["best_climb"] - 1] == max(fit["objectives"]) == fit["objective"]
        )

    def test_writes_scores_and_streams(self, lines):
        said = lines.predict("the", seed=1, temperature=1.0).output
        assert said
        assert set(said.split()) <= {word for words in LEXICON.values() for word in words}
        assert "".join(lines.stream("the", seed=1, temperature=1.0)) == said
        likely, unlikely = lines.score(["the cat sees a dog", "sees sees the the"])
        assert likely > unlikely
        assert lines.predict("the", beam=2).details["hypotheses"][0]["ended"]

    def test_embeds_a_line_as_the_mean_of_its_beliefs(self, lines):
        np.testing.assert_allclose(lines.embed(["the cat", "sees"]).sum(1), 1, rtol=1e-5)

    def test_carries_its_belief_over_a_long_text(self, make, tmp_path):
        text = "".join(" ".join(word for word, _ in s) + "\n" for s in sentences(80))
        settings = (
            "data.unit=stream",
            "target.kind=characters",
            "model.hmm.states=6",
            "train.steps=30",
            "train.bptt=50",
        )
        model = make("lm", "hmm-lm", text, *settings, "data.validation=0.2", name="t.txt")
        scores = model.metrics["validation"]
        assert scores["loss"] < scores["baselines"]["1-gram"]["loss"] - 0.2
        held_out = model.data().tokens
        hmm, tokens = (
            model.bundle.model.decoder.hmm.model,
            torch.from_numpy(held_out.astype(np.int64))[None],
        )
        whole, first = (
            hmm.posterior(Padded(tokens[:, :n], torch.tensor([n]))).log_likelihood
            for n in (tokens.shape[1], 1)
        )
        assert scores["loss"] == pytest.approx(
            float(first - whole) / (tokens.shape[1] - 1), rel=1e-9
        )
        assert len(model.predict("the ", max_length=5).output) == 5

    def test_resumes_where_it_was_stopped_and_not_after_its_end(self, make, lines, tmp_path):
        text = "".join(" ".join(word for word, _ in s) + "\n" for s in sentences(80))
        (tmp_path / "t.txt").write_text(text)
        settings = (
            "model.hmm.states=4",
            "target.min_count=1",
            "train.restarts=3",
            "train.steps=40",
        )
        settings += ("data.validation=0.2",)
        calls = iter([False] * 7 + [True])
        stopped = lab.train(
            "lm",
            tmp_path / "t.txt",
            recipe="hmm-lm",
            settings=settings,
            out=tmp_path / "m",
            stop=lambda: next(calls),
        )
        assert (stopped.stopped, stopped.step) == (True, 8)
        again = lab.train(out=tmp_path / "m", resume=True).model
        ours, theirs = (dict(model.bundle.model.named_parameters()) for model in (again, lines))
        assert all(ours[name].equal(theirs[name]) for name in theirs)
        assert again.metrics["fit"] == lines.metrics["fit"]
        with pytest.raises(RunError, match="this run has finished all") as caught:
            lab.train(out=tmp_path / "m", resume=True)
        assert "--set train.restarts=N" in caught.value.hint


class TestUnknownLabels:
    def test_are_inferred_by_em_while_known_labels_are_fixed(self, make, tagger):
        model = make(
            "tag", "hmm-tagger", conll(60, known=0.4), "data.no_label=?", "data.validation=0.3"
        )
        assert model.bundle.codec.target.labels.names == ("A", "D", "N", "V")
        fit = model.metrics["fit"]
        assert (fit["by"], fit["climbs"], fit["monotone"]) == ("EM", 1, True)
        assert 1 <= fit["kept_step"] <= fit["steps"]
        assert model.predict("the old cat sees a dog").details["tags"] == [
            "D",
            "A",
            "N",
            "V",
            "D",
            "N",
        ]
        assert model.metrics["validation"]["accuracy"] == 1.0

    def test_are_learnt_by_no_tagger_and_scored_by_no_evaluation(self, make, tmp_path):
        settings = (
            "model.embedding=8",
            "model.encoder.size=8",
            "model.encoder.layers=1",
            "train.steps=3",
        )
        unlabelled = "\n".join("the\t?\ncat\t?\n" for _ in range(10))
        text = conll(30, known=0.5) + "\n" + unlabelled
        model = make(
            "tag", "bilstm-tagger", text, *settings, "data.no_label=?", "data.validation=0.3"
        )
        assert "?" not in model.bundle.codec.target.labels.names
        (tmp_path / "all.conll").write_text(conll(20, seed=3))
        given = list(sentences(20, seed=3))
        answers = [model.predict(" ".join(word for word, _ in s)).details["tags"] for s in given]
        right = [
            t == p
            for s, tags in zip(given, answers, strict=True)
            for (_, t), p in zip(s, tags, strict=True)
        ]
        assert 0 < sum(right) < len(right)
        whole = model.evaluate(tmp_path / "all.conll")
        assert whole.scores["accuracy"] == pytest.approx(np.mean(right))
        # the same answers, with every label that was missed taken away: all that is left is right
        guessed = iter(right)
        rows = ["".join(f"{w}\t{t if next(guessed) else '?'}\n" for w, t in s) for s in given]
        (tmp_path / "some.conll").write_text("\n".join([*rows, "the\t?\n"]))
        some = model.evaluate(tmp_path / "some.conll")
        assert (
            some.scores["accuracy"]
            == some.scores["macro_f1"]
            == some.scores["whole_sentences"]
            == 1.0
        )
        assert some.examples == ()
        assert some.num_examples == 21
        assert some.scores["token_accuracy"] == 1.0
        baselines = [report.baselines["most frequent tag"]["accuracy"] for report in (whole, some)]
        assert baselines[1] == 1.0  # no word here has two tags
        assert baselines[0] == 1.0

    def test_lie_outside_of_all_spans(self, make, tmp_path):
        text = "\n".join("a\tO\nx\tB-P\ny\tI-P\n" if i % 2 else "b\tO\na\tO\n" for i in range(40))
        model = make("tag", "hmm-tagger", text, "data.no_label=?", itself=True)
        (tmp_path / "v.conll").write_text("a\tO\nx\tB-P\ny\t?\n\nx\t?\ny\t?\n")
        scores = model.evaluate(tmp_path / "v.conll").scores
        assert scores["entity_f1"] == scores["accuracy"] == 1.0

    def test_give_no_warning(self, make, tmp_path, recwarn):
        model = make(
            "tag", "hmm-tagger", conll(30, known=0.5), "data.no_label=?", "data.validation=0.3"
        )
        model.evaluate(model.path.parent / "t.conll")
        assert not [w for w in recwarn if "?" in str(w.message)]

    def test_only_is_nothing_to_learn(self, make):
        with pytest.raises(DataError, match="there are no labels to learn"):
            make("tag", "hmm-tagger", conll(5, known=0.0), "data.no_label=?")


def test_a_label_that_was_cut_away_is_named(make):
    text = "\n".join("a\tA\nb\tB\nc\tC\n" for _ in range(9))
    with (
        pytest.raises(DataError, match=r"^the label 'C' does not occur"),
        pytest.warns(SeqlabWarning, match="longer than"),
    ):
        make("tag", "hmm-tagger", text, "data.max_source=2", itself=True)


def test_endings_are_for_networks_too(make):
    settings = (
        "model.embedding=8",
        "model.encoder.size=8",
        "model.encoder.layers=1",
        "train.steps=2",
    )
    model = make(
        "tag", "bilstm-tagger", conll(40), *settings, "source.endings=3", "data.validation=0.3"
    )
    tokenizer = model.bundle.codec.source_tokenizer
    assert len(tokenizer) > tokenizer.num_words
    assert len(model.predict("the runner").details["tags"]) == 2


def test_it_cannot_start_from_another_model_nor_another_from_it(make, lines, tagger, tmp_path):
    (tmp_path / "t.conll").write_text(conll(10))
    for recipe in ("hmm-tagger", "bilstm-tagger"):
        with pytest.raises(
            RecipeError, match="hidden Markov model cannot start from another model"
        ):
            lab.train(
                "tag", tmp_path / "t.conll", recipe=recipe, start=tagger.path, out=tmp_path / "m"
            )


def test_a_run_says_how_it_was_fitted(lines, tagger, capsys):
    print_fit(tagger.metrics["fit"])
    print_fit(lines.metrics["fit"])
    print_fit(
        {
            "by": "EM",
            "climbs": 1,
            "best_climb": 1,
            "objective": -2.5,
            "steps": 7,
            "converged": False,
            "kept_step": 3,
        }
    )
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "fitted by counting: every label was known"
    assert said[1].startswith(
        f"fitted by EM, best of 3 starts (number {lines.metrics['fit']['best_climb']}): -"
    )
    assert said[2].startswith(
        "fitted by EM, from one start: -2.5000 nats per token after 7 steps, not yet converged"
    )
    assert said[3] == "kept: step 3, which labels the held-out part best"


def test_the_facts_of_the_fitting_are_stored_with_the_model(lines):
    stored = json.loads((lines.path / "metrics.json").read_text())
    assert stored["fit"] == lines.metrics["fit"]
    steps = [
        json.loads(line) for line in (lines.path / "run" / "metrics.jsonl").read_text().splitlines()
    ]
    climbs = [line["climb"] for line in steps if "climb" in line]
    assert climbs == sorted(climbs)
    assert set(climbs) == {1, 2, 3}
