"""Models that read texts or vectors, as a user calls them: masks, labels, tags and embeddings."""

import json
import random
import shutil

import numpy as np
import pytest

from seqlab import lab
from seqlab.data.store import TokenStore
from seqlab.errors import DataError, SeqlabWarning, UsageError
from seqlab.text import EOS, SOS, SPECIALS

QUICK = ("train.steps=2", "model.embedding=8", "data.validation=0.3")
LEARN = (
    "model.embedding=8",
    "train.learning_rate=0.03",
    "train.warmup=0",
    "train.validate_every=40",
    "data.validation=0.3",
)
ENCODER = ("model.encoder.size=8", "model.encoder.layers=1")
MEALS = {"cats": "fish", "dogs": "meat", "birds": "seeds", "cows": "grass"}


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    """A function that writes a text to a file and trains on it."""

    def make(task, name, text, *settings, **options):
        folder = tmp_path_factory.mktemp(task)
        (folder / name).write_text(text)
        return lab.train(task, folder / name, settings=settings, out=folder / "m", **options).model

    return make


def meals(num, *, seed=1):
    keyed = random.Random(seed)
    for _ in range(num):
        who = keyed.choice(sorted(MEALS))
        yield f"{keyed.choice(('old', 'young', 'my'))} {who} eat {MEALS[who]}"


@pytest.fixture(scope="module")
def mask(make):
    """A masked model that has learnt who eats what."""
    layers = (
        "model.encoder.kind=gru",
        "model.encoder.bidirectional=true",
        "model.encoder.size=12",
        "model.dropout=0",
    )
    settings = (
        *LEARN,
        *layers,
        "model.encoder.layers=1",
        "train.optimizer=adamw",
        "train.steps=160",
        "model.masked=0.3",
    )
    text = "".join(f"{line}\n" for line in meals(100))
    return make(
        "mask",
        "t.txt",
        text,
        *settings,
        "source.kind=words",
        "train.average=none",
        "train.batch_tokens=200",
    )


@pytest.fixture(scope="module")
def bilm(make):
    return make("bilm", "t.txt", "".join(f"{line}\n" for line in meals(40)), *QUICK, *ENCODER)


