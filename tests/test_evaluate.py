"""Scores compared with values computed by hand or in another way."""

import math
import shutil
from collections import Counter, defaultdict

import numpy as np
import pytest
import torch

from seqlab import lab
from seqlab.data.example import Example
from seqlab.data.store import TokenStore
from seqlab.data.synthetic import reversals
from seqlab.decode.generate import score
from seqlab.errors import SeqlabWarning, UsageError
from seqlab.metrics.ngram import WittenBell
from seqlab.metrics.scores import accuracy, macro_f1
from seqlab.metrics.text_scores import corpus_scores
from seqlab.models.interface import Memory
from seqlab.padded import Padded
from seqlab.text import EOS, SOS
from tests.scoring import evaluate_examples

SMALL = ("model.embedding=8", "train.steps=6")
ENCODER, DECODER = ("model.encoder.size=8", "source.min_count=1"), ("model.decoder.size=8",)


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    """A function that trains a small model on a text and keeps the files."""

    def train(task, name, text, *settings, recipe=None):
        folder = tmp_path_factory.mktemp(task)
        (folder / name).write_text(text)
        return lab.train(
            task, folder / name, recipe=recipe, settings=(*SMALL, *settings), out=folder / "m"
        ).model

    return train


@pytest.fixture(scope="module")
def tagger(train):
    words = {"a": "XXY", "b": "YYX", "c": "ZZZ"}
    sentences = [
        [(w, tags[(i + j) % 3]) for j, (w, tags) in enumerate(words.items())] for i in range(40)
    ]
    text = "".join(
        "".join(f"{w} {t}\n" for w, t in s[: 1 + i % 3]) + "\n" for i, s in enumerate(sentences)
    )
    return train("tag", "t.conll", text, *ENCODER)


@pytest.fixture(scope="module")
def classifier(train):
    text = "".join(
        f"{'long' if n > 2 else 'short'}\t{'x ' * n}{i}\n" for i in range(20) for n in (1, 2, 3)
    )
    return train("classify", "c.tsv", text, *ENCODER)


@pytest.fixture(scope="module")
def translator(train):
    text = "".join(f"{a}\t{b}\n" for a, b in reversals(80, seed=2, longest=4))
    settings = ("shared=false", "source.kind=characters", *ENCODER, *DECODER)
    return train("translate", "p.tsv", text, *settings, recipe="seq2seq")


@pytest.fixture(scope="module")
def book(train):
    return train(
        "lm",
        "b.txt",
        "the cat sat on the mat, and the dog ran. " * 60,
        *DECODER,
        "train.batch_rows=4",
    )


@pytest.fixture(scope="module")
def lines(train):
    text = "".join(f"{a} and {b}\n" for a, b in reversals(80, seed=2, longest=4))
    return train("lm", "b.txt", text, *DECODER, "data.unit=line")


class TestMetricsByHand:
    def test_accuracy(self):
        assert accuracy(["a", "b", "b", "c"], ["a", "b", "c", "c"]) == 0.75

    def test_macro_f1(self):
        """a: 2/(1+1) = 1; b: 2/(2+1) = 2/3; c: 2/(1+2) = 2/3; d is predicted by nobody's right, and has no gold."""
        assert macro_f1(["a", "b", "b", "c"], ["a", "b", "c", "c"]) == pytest.approx(
            (1 + 2 / 3 + 2 / 3) / 3
        )
        assert macro_f1(["d", "a"], ["a", "a"]) == pytest.approx(2 / 3)

    def test_exact_match(self):
        assert accuracy(["1997-05-03", "1997-05-04"], ["1997-05-03", "1997-05-05"]) == 0.5

    def test_bleu_of_the_same_is_100_and_signed(self):
        text = ["the cat sat on the mat", "a dog ran away from it"]
        scores = corpus_scores(text, text)
        assert scores["bleu"] == pytest.approx(100)
        assert scores["chrf"] == pytest.approx(100)
        assert scores["bleu_signature"].startswith("nrefs:1|case:mixed|")
        assert scores["chrf_signature"].startswith("nrefs:1|case:mixed|")


