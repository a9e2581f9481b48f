"""The scikit-learn estimators as a user calls them; the checks of scikit-learn itself are in test_scikit_learn.py."""

import copy
import json

import numpy as np
import pytest

import seqlab
from seqlab.errors import RecipeError
from seqlab.estimators import InputError, SeqlabClassifier, SeqlabTagger

SMALL = (
    "model.embedding=8",
    "model.encoder.size=8",
    "train.learning_rate=0.03",
    "train.warmup=0",
    "model.dropout=0.0",
)
QUICK = (*SMALL, "train.steps=3", "source.min_count=1")
pytestmark = pytest.mark.filterwarnings("ignore::seqlab.errors.SeqlabWarning")


def reviews(count=80):
    """A good or a bad word among words that say nothing, once with a line end and a tab."""
    words = np.random.default_rng(1).choice(["film", "plot", "the", "actor", "music"], (count, 4))
    judged = ["great" if place % 2 else "awful" for place in range(count)]
    texts = [f"{' '.join(row)} {word}" for row, word in zip(words, judged, strict=True)]
    return [texts[0].replace(" ", "\n\t"), *texts[1:]], [
        "pos" if word == "great" else "neg" for word in judged
    ]


@pytest.fixture(scope="module")
def fitted():
    texts, labels = reviews()
    return SeqlabClassifier(settings=(*SMALL, "train.steps=25", "data.validation=0.1")).fit(
        texts, labels
    )


def test_a_classifier_learns_texts_and_predicts_labels(fitted):
    texts, labels = reviews(60)
    assert fitted.classes_.tolist() == ["neg", "pos"]
    assert fitted.score(texts, labels) > 0.95
    assert fitted.predict(np.array(["a great film", "an awful film"], dtype=object)).tolist() == [
        "pos",
        "neg",
    ]
    p = fitted.predict_proba(texts)
    assert p.shape == (60, 2)
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-12)
    assert (fitted.classes_[p.argmax(1)] == fitted.predict(texts)).all()


def test_it_equals_the_model_of_the_same_training(fitted, tmp_path):
    texts, labels = reviews()
    rows = (
        f'{{"text": {json.dumps(text)}, "label": "{label}"}}\n'
        for text, label in zip(texts, labels, strict=True)
    )
    (tmp_path / "reviews.jsonl").write_text("".join(rows))
    wanted = (*fitted.settings, "train.seed=0")
    trained = seqlab.train(
        "classify", tmp_path / "reviews.jsonl", settings=wanted, out=tmp_path / "run"
    ).model
    known = [answer.details["probabilities"]["pos"] for answer in trained.predict(texts)]
    np.testing.assert_array_equal(fitted.predict_proba(texts)[:, 1], known)


def test_a_fitted_estimator_can_be_saved_loaded_and_copied(fitted, tmp_path):
    saved = fitted.save(tmp_path / "model")
    assert saved.info()["task"] == "classify"
    assert seqlab.load(tmp_path / "model").predict("great").output == fitted.predict(["great"])[0]
    assert copy.deepcopy(fitted).predict(["great"]) == fitted.predict(["great"])
    assert "<svg" in fitted.model_.explain("a great film").to_svg()


@pytest.mark.parametrize(
    ("classes", "kind"), [([3, 10], "i"), ([False, True], "b"), ([0.0, 2.0], "f")]
)
def test_predicted_labels_have_the_type_of_y(classes, kind):
    texts, labels = reviews(30)
    y = [classes[label == "pos"] for label in labels]
    model = SeqlabClassifier(settings=QUICK).fit(texts, y)
    assert model.classes_.tolist() == classes
    assert model.predict(texts).dtype.kind == kind
    assert {*model.model_.predict("great").details["probabilities"]} == {
        str(label) for label in classes
    }


def test_sequences_of_numbers_and_of_vectors_are_read_too():
    random = np.random.default_rng(2)
    y = random.integers(0, 2, 60)
    waves = [random.normal(size=(random.integers(3, 9), 2)) + 2 * label for label in y]
    learnt = SeqlabClassifier(settings=(*SMALL, "train.steps=25")).fit(waves, y)
    assert learnt.score(waves, y) > 0.9
    rows = np.stack(
        [wave[:3, 0] for wave in waves]
    )  # a table: each row a sequence of single numbers
    assert SeqlabClassifier(settings=QUICK).fit(rows, y).predict(rows[:, :2]).shape == (60,)