class TestBlanks:
    def test_are_filled_from_both_sides(self, mask):
        assert mask.predict("my [MASK] eat meat").output == "my dogs eat meat"
        assert mask.predict("my dogs eat [MASK]").output == "my dogs eat meat"

    def test_each_has_ranked_candidates(self, mask):
        answer = mask.predict("old [MASK] eat [MASK]")
        assert answer.input == "old [MASK] eat [MASK]"
        blanks = answer.details["blanks"]
        assert len(blanks) == 2
        for guesses in blanks:
            p = [guess["probability"] for guess in guesses]
            assert len(p) == 5
            assert p == sorted(p, reverse=True)
            assert 0 < sum(p) <= 1
            assert len({guess["token"] for guess in guesses}) == 5
        assert answer.output == f"old {blanks[0][0]['token']} eat {blanks[1][0]['token']}"

    def test_special_tokens_are_never_offered(self, mask, make):
        few = make(
            "mask",
            "t.txt",
            "a b\nb a\n" * 9,
            *QUICK,
            "model.encoder.size=8",
            "model.encoder.heads=2",
            "source.kind=words",
        )
        guesses = few.predict("a [MASK]").details["blanks"][0]
        assert sorted(guess["token"] for guess in guesses) == ["a", "b"]  # all there is
        assert sum(guess["probability"] for guess in guesses) == pytest.approx(1)
        for blanks in (
            a.details["blanks"]
            for a in mask.predict(["[MASK]", "[MASK] [MASK] [MASK]", "[SEP] [MASK]"])
        ):
            assert not {guess["token"] for guesses in blanks for guess in guesses} & set(SPECIALS)

    def test_a_pair_of_texts_is_accepted(self, mask):
        answer = mask.predict("my cats eat [MASK] [SEP] old cows eat [MASK]")
        assert len(answer.details["blanks"]) == 2
        assert answer.output.startswith("my cats eat ")
        assert " [SEP] old cows eat " in answer.output

    def test_a_line_without_one_comes_back_with_a_warning_that_names_it(self, mask):
        with pytest.warns(
            SeqlabWarning, match=r"^line 2: there is no \[MASK\] to fill \(and 1 more\); write one"
        ) as told:
            answers = mask.predict(["my [MASK]", "my cats eat fish", "", "old cats"])
        assert len(told) == 1
        assert [answer.output for answer in answers[1:]] == ["my cats eat fish", "", "old cats"]
        assert answers[1].details == {"blanks": []}

    def test_nothing_stays_nothing(self, mask, recwarn):
        assert [answer.output for answer in mask.predict(["", "   "])] == ["", "   "]
        assert mask.predict([]) == []
        assert not recwarn

    def test_a_model_that_has_learnt_is_better_than_guessing_by_frequency(self, mask):
        report = mask.evaluate()
        assert report.scores["loss"] < report.baselines["by frequency"]["loss"]
        assert report.scores["token_accuracy"] > report.baselines["by frequency"]["token_accuracy"]
        assert report.to_json() == mask.metrics["validation"]

    def test_a_run_that_was_stopped_hides_the_same_tokens_as_one_that_was_not(self, tmp_path):
        (tmp_path / "t.txt").write_text("".join(f"{line}\n" for line in meals(30)))
        small = (
            "model.encoder.size=8",
            "model.encoder.heads=2",
            "model.encoder.layers=1",
            "source.kind=words",
        )
        settings = (*QUICK, *small, "train.steps=4", "train.validate_every=3")
        lab.train(
            "mask", tmp_path / "t.txt", settings=settings, out=tmp_path / "m", stop=lambda: True
        )
        lab.train(out=tmp_path / "m", resume=True)
        lab.train("mask", tmp_path / "t.txt", settings=settings, out=tmp_path / "whole")
        weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("m", "whole")]
        assert weights[0] == weights[1]

    def test_a_text_too_short_to_hide_anything_has_no_score(self, mask, tmp_path):
        (tmp_path / "short.txt").write_text("eat\n")
        report = mask.evaluate(tmp_path / "short.txt").to_json()
        assert report["loss"] is None
        assert "NaN" not in json.dumps(report)
        assert "no token was masked" in report["baseline_note"]


def test_a_bidirectional_language_model_answers_nothing(bilm):
    with pytest.raises(UsageError, match="has no answers of its own") as caught:
        bilm.predict("my cats")
    assert "--embed" in caught.value.hint
    assert set(bilm.evaluate().baselines) == {"1-gram", "5-gram"}


def waves(num, *, seed=1):
    """Sequences of three features that go up or down, and which of the two."""
    random = np.random.default_rng(seed)
    for _ in range(num):
        label = str(random.choice(["up", "down"]))
        steps = np.arange(random.integers(2, 7))[:, None] * (1 if label == "up" else -1)
        yield (100 + steps + random.normal(0, 0.1, (len(steps), 3))).astype(np.float32), label


def archive(path, sequences, labels):
    np.savez(
        path, values=np.concatenate(sequences), lengths=[len(s) for s in sequences], labels=labels
    )
    return path