class TestClassifier:
    def test_scores_are_those_of_its_answers(self, classifier):
        texts = ["x 1", "x x 2", "x x x 3", "x x x 4"]
        gold = ["short", "short", "long", "long"]
        examples = [
            Example(text, label, f"c:{i}")
            for i, (text, label) in enumerate(zip(texts, gold, strict=True))
        ]
        report = evaluate_examples(classifier.bundle, examples, None)
        answers = classifier.predict(texts)
        assert report.num_examples == 4
        assert report.scores["accuracy"] == accuracy([a.output for a in answers], gold)
        likelihood = [
            math.log(a.details["probabilities"][label])
            for a, label in zip(answers, gold, strict=True)
        ]
        assert report.scores["loss"] == pytest.approx(-sum(likelihood) / 4, abs=1e-5)
        assert report.scores["perplexity"] == pytest.approx(math.exp(report.scores["loss"]))

    def test_its_baseline_is_the_majority_of_training_and_needs_no_training_data(self, classifier):
        examples = [
            Example("x", "short", "c:1"),
            Example("x", "short", "c:2"),
            Example("x x x", "long", "c:3"),
        ]
        report = evaluate_examples(classifier.bundle, examples, None)
        assert report.baselines == {
            "majority class": {"accuracy": 2 / 3, "macro_f1": pytest.approx((4 / 5 + 0) / 2)}
        }
        assert (
            report.baseline_note
            == "the linear baseline needs the training part, which is not beside this model"
        )

    def test_the_overlap_of_hops_is_a_score(self, train):
        text = "".join(
            f"{'long' if n > 2 else 'short'}\t{'x y ' * n}{i}\n"
            for i in range(20)
            for n in (1, 2, 3)
        )
        settings = (
            *ENCODER,
            "model.pooling=hops",
            "model.hops=3",
            "train.steps=60",
            "train.learning_rate=0.1",
            "train.warmup=0",
        )
        alike, apart = (
            train("classify", "h.tsv", text, *settings, f"model.hop_penalty={p}").bundle
            for p in (0.0, 1.0)
        )
        examples = [Example("x y x y x", "long", "h:1"), Example("x y", "short", "h:2")]
        overlap = [
            evaluate_examples(bundle, examples, None).scores["hop_overlap"]
            for bundle in (alike, apart)
        ]
        assert 0 < overlap[1] < overlap[0] - 0.1 < 1

    def test_mistakes_are_shown_up_to_ten(self, classifier):
        wrong = {"short": "long", "long": "short"}
        texts = [f"x {i}" for i in range(15)]
        examples = [
            Example(text, wrong[answer.output], "c:1")
            for text, answer in zip(texts, classifier.predict(texts), strict=True)
        ]
        report = evaluate_examples(classifier.bundle, examples, None)
        assert report.scores["accuracy"] == 0
        assert len(report.examples) == 10
        assert report.examples[0]["input"] == "x 0"
        assert report.examples[0]["expected"] != report.examples[0]["output"]


class TestTagger:
    def test_its_baseline_is_the_most_frequent_tag_of_each_word(self, tagger):
        stores = tagger.path / "run" / "data"
        words, tags = (
            TokenStore.open(stores / f"train_{side}").flat.tolist() for side in ("source", "target")
        )
        counts, every = defaultdict(Counter), Counter()
        codec = tagger.bundle.codec
        for word, tag in zip(words, tags, strict=True):
            counts[word[0]][codec.target.labels.names[tag]] += 1  # the word's id, then its letters
            every[codec.target.labels.names[tag]] += 1
        best = {
            word: counts[codec.source_tokenizer.encode(word)[0]].most_common(1)[0][0]
            for word in "abc"
        }
        assert best == {"a": "X", "b": "Y", "c": "Z"}

        new = every.most_common(1)[0][0]
        gold = [("a", "b", "never-seen", "c"), ("X", "X", new, "Z")]
        report = evaluate_examples(tagger.bundle, [Example(*gold, "t:1")], stores)
        assert report.baselines == {"most frequent tag": {"accuracy": 0.75}}

    def test_unseen_words_and_whole_sentences_have_scores_of_their_own(self, tagger):
        words = ("a", "never-seen")
        right = tuple(tagger.predict(" ".join(words)).details["tags"])
        other = next(tag for tag in "XYZ" if tag != right[1])
        examples = [Example(words, right, "t:1"), Example(words, (right[0], other), "t:2")]
        scores = evaluate_examples(tagger.bundle, examples, None).scores
        assert scores["accuracy"] == 0.75
        assert scores["accuracy_on_unseen_words"] == 0.5
        assert scores["whole_sentences"] == 0.5

    def test_without_the_training_part_the_baseline_is_the_majority_and_says_why(self, tagger):
        report = evaluate_examples(tagger.bundle, [Example(("a",), ("X",), "t:1")], None)
        assert set(report.baselines) == {"majority tag"}
        assert report.baseline_note == "the most frequent tag of each word needs the training part"
        assert report.to_json()["baseline_note"] == report.baseline_note

    def test_a_tag_never_seen_has_no_likelihood_but_is_wrong(self, tagger):
        known = evaluate_examples(tagger.bundle, [Example(("a",), ("X",), "t:1")], None)
        with pytest.warns(
            SeqlabWarning, match=r"t:1: labels never seen in training count as wrong: 'NEW' \(2\)"
        ):
            report = evaluate_examples(
                tagger.bundle, [Example(("a", "b", "c"), ("X", "NEW", "NEW"), "t:1")], None
            )
        assert report.scores["accuracy"] <= 1 / 3
        assert math.isfinite(report.scores["loss"])
        assert known.scores["loss"] > 0