def test_a_label_with_one_example_is_not_held_out():
    texts, labels = reviews(40)
    model = SeqlabClassifier(settings=(*QUICK, "data.validation=0.5"), seed=1)
    for place in range(0, 40, 8):
        model.fit(texts, [*labels[:place], "odd", *labels[place + 1 :]])
        assert model.classes_.tolist() == ["neg", "odd", "pos"]
        assert (model.predict_proba(["great"])[:, 1] > 0).all()


def test_parameters_can_be_read_and_set():
    model = SeqlabClassifier("lstm-classifier", settings=QUICK, seed=3)
    assert model.get_params() == {"recipe": "lstm-classifier", "settings": QUICK, "seed": 3}
    assert model.set_params(seed=4) is model
    assert model.seed == 4
    with pytest.raises(InputError, match="SeqlabClassifier has no parameter 'sed'") as told:
        model.set_params(sed=1)
    assert told.value.hint == "did you mean 'seed'?"
    texts, labels = reviews(30)
    one, other = (SeqlabClassifier(settings=QUICK, seed=seed).fit(texts, labels) for seed in (1, 2))
    assert (one.predict_proba(texts) != other.predict_proba(texts)).any()


def test_a_tagger_learns_words_and_frames():
    tags = {
        "the": "DET",
        "a": "DET",
        "dog": "NOUN",
        "cat": "NOUN",
        "New York": "NOUN",
        "sees": "VERB",
        "hears": "VERB",
    }
    drawn = np.random.default_rng(3).choice(list(tags), (40, 5))
    sentences = [row[: 2 + place % 4].tolist() for place, row in enumerate(drawn)]
    y = [[tags[word] for word in words] for words in sentences]
    model = SeqlabTagger(settings=(*SMALL, "train.steps=30", "source.min_count=1")).fit(
        sentences, y
    )
    assert model.classes_.tolist() == ["DET", "NOUN", "VERB"]
    assert model.score(sentences, y) > 0.9
    assert [len(row) for row in model.predict(["the dog", ["a", "cat", "sees"]])] == [2, 3]
    frames = [np.arange(4, dtype=float)[:, None] + place % 2 for place in range(20)]
    labels = [(row[:, 0] > 1).astype(int).tolist() for row in frames]
    learnt = SeqlabTagger(settings=(*SMALL, "train.steps=30")).fit(frames, labels)
    assert learnt.score(frames, labels) > 0.9
    assert learnt.classes_.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        ("one text", ["a"], "X is one builtins.str, not a list of texts"),
        ([], [], "X is empty"),
        (["a", "b"], ["x"], "X has 2 rows and y has 1 labels"),
        (["a", "b"], [["x"], ["y"]], r"y has the shape \(2, 1\)"),
        (["a", "b"], [0.5, 1.0], "y is continuous"),
        (["a", "b"], [1, None], "y mixes labels of several kinds"),
        (["a", "b"], ["x", " x"], "differ only in spaces"),
        (["a", 3.0], ["x", "y"], r"X\[0\] is neither a text nor a sequence of numbers: it is 'a'"),
        (
            [[1.0, np.nan], [2.0, 3.0]],
            ["x", "y"],
            r"X\[0\]: frame 1, feature 0 is nan .* \(neither NaN nor inf\)",
        ),
        (["a", "b"], None, "requires y to be passed"),
    ],
)
def test_invalid_input_is_a_value_error(X, y, message):
    with pytest.raises(ValueError, match=message):
        SeqlabClassifier(settings=QUICK).fit(X, y)


def test_invalid_input_of_a_tagger_is_refused():
    for X, y, message in [
        ([["a", "b"]], [["X"]], "have different lengths"),
        ([["a\tb"]], [["X"]], "is not a word"),
    ]:
        with pytest.raises(InputError, match=message):
            SeqlabTagger(settings=QUICK).fit(X, y)


def test_a_recipe_of_another_task_is_refused():
    with pytest.raises(
        RecipeError, match="recipe 'seq2seq' is for 'translate', not for 'classify'"
    ):
        SeqlabClassifier("seq2seq").fit(["a", "b"], ["x", "y"])
    with pytest.raises(ValueError, match="this SeqlabTagger is not fitted yet"):
        SeqlabTagger().predict([["a"]])