MEASURED = (*LEARN, *ENCODER, "source.kind=vectors", "train.steps=40")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The same sequences in an .npz, in a directory with a table, and in one with a directory for each label."""
    folder = tmp_path_factory.mktemp("waves")
    sequences, labels = zip(*waves(60), strict=True)
    archive(folder / "waves.npz", sequences, labels)
    for name in ("table", "named/up", "named/down"):
        (folder / name).mkdir(parents=True)
    for number, (values, label) in enumerate(zip(sequences, labels, strict=True)):
        np.save(folder / "table" / f"{number}.npy", values)
        np.save(folder / "named" / label / f"{number}.npy", values)
    table = "".join(f"{number}.npy\t{label}\n" for number, label in enumerate(labels))
    (folder / "table" / "labels.tsv").write_text(table)
    return folder


@pytest.fixture(scope="module")
def sorter(place):
    return lab.train("classify", place / "waves.npz", settings=MEASURED, out=place / "m").model


class TestVectors:
    def test_are_told_apart(self, sorter):
        report = sorter.evaluate()
        assert report.scores["accuracy"] == 1
        assert set(report.baselines) == {"majority class"}
        assert report.to_json() == sorter.metrics["validation"]
        fresh = list(waves(20, seed=2))
        assert [a.output for a in sorter.predict([v for v, _ in fresh])] == [
            label for _, label in fresh
        ]

    @pytest.mark.parametrize("name", ["table", "named"])
    def test_in_a_directory_they_are_the_same_as_in_an_archive(self, place, sorter, tmp_path, name):
        model = lab.train(
            "classify", place / name, settings=(*MEASURED, "train.steps=1"), out=tmp_path / "m"
        ).model
        assert model.bundle.codec.target.labels == sorter.bundle.codec.target.labels
        ours, theirs = model.bundle.codec.source.scale, sorter.bundle.codec.source.scale
        assert ours.mean == pytest.approx(theirs.mean)
        assert sorter.evaluate(place / name).scores["accuracy"] == 1

    def test_a_path_and_the_array_in_it_get_the_same_answer(self, place, sorter):
        path = str(place / "table" / "0.npy")
        from_path, from_array = sorter.predict(path), sorter.predict(np.load(path))
        assert from_path.details == from_array.details
        assert from_path.input == path
        assert from_array.input == f"{len(np.load(path))} frames of 3 features"

    def test_other_features_than_in_training_are_refused(self, sorter, tmp_path):
        np.save(tmp_path / "x.npy", np.zeros((4, 2), dtype=np.float32))
        for given in (str(tmp_path / "x.npy"), np.zeros((4, 2), dtype=np.float32)):
            with pytest.raises(
                DataError, match="vectors of 2 features where the model was trained on 3"
            ):
                sorter.predict(given)
        with pytest.raises(DataError, match="there is no such file"):
            sorter.predict(str(tmp_path / "y.npy"))

    def test_frames_are_tagged_one_by_one(self, tmp_path):
        random, sequences = np.random.default_rng(1), []
        for _ in range(40):
            sequences.append(random.normal(0, 1, (random.integers(1, 6), 2)).astype(np.float32))
        labels = ["high" if frame[0] > 0 else "low" for sequence in sequences for frame in sequence]
        path = archive(tmp_path / "f.npz", sequences, labels)
        model = lab.train(
            "tag", path, settings=(*MEASURED, "train.steps=60"), out=tmp_path / "m"
        ).model
        frames = np.asarray([[2, 0], [-2, 0], [2, 1], [-2, -1]], dtype=np.float32)
        answer = model.predict(frames)
        assert answer.output == "high low high low"
        assert answer.details == {"tags": ["high", "low", "high", "low"]}
        np.save(tmp_path / "x.npy", frames[:2])
        assert model.predict([str(tmp_path / "x.npy"), frames])[0].output == "high low"
        assert set(model.evaluate().baselines) == {"majority tag"}

    def test_a_text_can_be_written_from_them(self, place, tmp_path):
        settings = (
            *QUICK,
            *ENCODER,
            "model.decoder.size=8",
            "source.kind=vectors",
            "shared=false",
            "decode.max_length=4",
        )
        options = {"recipe": "seq2seq", "settings": settings, "out": tmp_path / "m"}
        model = lab.train("translate", place / "waves.npz", **options).model
        path = str(place / "table" / "0.npy")
        answer = model.predict([path, np.load(path)])
        assert answer[0].output == answer[1].output
        assert set(answer[0].output) <= set("updown")
        assert "exact" in model.evaluate().scores
        assert model.evaluate().baselines == {}

    def test_they_have_vectors_of_their_own(self, place, sorter):
        vectors = sorter.embed([str(place / "table" / "0.npy"), np.load(place / "table" / "1.npy")])
        assert vectors.shape == (2, 16)


SUFFIXES = {"ing": "VERB", "ly": "ADV", "ness": "NOUN"}


def suffixed(num, *, seed):
    """Sentences of invented words whose tag is in their suffix."""
    keyed = random.Random(seed)
    for _ in range(num):
        for _ in range(keyed.randint(2, 5)):
            suffix, stem = (
                keyed.choice(sorted(SUFFIXES)),
                "".join(keyed.choices("abcdefgh", k=keyed.randint(2, 4))),
            )
            yield f"{stem}{suffix} {SUFFIXES[suffix]}"
        yield ""


@pytest.fixture(scope="module")
def pieces(make):
    text = "\n".join(suffixed(60, seed=1))
    return make("tag", "t.conll", text, *QUICK, *ENCODER, "source.kind=bpe", "source.size=300")


@pytest.fixture(scope="module")
def short(make):
    """Knows that b is Y and the rest X, and reads no more than three words."""
    text = "".join("a X\nc X\nb Y\n\nb Y\na X\n\n" for _ in range(10))
    settings = (*LEARN, *ENCODER, "train.steps=25", "source.min_count=1", "data.max_source=3")
    return make("tag", "t.conll", text, *settings)


class TestTagger:
    @pytest.mark.parametrize(
        "line", ["abing", "abing cdly", "日本 !! abing", "x" * 300 + " cdly", "a b c d e f g", ""]
    )
    def test_each_word_in_pieces_gets_one_label(self, pieces, line):
        answer = pieces.predict(line)
        assert answer.details["words"] == line.split()
        assert len(answer.details["tags"]) == len(answer.output.split()) == len(line.split())
        assert set(answer.details["tags"]) <= set(SUFFIXES.values())

    def test_pieces_of_a_word_are_scored_once(self, pieces, tmp_path):
        (tmp_path / "t.conll").write_text("abcdefghness NOUN\nabing VERB\n")
        scores = pieces.evaluate(tmp_path / "t.conll").scores
        assert scores["accuracy"] in (0, 0.5, 1)
        assert "accuracy_on_unseen_words" not in scores  # every word can be spelled

    def test_beyond_the_longest_sentence_there_is_the_most_frequent_label(self, short):
        with pytest.warns(
            SeqlabWarning, match="line 1: 5 tokens, more than the 3 of data.max_source"
        ):
            answer = short.predict("b b b b b")
        assert answer.output == "Y Y Y X X"

    def test_words_that_are_cut_already_are_taken_as_they_are(self, short):
        assert short.predict([("a", "b"), ("b",)])[0].details == {
            "words": ["a", "b"],
            "tags": ["X", "Y"],
        }

    def test_the_spelling_of_a_word_never_seen_tells_its_tag(self, tmp_path):
        (tmp_path / "train.conll").write_text("\n".join(suffixed(60, seed=1)))
        (tmp_path / "test.conll").write_text("\n".join(suffixed(30, seed=2)))
        settings = (*LEARN, *ENCODER, "train.steps=25", "train.batch_tokens=300", "model.dropout=0")
        letters = (
            "model.characters.kind=gru",
            "model.characters.size=8",
            "model.characters.bidirectional=true",
        )
        scores = {}
        for name, more in (("without", ()), ("with", letters)):
            options = {
                "valid": tmp_path / "test.conll",
                "settings": (*settings, *more),
                "out": tmp_path / name,
            }
            options |= {"recipe": "bilstm-tagger"}
            scores[name] = (
                lab.train("tag", tmp_path / "train.conll", **options).model.evaluate().scores
            )
        unseen = {name: each["accuracy_on_unseen_words"] for name, each in scores.items()}
        assert unseen["with"] > 0.9
        assert unseen["without"] < 0.6

    @pytest.mark.parametrize(
        ("labels", "spans"), [(("O", "B-PER", "I-PER"), True), (("X", "Y", "Z"), False)]
    )
    def test_entities_are_scored_where_labels_spell_them(self, make, labels, spans):
        words = zip(("in", "Ada", "Lovelace"), labels, strict=True)
        text = "".join(f"{word} {label}\n" for word, label in words)
        text = "".join(f"n{i} {labels[0]}\n{text}\n" for i in range(12))
        model = make("tag", "t.conll", text, *QUICK, *ENCODER)
        found = {"entity_precision", "entity_recall", "entity_f1"} & set(model.evaluate().scores)
        assert len(found) == (3 if spans else 0)

    def test_entities_count_where_they_are_whole(self, make, tmp_path):
        text = "".join(
            f"n{i} O\nAda B-PER\nByron I-PER\n\nParis B-LOC\nn{i} O\n\n" for i in range(12)
        )
        model = make(
            "tag", "t.conll", text, *LEARN, *ENCODER, "train.steps=25", "source.min_count=1"
        )
        assert model.predict("n1 Ada Byron").output == "O B-PER I-PER"
        (tmp_path / "v.conll").write_text("n1 O\nAda B-PER\nByron O\n\nParis B-LOC\nn2 O\n")
        scores = model.evaluate(tmp_path / "v.conll").scores
        assert scores["entity_f1"] == pytest.approx(
            0.5
        )  # Paris is found, Ada Byron has one word too many
        assert scores["accuracy"] == pytest.approx(4 / 5)


@pytest.fixture(scope="module")
def classifier(make):
    text = "".join(f"{MEALS[line.split()[1]]}\t{line} {i}\n" for i, line in enumerate(meals(60)))
    return make("classify", "c.tsv", text, *QUICK, *ENCODER)


class TestClassifier:
    def test_stands_beside_a_linear_one_that_knows_words(self, classifier):
        report = classifier.evaluate()
        assert set(report.baselines) == {"majority class", "TF-IDF, linear"}
        assert (
            report.baselines["TF-IDF, linear"]["accuracy"] == 1
        )  # the word for the meal is in the text
        assert report.baseline_note == ""

    def test_alone_it_says_that_the_linear_one_is_missing(self, classifier, tmp_path):
        shutil.copytree(classifier.path, tmp_path / "m", ignore=shutil.ignore_patterns("run"))
        (tmp_path / "c.tsv").write_text("fish\tmy cats eat fish\n")
        report = lab.load(tmp_path / "m").evaluate(tmp_path / "c.tsv")
        assert set(report.baselines) == {"majority class"}
        assert report.baseline_note.startswith("the linear baseline needs the training part")

    def test_labels_of_which_validation_cannot_tell_are_warned_of(self, tmp_path):
        (tmp_path / "c.tsv").write_text("a\tone\na\ttwo\nb\tthree\nb\tfour\nrare\tfive\n")
        (tmp_path / "v.tsv").write_text("a\tone\nrare\tsix\n")
        settings = (*QUICK, *ENCODER, "source.min_count=1")
        with pytest.warns(SeqlabWarning) as told:
            lab.train(
                "classify",
                tmp_path / "c.tsv",
                valid=tmp_path / "v.tsv",
                settings=settings,
                out=tmp_path / "m",
            )
        assert [str(each.message) for each in told] == [
            "seen only once in training, hardly to be learnt: the label 'rare'",
            "missing from validation, so that no score tells of it: the label 'b'",
        ]


SIZES = {"lm": 8, "gpt": 8, "mask": 24, "bilm": 16, "classify": 24, "tag": 16, "translate": 16}
every_model = pytest.mark.parametrize("name", SIZES)


@pytest.fixture(scope="module")
def models(make, mask, bilm):
    lines = list(meals(30))
    text, pairs = (
        "".join(f"{line}\n" for line in lines),
        "".join(f"x\t{line}\ny\t{line} now\n" for line in lines),
    )
    tagged = "\n\n".join(
        "\n".join(f"{w} {'XY'[len(w) > 3]}" for w in line.split()) for line in lines
    )
    decoder = ("model.decoder.size=8",)
    heads = (
        "model.decoder.size=8",
        "model.decoder.heads=2",
        "model.decoder.layers=1",
        "data.unit=line",
    )
    letters = (*ENCODER, "model.characters.size=4", "source.min_count=1")
    greedy = ("decode.max_length=3", "shared=false", "source.kind=words")
    return {
        "lm": make("lm", "t.txt", text, *QUICK, *decoder, "train.batch_rows=2"),
        "gpt": make(
            "lm",
            "t.txt",
            text,
            *QUICK,
            *heads,
            "model.decoder.positions=learned",
            recipe="gpt-tiny",
        ),
        "mask": mask,
        "bilm": bilm,
        "classify": make("classify", "c.tsv", pairs, *QUICK, *ENCODER),
        "tag": make("tag", "t.conll", tagged, *QUICK, *letters),
        "translate": make(
            "translate", "p.tsv", pairs, *QUICK, *ENCODER, *decoder, *greedy, recipe="seq2seq"
        ),
    }


class TestEmbedding:
    TEXTS = ("my cats eat fish", "", "old", "young dogs eat meat and grass", "my cats eat fish")

    @every_model
    def test_gives_a_vector_for_each_text(self, models, name):
        vectors = models[name].embed(self.TEXTS)
        assert vectors.shape == (5, SIZES[name])
        assert vectors.dtype == np.float32
        assert np.isfinite(vectors).all()
        assert vectors[0] == pytest.approx(vectors[4], abs=1e-6)
        assert np.abs(vectors[0] - vectors[3]).max() > 1e-4

    @every_model
    def test_is_the_same_alone_and_in_a_batch(self, models, name):
        together = models[name].embed(self.TEXTS)
        for place, text in enumerate(self.TEXTS):
            assert models[name].embed([text])[0] == pytest.approx(together[place], abs=1e-6)

    @every_model
    def test_may_have_length_one(self, models, name):
        plain, unit = (
            models[name].embed(self.TEXTS, normalise=normalise) for normalise in (False, True)
        )
        lengths = np.linalg.norm(plain, axis=1)
        assert np.linalg.norm(unit, axis=1) == pytest.approx((lengths > 0).astype(float), abs=1e-5)
        assert unit * lengths[:, None] == pytest.approx(plain, abs=1e-5)

    @every_model
    def test_of_one_text_and_of_none(self, models, name):
        assert models[name].embed("my cats").shape == (1, SIZES[name])
        assert len(models[name].embed([])) == 0

    def test_a_text_longer_than_the_positions_that_were_learnt_is_cut(self, models):
        long = "my cats eat fish " * 200
        with pytest.warns(
            SeqlabWarning, match="line 1: 3400 tokens, more than the 1000 of data.max_target"
        ):
            vectors = models["gpt"].embed([long])
        assert vectors[0] == pytest.approx(models["gpt"].embed([long[:1000]])[0], abs=1e-6)

    def test_a_tagger_reads_the_words_that_it_would_tag(self, models):
        """Not those that a tokenizer of texts would find: here it is cut at spaces alone."""
        line = "my cats, eat fish"
        assert models["tag"].embed([line])[0] == pytest.approx(
            models["tag"].embed([tuple(line.split())])[0], abs=1e-6
        )


class TestSplitting:
    """data.too_long = "split": a long line becomes several, and no token is lost."""

    LINES = (
        "my cats eat fish and grass and meat",
        "old dogs",
        "young birds eat seeds and my cows eat grass too",
    )

    def rows(self, make, task, side, *settings):
        folder = make(
            task,
            "t.txt",
            "".join(f"{line}\n" for line in self.LINES),
            *QUICK,
            *settings,
            "data.too_long=split",
        )
        stores = folder.path / "run" / "data"
        parts = [TokenStore.open(stores / f"{part}_{side}") for part in ("train", "validation")]
        tokenizer = folder.bundle.codec.tokenizer
        return [store[row].tolist() for store in parts for row in range(len(store))], tokenizer

    @pytest.mark.parametrize("task", ["mask", "bilm"])
    def test_of_what_is_read(self, make, task):
        words = (
            "source.kind=words",
            "data.max_source=3",
            "model.encoder.size=8",
            "source.lower=false",
        )
        more = ("model.encoder.heads=2",) if task == "mask" else ()
        rows, tokenizer = self.rows(make, task, "source", *words, *more)
        expected = [tokenizer.encode(line) for line in self.LINES]
        pieces = [ids[start : start + 3] for ids in expected for start in range(0, len(ids), 3)]
        assert sorted(rows) == sorted(pieces)
        assert sum(map(len, rows)) == sum(len(line.split()) for line in self.LINES)

    def test_of_what_is_written(self, make):
        settings = (
            "target.kind=words",
            "data.unit=line",
            "data.max_target=3",
            "model.decoder.size=8",
        )
        rows, tokenizer = self.rows(make, "lm", "target", *settings)
        expected = [tokenizer.encode(line) for line in self.LINES]
        pieces = [
            [SOS, *ids[start : start + 3], EOS]
            for ids in expected
            for start in range(0, len(ids), 3)
        ]
        assert sorted(rows) == sorted(pieces)