class TestTranslator:
    def test_its_baseline_is_the_copy_of_the_source(self, translator):
        examples = [Example("abba", "abba", "p:1"), Example("ab", "ba", "p:2")]
        report = evaluate_examples(translator.bundle, examples, None)
        copied = corpus_scores(["abba", "ab"], ["abba", "ba"])
        assert report.baselines["copy of the source"] == {
            "exact": 0.5,
            "bleu": pytest.approx(copied["bleu"]),
            "chrf": pytest.approx(copied["chrf"]),
        }

    def test_what_it_says_is_exactly_right_where_that_is_the_answer(self, translator):
        texts = ["abc", "xyz", "q"]
        answers = [answer.output for answer in translator.predict(texts)]
        examples = [
            Example(text, answer, "p:1") for text, answer in zip(texts, answers, strict=True)
        ]
        report = evaluate_examples(translator.bundle, examples, None)
        assert report.scores["exact"] == 1
        assert "bleu_signature" in report.scores
        assert report.examples == ()

    def test_its_loss_is_that_of_the_decoder_over_the_gold(self, translator):
        pairs = [("abc", "cba"), ("z", "z")]
        model, codec = translator.bundle.model, translator.bundle.codec
        total, scored = 0.0, 0
        with torch.inference_mode():
            for source, target in pairs:
                ids = [SOS, *codec.target_tokenizer.encode(target), EOS]
                memory = model.encoder(Padded.from_rows([codec.source_tokenizer.encode(source)]))
                total += float(score(model.decoder, memory, Padded.from_rows([ids])))
                scored += len(ids) - 1
        report = evaluate_examples(
            translator.bundle, [Example(*pair, "p:1") for pair in pairs], None
        )
        assert report.scores["loss"] == pytest.approx(-total / scored, abs=1e-5)


class TestLanguageModel:
    def test_the_loss_of_a_text_is_that_of_the_decoder_over_all_of_it(self, book, tmp_path):
        text = "the dog sat on the mat, " * 100  # longer than what is read at once
        (tmp_path / "b.txt").write_text(text)
        report = book.evaluate(tmp_path / "b.txt")
        ids = book.bundle.codec.target_tokenizer.encode(text + "\n")
        log_p = score(book.bundle.model.decoder, Memory(1), Padded.from_rows([ids]))
        assert report.num_examples == len(ids) - 1
        assert report.scores["loss"] == pytest.approx(-float(log_p) / (len(ids) - 1), abs=1e-5)
        assert report.scores["bits_per_token"] == pytest.approx(report.scores["loss"] / math.log(2))

    def test_its_baselines_are_n_grams_of_the_training_part(self, book):
        report = book.evaluate()
        stores = book.path / "run" / "data"
        seen, held_out = (
            np.asarray(TokenStore.open(stores / f"{p}_stream").flat)
            for p in ("train", "validation")
        )
        for order in (1, 5):
            ngram = WittenBell(order, len(book.bundle.codec.target_tokenizer)).fit(seen)
            expected = -ngram.log_probabilities(held_out)[1:].mean()
            assert report.baselines[f"{order}-gram"]["loss"] == pytest.approx(expected)
        assert report.baselines["5-gram"]["loss"] < report.baselines["1-gram"]["loss"]

    def test_lines_are_scored_one_by_one_with_their_ends(self, lines, tmp_path):
        (tmp_path / "b.txt").write_text("ab and ba\n\nq and q\n")
        report = lines.evaluate(tmp_path / "b.txt")
        tokenizer, total, scored = lines.bundle.codec.target_tokenizer, 0.0, 0
        for line in ("ab and ba", "q and q"):
            ids = [SOS, *tokenizer.encode(line), EOS]
            total += float(score(lines.bundle.model.decoder, Memory(1), Padded.from_rows([ids])))
            scored += len(ids) - 1
        assert report.num_examples == 2
        assert report.scores["loss"] == pytest.approx(-total / scored, abs=1e-5)
        assert set(report.baselines) == {"1-gram", "5-gram"}


def test_a_model_without_training_data_notes_the_missing_baseline(book, tagger, tmp_path):
    for model, name, text in ((book, "b.txt", "the cat\n"), (tagger, "t.conll", "a X\n")):
        alone = tmp_path / model.recipe.task
        shutil.copytree(model.path, alone, ignore=shutil.ignore_patterns("run"))
        (tmp_path / name).write_text(text)
        report = lab.load(alone).evaluate(tmp_path / name)
        assert "training part" in report.baseline_note
        with pytest.raises(UsageError, match="this model has no held-out data"):
            lab.load(alone).evaluate()
