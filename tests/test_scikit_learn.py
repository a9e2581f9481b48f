"""scikit-learn's own checks of an estimator, and its tools around one."""

import pytest

pytest.importorskip("sklearn", reason="needs scikit-learn (pip install 'seqlab[test]')")

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

from seqlab.estimators import SeqlabClassifier, SeqlabTagger

SMALL = (
    "model.embedding=4",
    "model.encoder.size=4",
    "train.learning_rate=0.05",
    "train.warmup=0",
    "model.dropout=0.0",
)
QUICK = (*SMALL, "train.steps=2", "source.min_count=1")
ANY_LENGTH = "a sequence may have any length: the number of columns that X had is no promise"
OTHER_WORDS = "refused with a ValueError, in other words than the check asks for"
EXPECTED = {
    "check_n_features_in": ANY_LENGTH,
    "check_n_features_in_after_fitting": ANY_LENGTH,
    "check_classifiers_train": ANY_LENGTH,
    "check_complex_data": OTHER_WORDS,
    "check_estimators_empty_data_messages": OTHER_WORDS,
    "check_fit2d_predict1d": OTHER_WORDS,
    "check_do_not_raise_errors_in_init_or_set_params": "types are enforced at every door while these tests run",
    "check_supervised_y_2d": "labels in a column are refused, not made a row with a warning",
}
pytestmark = pytest.mark.filterwarnings(
    "ignore::UserWarning"
)  # so little data that Seqlab warns of it


@parametrize_with_checks(
    [SeqlabClassifier(settings=QUICK)], expected_failed_checks=lambda model: EXPECTED
)
def test_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def texts():
    words = ["great" if place % 2 else "awful" for place in range(40)]
    return np.array(
        [f"{'a b c d'[: place % 7 + 1]} {word}" for place, word in enumerate(words)]
    ), np.array(words)


def test_a_clone_is_as_new():
    model = SeqlabClassifier(settings=QUICK, seed=7)
    again = clone(model)
    assert again is not model
    assert again.get_params() == model.get_params()


def test_cross_validation_in_a_pipeline(texts):
    learner = SeqlabClassifier(settings=(*SMALL, "train.steps=80", "source.min_count=1"))
    pipeline = make_pipeline(FunctionTransformer(np.char.upper), learner)
    assert cross_val_score(pipeline, *texts, cv=2).mean() > 0.9


def test_a_grid_search_finds_the_settings_that_learn(texts):
    grid = {
        "settings": [
            (*SMALL, "train.steps=1", "train.learning_rate=1e-6"),
            (*SMALL, "train.steps=25"),
        ]
    }
    learner = SeqlabClassifier(
        seed=3
    )  # whose first weights do not happen to tell the two labels apart
    found = GridSearchCV(learner, grid, cv=2, error_score="raise").fit(*texts)
    assert found.best_params_ == {"settings": grid["settings"][1]}
    assert found.predict(["a great"]).tolist() == ["great"]


def test_a_tagger_in_cross_validation():
    X = [["the", "dog"], ["a", "cat"]] * 8
    y = [["DET", "NOUN"]] * 16
    learner = SeqlabTagger(settings=(*SMALL, "train.steps=20", "source.min_count=1"))
    assert cross_val_score(learner, X, y, cv=2).mean() > 0.9
